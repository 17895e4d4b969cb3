//! Micro-VMs: KVM machines without a guest kernel. The guest is one ordinary program at CPL 3; its kernel is the monitor,
//! a process of the host's.
//!
//! ```text
//!   Template ◄─ seal ─┐                      vfs: a tree whose names never reach the host
//!      │ spawn        │                        ▲
//!      ▼              │                        │ system calls
//!   linux::Process ───┴──► linux: the personality ──► space: regions, page tables, memory in step
//!   unikernel::Unikernel ► ten hypercalls ──────────►   ├── arena    one mapping: address = physical = offset
//!      │                                                ├── tables   page tables, written by the monitor alone
//!      └──────► vcpu: enters the guest, ◄───────────────┘── ring0    two instructions for each way in
//!               comes back with an Exit
//! ```
//!
//! Three walls stand between a guest and the host. The hardware's: CPL 3, and page tables that map nothing but what the
//! program asked for. The monitor's: every pointer is checked against the same mappings before it is followed, descriptors
//! and paths are the monitor's own. And the process's: whoever runs untrusted guests has to put the monitor itself into a
//! jail, as the crate `vmm` does. **This crate is two walls without the third.**
//!
//! # What works
//!
//! - Unikernels: static programs with `guest/unikernel/wool.h`. Faults of any kind end the program, never the monitor; a
//!   program that spins is stopped from outside.
//! - Unmodified Linux programs, static and dynamic: CPython from a base as containers have it, its own tests of math, dict,
//!   list, float, re, struct, json, decimal, datetime, zlib and hashlib, numpy, pandas, Pillow; Lambswool's guest on
//!   descriptor 3.
//! - Threads, which take turns on the one processor.
//! - Clocks that a guest reads without leaving the machine, where guests see the host's counter of ticks.
//! - Code of libraries, and what is large, on huge pages.
//! - Memory with real protections, W^X among them; system calls compared with Linux's by random scripts.
//! - Places that make system calls are patched to hand over without ring 0.
//! - Limits of memory, scratch and descriptors; branches that a clone's tree gets after its template was sealed.
//! - Clones that share pages with their template until they write, and resets in place that ask the kernel which pages are a
//!   clone's own (Linux ≥ 6.7; before that, clone anew). Clones by a fork of the monitor, to be measured beside them.
//! - Templates of usual machines on disk, for a later monitor of the same build on the same host.
//!
//! # What does not, yet
//!
//! - Processes are refused (ENOSYS), and sockets but for pairs of streams. No alarms.
//! - Permission bits are kept but not enforced: the only user owns everything.
//! - Floating point state is not saved in signal frames; no signal comes from outside.
//!
//! Measured on paravirtualised KVM, on AMD and Intel processors: the guest's user mode native, ring 0 emulated. `make test-svm`
//! runs it on upstream KVM. What is known of others is written where it matters.
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
