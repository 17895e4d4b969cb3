//! HyperFork, figure 3: what copying on write costs a guest that writes to each page of a large allocation.
//!
//! A first pass makes the memory; a second one writes to it again, in the same machine or in a clone of it, where each
//! page has to be copied first. The guest itself takes the time of a pass.

use std::cell::RefCell;

use anyhow::Result;
use microvm::machine::Hypervisor;

use super::{Measured, on_kvm, take_turns};
use crate::guests::{Forking, Frozen, Guest, Point, Program, Way, build};
use crate::load::Target;
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::{float, median};
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hyperfork_fig3";
pub(super) const TITLE: &str =
    "A pass over memory, 128 random bytes to each page, after a clone and without one (n = 100)";

const FIRST: &str = "first pass";
const SECOND: &str = "second pass, same machine";
const CLONE: &str = "second pass, clone of a file";
const LEARNED: &str = "second pass, clone that learned";
const RESET: &str = "second pass, machine that was reset";
const FORK: &str = "second pass, fork";
const HUGE: &str = "second pass, fork, huge pages";

/// Pages of a pass: 64 MiB.
const PAGES: usize = 16 << 10;

/// Says how many milliseconds each pass took.
const PASSES: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
int main(int count, char **words) {
    long pages = atol(words[1]);
    char c, said[32], *all = mmap(0, pages << 12, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    uint64_t random = 88172645463325252u, bytes[16];
    while (read(3, &c, 1) == 1) {
        double began = now();
        for (long page = 0; page < pages; page++) {
            for (int at = 0; at < 16; at++) {
                random ^= random << 13; random ^= random >> 7; random ^= random << 17;
                bytes[at] = random;
            }
            memcpy(all + (page << 12), bytes, sizeof bytes);
        }
        write(3, said, sprintf(said, "x%.6f", now() - began));
    }
    return 0;
}
"#;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let pages = stage.amount(PAGES, PAGES / 16);
    on_kvm(&mut run);
    run.method = vec![
        format!(
            "{pages} pages; what is compared is the pass alone, by the guest's own clock (`own_ms` in the samples); the latencies below contain making and preparing the machine"
        ),
        format!(
            "`{FIRST}` and `{SECOND}` are two passes of the same machine, which nobody cloned; the others write to memory in which the original made its first pass"
        ),
        format!(
            "`{LEARNED}`: what a first clone touched others get together when they are made, as the worker's clones do; `{RESET}`: its pages are its own since the call before, and were copied back"
        ),
    ];
    let dir = stage.scratch().join("passes");
    build(&dir, PASSES, &[])?;
    let arguments = vec![pages.to_string()];
    let program = Program::built(&dir, &arguments);
    let frozen = || Frozen::make(&program, Point::Rehearsed);
    let start = |before: usize| -> Result<Way> {
        Ok(Way::Start(Box::new(Hypervisor::open()?), program.clone(), before))
    };
    let first = Guest::new(FIRST, start(0)?);
    let second = Guest::new(SECOND, start(1)?);
    let clone = Guest::new(CLONE, Way::Clone(frozen()?));
    let learned = Guest::new(LEARNED, Way::Clone(frozen()?.learned()?));
    let reset = Guest::new(RESET, Way::Reset(frozen()?, RefCell::default()));
    let fork = Forking::start(FORK, &dir, &arguments, false).await?;
    let huge = Forking::start(HUGE, &dir, &arguments, true).await?;
    stage.rest(&mut run).await?;
    let (rounds, calls) = stage.amount((5, 20), (2, 2));
    let arms: [&dyn Target; 7] = [&first, &second, &clone, &learned, &reset, &fork, &huge];
    take_turns(&mut run, &arms.map(|arm| (arm, calls)), rounds).await?;
    run.comparisons = compare(&run, pages);
    let line = |at: usize| Line {
        name: arms[at].name().to_owned(),
        points: vec![(float(at), pass(&run, arms[at].name()), String::new())],
        cited: false,
    };
    let plot = Plot {
        title: TITLE.to_owned(),
        x: format!("arm, in the order of the legend ({})", run.here),
        y: "median of a pass, ms".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.8,
        lines: (0..arms.len()).map(line).collect(),
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

/// The median pass of an arm, in milliseconds.
fn pass(run: &Run, arm: &str) -> f64 {
    let passes: Vec<f64> = run.answered(arm).iter().map(|sample| sample.own_ms).collect();
    median(&passes)
}

fn compare(run: &Run, pages: usize) -> Vec<Comparison> {
    let over = |arm: &str, other: &str, paper: &str| {
        let (ours, base) = (pass(run, arm), pass(run, other));
        Comparison {
            what: format!("`{arm}` over `{other}`"),
            paper: paper.to_owned(),
            target: String::new(),
            ours: format!(
                "{:+.0} % ({ours:.2} over {base:.2} ms; {:+.2} µs a page)",
                (ours / base - 1.0) * 100.0,
                (ours - base) * 1e3 / float(pages)
            ),
            reached: None,
        }
    };
    vec![
        over(FORK, SECOND, "+28 % where pages fault"),
        over(HUGE, SECOND, "+28 % where pages fault"),
        over(CLONE, SECOND, "+28 % where pages fault"),
        over(LEARNED, SECOND, "none elsewhere"),
        over(RESET, SECOND, "none elsewhere"),
        over(SECOND, FIRST, ""),
    ]
}
