//! Micro-VMs: KVM machines without a guest kernel. The guest is one ordinary program at CPL 3; its
//! kernel is the monitor, a process of the host's.
//!
//! ```text
//!   linux       unmodified Linux programs: system calls      unikernel   static programs: ten hypercalls
//!     │                                                           │
//!     ├──────────────────────────┬────────────────────────────────┘
//!     │                          ├──► image     what an ELF file asks to be loaded
//!     │                          ▼
//!     │                       machine   one KVM machine with one processor
//!     │                          ▼
//!     │                       memory    address space, page tables, the bytes
//!     ▼                          ▼
//!   vfs         a tree of files whose names never reach the host
//! ```
//!
//! Three walls stand between a guest and the host:
//!
//! 1. The hardware's: CPL 3, and page tables that map nothing but what the program asked for.
//! 2. The monitor's: it checks every pointer against the same mappings before it follows it, and
//!    descriptors and paths are the monitor's own.
//! 3. The process's: a monitor of untrusted guests runs in a jail, as the crate `vmm` arranges it.
//!    **This crate is the first two walls without the third.**
//!
//! # What works
//!
//! - Unikernels: static programs with `guest/unikernel/wool.h`. A fault ends the program, never the
//!   monitor; a program that spins is stopped from outside.
//! - Unmodified Linux programs, static and dynamic: CPython, with its own tests of math, dict,
//!   list, float, re, struct, json, decimal, datetime, zlib and hashlib; numpy, pandas, Pillow;
//!   Lambswool's guest on descriptor 3.
//! - Threads, which take turns on the one processor, and signals among them; alarms.
//! - Clocks that a guest reads without leaving the machine, where guests see the host's counter of
//!   ticks.
//! - Huge pages for the code of libraries and for large mappings.
//! - Memory with real protections, W^X among them. Random scripts compare system calls with
//!   Linux's.
//! - Instructions that make system calls are patched to leave the machine without ring 0.
//! - Limits of memory, scratch and descriptors; branches that a clone's tree gets after its
//!   template was sealed.
//! - Clones that share pages with their template until they write, and resets in place that ask the
//!   kernel which pages a clone has written (Linux ≥ 6.7; before that, clone anew). Clones by a
//!   fork of the monitor, to be measured beside them.
//! - Templates on disk, for a later monitor of the same build on the same host.
//!
//! # What does not, yet
//!
//! - Processes are refused (ENOSYS), and sockets but for pairs of streams.
//! - Permission bits are kept but not enforced on layers: the only user owns everything.
//! - No signal comes from outside the guest.
//!
//! Measured on paravirtualised KVM, on AMD and Intel processors: user mode native, ring 0 emulated.
//! `make test-svm` runs it on upstream KVM. Differences of other hypervisors are noted where they
//! matter.
//!
//! Guests and monitor are for x86-64; for any other processor this crate is empty.

#![cfg(target_arch = "x86_64")]

pub mod image;
pub mod linux;
pub mod machine;
pub mod memory;
pub mod mutant;
pub mod unikernel;
pub mod vfs;
