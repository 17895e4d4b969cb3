/* A unikernel that greets whoever asks. */
#include "../../guest/unikernel/wool.h"

static char name[256];
static char answer[sizeof name + 8];

void _start(void) {
    for (;;) {
        wool_ready();
        wool_word length = wool_receive(name, sizeof name);
        if (length > sizeof name) length = sizeof name;
        char *end = answer;
        for (const char *from = "hello, "; *from; from++) *end++ = *from;
        for (wool_word at = 0; at < length; at++) *end++ = name[at];
        wool_send(answer, (wool_word)(end - answer));
    }
}
