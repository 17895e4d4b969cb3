/* The guest side of Lambswool's unikernels: one header, no C library. `crates/microvm/src/unikernel.rs` answers.
 *
 *   cc -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie -o hello hello.c
 *
 * The program begins at `_start` and ends with wool_exit(). */
#ifndef WOOL_H
#define WOOL_H

typedef unsigned long wool_word;
#define WOOL_REFUSED ((wool_word)-1)

static inline wool_word wool_call(wool_word number, wool_word first, wool_word second) {
    wool_word result;
    __asm__ volatile("outb %%al, $0xf2"
                     : "=a"(result)
                     : "0"(number), "D"(first), "S"(second)
                     : "memory");
    return result;
}

/* Ends the program. */
static inline void __attribute__((noreturn)) wool_exit(int status) {
    for (;;) wool_call(0, (wool_word)status, 0);
}
/* Writes to the log. */
static inline wool_word wool_log(const void *text, wool_word length) {
    return wool_call(1, (wool_word)text, length);
}
/* Nanoseconds since the program was loaded. */
static inline wool_word wool_monotonic(void) { return wool_call(2, 0, 0); }
/* Nanoseconds since 1970. */
static inline wool_word wool_realtime(void) { return wool_call(3, 0, 0); }
/* Fills memory with random bytes. */
static inline wool_word wool_random(void *bytes, wool_word length) {
    return wool_call(4, (wool_word)bytes, length);
}
/* More memory, behind what was given before. */
static inline void *wool_grow(wool_word length) { return (void *)wool_call(5, length, 0); }
/* The argument that it was started with; returns its length, which may be more than fits. */
static inline wool_word wool_argument(void *bytes, wool_word room) {
    return wool_call(6, (wool_word)bytes, room);
}
/* The request that it is to answer; as wool_argument. */
static inline wool_word wool_receive(void *bytes, wool_word room) {
    return wool_call(7, (wool_word)bytes, room);
}
/* Answers the request. */
static inline wool_word wool_send(const void *bytes, wool_word length) {
    return wool_call(8, (wool_word)bytes, length);
}
/* Says that everything is prepared; returns when there is a request. What runs before is shared by all clones. */
static inline void wool_ready(void) { wool_call(9, 0, 0); }

#endif
