/* Makes the system calls of a script that it reads from descriptor 3, and asks for the next one. The first thing that it says
 * there is where its area is. `fuzz/src/system_calls.rs` writes the scripts.
 *
 *   cc -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie -o caller caller.c */

typedef unsigned long word;

enum { CALLS = 64, AREA = 65536, HEAD = 4096 };

/* What a word of a script stands for. */
enum { PLAIN, RESULT, IN_AREA };
/* A number of no system call: writes a word into the area instead. */
#define POKE (-1ul)

struct argument { word kind, value; };
struct call { word number; struct argument arguments[6]; };

static struct { word count; struct call calls[CALLS]; unsigned char head[HEAD]; } script;
static unsigned char area[AREA] __attribute__((aligned(4096)));
static word results[CALLS];

static word make(word number, const word *with) {
    register word fourth __asm__("r10") = with[3];
    register word fifth __asm__("r8") = with[4];
    register word sixth __asm__("r9") = with[5];
    word result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(with[0]), "S"(with[1]), "d"(with[2]), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

static word resolve(const struct argument *argument, word at) {
    switch (argument->kind) {
    case RESULT: return at ? results[argument->value % at] : argument->value;
    case IN_AREA: return (word)area + argument->value;
    default: return argument->value;
    }
}

void _start(void) {
    const word where = (word)area;
    make(1, (word[6]){3, (word)&where, sizeof where});
    for (;;) {
        if (make(0, (word[6]){3, (word)&script, sizeof script}) != sizeof script) make(231, (word[6]){1});
        for (int at = 0; at < HEAD; at++) area[at] = script.head[at];
        for (word at = 0; at < script.count && at < CALLS; at++) {
            word with[6];
            for (int which = 0; which < 6; which++) with[which] = resolve(&script.calls[at].arguments[which], at);
            if (script.calls[at].number == POKE) {
                *(word *)(area + with[0] % (AREA - sizeof(word))) = with[1];
            } else {
                results[at] = make(script.calls[at].number, with);
            }
        }
    }
}
