//! Memory that is free is also there.
//!
//! A virtual machine's host gives it memory at the first touch, and may take back what was freed (free page reporting). Who is
//! measured first on such a machine then pays for the host's page faults, in processor time that looks like its own: here 3 to
//! 6 µs for each 4 kB, more than all that the guest's kernel does for it. So a run touches the free memory once before it starts.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

use crate::meminfo::meminfo;
use crate::sample::float;

const PAGE: usize = 4096;
/// What is left alone, so that nobody is pressed.
const LEFT: usize = 1 << 30;
/// What the costs are measured on.
const SAMPLE: usize = 64 << 20;

/// Microseconds that a process took for the first touch of a page.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FirstTouch {
    /// On average over the free memory, as the run found it.
    pub(crate) found_us: f64,
    /// On memory that was just freed: what remains when the host has nothing to do.
    pub(crate) backed_us: f64,
}

/// Touches all free memory but a gibibyte, and returns it.
pub(crate) fn touch() -> FirstTouch {
    let free = usize::try_from(meminfo("MemFree").unwrap_or(0)).unwrap_or(0);
    let found_us = pages(free.saturating_sub(LEFT).max(SAMPLE));
    FirstTouch { found_us, backed_us: pages(SAMPLE) }
}

/// Microseconds a page.
fn pages(bytes: usize) -> f64 {
    let mut memory = vec![0_u8; bytes];
    let began = Instant::now();
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let took = began.elapsed();
    black_box(&memory);
    took.as_secs_f64() * 1e6 / float(bytes / PAGE)
}
