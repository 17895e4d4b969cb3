# The shared object that a guest finds in place of the kernel's: clocks without leaving the machine. An ELF file of one
# segment, at its own addresses from 0 on, with the clock page (see `clock_page`) one page before it.
#
# Names are looked up through DT_HASH with a single bucket, so no hash has to be known here.

    .section .rodata.lambswool_vdso, "a", @progbits
    .balign 4096
    .globl lambswool_vdso_begin
    .globl lambswool_vdso_end
    .globl lambswool_vdso_touch
lambswool_vdso_begin:
.Lvdso:
    .byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0            # 64 bits, little endian, version 1
    .quad 0
    .short 3, 62                                        # a shared object, for x86-64
    .long 1
    .quad 0                                             # nowhere to start
    .quad .Lheaders - .Lvdso
    .quad 0
    .long 0
    .short 64, 56, 2, 64, 0, 0
.Lheaders:
    .long 1, 5                                          # to be loaded, read and executed: all of it
    .quad 0, 0, 0, .Lend - .Lvdso, .Lend - .Lvdso, 4096
    .long 2, 4                                          # the dynamic section
    .quad .Ldynamic - .Lvdso, .Ldynamic - .Lvdso, .Ldynamic - .Lvdso
    .quad .Lsymbols - .Ldynamic, .Lsymbols - .Ldynamic, 8
.Ldynamic:
    .quad 14, .Lsoname - .Lstrings                      # DT_SONAME
    .quad 4, .Lhash - .Lvdso                            # DT_HASH
    .quad 5, .Lstrings - .Lvdso                         # DT_STRTAB
    .quad 6, .Lsymbols - .Lvdso                         # DT_SYMTAB
    .quad 10, .Lstrings_end - .Lstrings                 # DT_STRSZ
    .quad 11, 24                                        # DT_SYMENT
    .quad 0, 0
.Lsymbols:
    .quad 0, 0, 0
    .long .Lname_gettime - .Lstrings
    .byte 0x12, 0                                       # a global function
    .short 1
    .quad .Lgettime - .Lvdso, .Lgettimeofday - .Lgettime
    .long .Lname_gettimeofday - .Lstrings
    .byte 0x12, 0
    .short 1
    .quad .Lgettimeofday - .Lvdso, .Ltime - .Lgettimeofday
    .long .Lname_time - .Lstrings
    .byte 0x12, 0
    .short 1
    .quad .Ltime - .Lvdso, .Lnow - .Ltime
.Lhash:
    .long 1, 4                                          # one bucket, four symbols
    .long 1                                             # it begins with the first
    .long 0, 2, 3, 0                                    # each leads to the next
.Lstrings:
    .byte 0
.Lsoname:
    .asciz "linux-vdso.so.1"
.Lname_gettime:
    .asciz "__vdso_clock_gettime"
.Lname_gettimeofday:
    .asciz "__vdso_gettimeofday"
.Lname_time:
    .asciz "__vdso_time"
.Lstrings_end:
    .balign 16

# int clock_gettime(clockid_t rdi, struct timespec *rsi)
.Lgettime:
    call .Lnow
    test rax, rax
    jz 1f
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rsi], rax
    mov [rsi + 8], rdx
    xor eax, eax
    ret
1:  mov eax, 228
    out 0xf1, al                                        # as a patched `syscall`
    ret

# int gettimeofday(struct timeval *rdi, struct timezone *rsi)
.Lgettimeofday:
    test rsi, rsi
    jnz 1f
    test rdi, rdi
    jz 2f
    push rdi
    xor edi, edi
    call .Lnow
    pop rdi
    test rax, rax
    jz 1f
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rdi], rax
    mov rax, rdx
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov [rdi + 8], rax
2:  xor eax, eax
    ret
1:  mov eax, 96
    out 0xf1, al
    ret

# time_t time(time_t *rdi)
.Ltime:
    push rdi
    xor edi, edi
    call .Lnow
    pop rdi
    test rax, rax
    jz 1f
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    test rdi, rdi
    jz 2f
    mov [rdi], rax
2:  ret
1:  mov eax, 201
    out 0xf1, al
    ret

# Nanoseconds of clock rdi in rax; 0: ask the monitor. Changes rcx, rdx, r8, r9, r10.
.Lnow:
    lea r8, [rip + .Lvdso - 4096]
    cmp rdi, 7
    ja 3f
1:  mov r9, [r8]                                        # how often the page was written
    mov r10, [r8 + 32 + rdi * 8]                        # the clock's base
    test r10, r10
    jz 3f
    lfence                                              # no earlier than here
    rdtsc
    shl rdx, 32
    or rax, rdx
    xor ecx, ecx
    sub rax, [r8 + 8]                                   # ticks since the base
    cmovb rax, rcx
    mul qword ptr [r8 + 16]                             # nanoseconds a tick, in 2^-32
    shrd rax, rdx, 32
    add rax, r10
    cmp r9, [r8]                                        # written meanwhile: once more
    jne 1b
    ret
3:  xor eax, eax
    ret
    .balign 16

# Not a function of the object: the monitor has a processor begin here that runs for nobody at the moment (see `ahead`). It forgets
# what data segments were selected. From rdi to rsi lie addresses of pages; each is touched, and written to where its lowest bit is
# set.
lambswool_vdso_touch:
    xor eax, eax
    mov ds, eax
    mov es, eax
    mov fs, eax
    mov gs, eax
3:  cmp rdi, rsi
    jae 2f
    mov eax, [rdi]
    add rdi, 4
    btr eax, 0
    jc 1f
    mov cl, [rax]
    jmp 3b
1:  or byte ptr [rax], 0
    jmp 3b
2:  out 0xf2, al                                        # as a hypercall
    .balign 16
.Lend:
lambswool_vdso_end:
    .text
