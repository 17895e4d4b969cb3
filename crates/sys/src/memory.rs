//! What a process with many threads that mostly wait need not keep: heaps of their own, and stacks as deep as they once
//! were. An idle thread weighs some 70 KB less so.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Bytes just below a caller's frame that it may still use: the ABI's red zone, and the frames of the call that gives the
/// rest back.
const STILL_IN_USE: usize = 8 << 10;

/// Has all threads allocate from one heap, and not from one each with page tables of its own (glibc's arenas: mallopt(3)).
/// For those that allocate little while they are busy. To be called before there are other threads; does nothing where
/// the C library is another one.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives the kernel back what the calling thread's stack holds below where it stands; it reads as zero afterwards, and
/// costs a fault for each page that is used again. For threads of [`std::thread`]; of a program's first thread the stack
/// has no known end.
///
/// # Errors
///
/// The C library's when it does not know where the stack lies, and madvise(2)'s.
#[inline(never)]
pub fn trim_stack() -> io::Result<()> {
    let bottom = bottom_of_stack()?;
    let here = ptr::from_ref(&bottom).addr();
    let end = here.saturating_sub(STILL_IN_USE) & !(page_size() - 1);
    let length = end.saturating_sub(bottom.addr());
    // SAFETY: all of it is this thread's stack, below its lowest frame: nothing there is used again before it is written.
    unsafe { rustix::mm::madvise(bottom, length, rustix::mm::Advice::LinuxDontNeed) }?;
    Ok(())
}

/// As the C library has known it from the start: whoever asks the kernel needs files of `/proc`, which are out of reach in a jail.
fn page_size() -> usize {
    // SAFETY: it reads a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The lowest address of the calling thread's stack, its guard not counted.
fn bottom_of_stack() -> io::Result<*mut c_void> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: any thread may ask who it is.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread is the caller, and there is room for the attributes.
    let outcome = unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) };
    if outcome != 0 {
        return Err(io::Error::from_raw_os_error(outcome));
    }
    // SAFETY: they were written just now.
    let mut attributes: libc::pthread_attr_t = unsafe { attributes.assume_init() };
    let (mut bottom, mut length) = (ptr::null_mut(), 0);
    // SAFETY: all three are valid.
    let outcome = unsafe {
        libc::pthread_attr_getstack(&raw const attributes, &raw mut bottom, &raw mut length)
    };
    // SAFETY: they are not used afterwards.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    if outcome == 0 { Ok(bottom) } else { Err(io::Error::from_raw_os_error(outcome)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::hint::black_box;
    use std::os::unix::fs::FileExt as _;
    use std::sync::{Arc, Barrier};

    use super::*;

    /// Whether there is memory behind the page at an address of this process (proc_pid_pagemap(5)).
    fn is_present(address: usize) -> bool {
        let mut entry = [0; 8];
        let at = address / page_size() * 8;
        File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entry, at as u64).unwrap();
        u64::from_le_bytes(entry) >> 63 == 1
    }

    #[inline(never)]
    fn dive() -> usize {
        let deep = black_box([1_u8; 64 << 10]);
        ptr::from_ref(&deep).addr()
    }

    #[test]
    fn a_stack_that_was_deep_is_given_back_below_where_its_thread_stands() {
        let thread = std::thread::spawn(|| {
            let kept = black_box([7_u8; 16 << 10]);
            let deep = dive();
            assert!(is_present(deep), "it was written");
            trim_stack().unwrap();
            assert!(!is_present(deep), "nobody needs it");
            assert!(black_box(kept).iter().all(|byte| *byte == 7), "what is in use stays");
            assert!(is_present(dive()), "and it can be as deep again");
        });
        thread.join().unwrap();
    }

    #[test]
    fn threads_that_share_a_heap_have_none_of_their_own() {
        // In a process of its own: other tests' threads have had heaps before.
        const SHARES: &str = "SHARES_HEAP";
        const THREADS: usize = 6;
        if std::env::var_os(SHARES).is_some() {
            share_heap();
            let all_there = Arc::new(Barrier::new(THREADS));
            let threads = [(); THREADS].map(|()| {
                let all_there = Arc::clone(&all_there);
                std::thread::spawn(move || {
                    all_there.wait();
                    // Of a size of which nobody has freed any.
                    Box::into_raw(Box::new([1_u8; 3 << 10])).addr()
                })
            });
            // glibc's arenas lie on 64 MiB each. The harness's own threads have had one before.
            let heaps = threads.map(|thread| thread.join().unwrap() >> 26);
            let heaps = BTreeSet::from(heaps);
            assert!(heaps.len() <= 2, "{heaps:x?}");
            return;
        }
        let test = "memory::tests::threads_that_share_a_heap_have_none_of_their_own";
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(SHARES, "1")
            .status();
        assert!(again.unwrap().success());
    }
}
