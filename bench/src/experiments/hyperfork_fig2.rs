//! HyperFork, figure 2: how long a clone takes to its first instruction, by the memory that its origin has touched.
//!
//! Against the same guest started anew, which touches that memory itself. Clones are copies of a sealed file's mapping; the
//! paper's own way, a fork of the monitor, is not there yet.

use anyhow::Result;
use microvm::hypervisor::Hypervisor;

use super::microvm_targets::kvm;
use super::{Measured, at_most};
use crate::guests::{Frozen, Guest, Way, build};
use crate::load::{Target, Until, closed};
use crate::plot::{Line, Plot};
use crate::run::Run;
use crate::sample::{Mode, float};
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hyperfork_fig2";
pub(super) const TITLE: &str = "From a frozen guest to its clone's first answer, by touched memory";

/// Megabytes. A guest has less than two gigabytes here.
const SIZES: [usize; 4] = [64, 256, 512, 1024];

/// Touches memory, then answers each byte of its channel.
const TOUCHES: &str = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
    int main(int count, char **words) { long size = atol(words[1]) << 20; char c;\n\
    char *all = mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (all == MAP_FAILED) return 1;\n\
    for (long at = 0; at < size; at += 4096) all[at] = at >> 12 | 1;\n\
    while (read(3, &c, 1) == 1) write(3, \"x\", 1); return 0; }\n";

fn clone_of(size: usize) -> String {
    format!("clone, {size} MB")
}

fn start_of(size: usize) -> String {
    format!("started anew, {size} MB")
}

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    run.method = vec![
        format!("KVM of this machine: {}", kvm()),
        "a clone: machine, processor, mapping, one byte in and one byte out; its destruction is in the throughput only".to_owned(),
        "in the load generator's own process, without jail, HTTP or worker".to_owned(),
    ];
    let dir = stage.scratch().join("touches");
    build(&dir, TOUCHES, &[])?;
    let sizes = stage.amount(&SIZES[..], &SIZES[..2]);
    stage.rest(&mut run).await?;
    let (rounds, calls, few) = stage.amount((5, 100, 5), (2, 5, 2));
    for &size in sizes {
        // One size at a time: each holds its memory.
        let arguments = vec![size.to_string()];
        let clone = Frozen::make(&dir, &arguments)?;
        let clone = Guest::new(clone_of(size), Way::Clone(clone));
        let anew = Way::Start(Box::new(Hypervisor::open()?), dir.clone(), arguments);
        let anew = Guest::new(start_of(size), anew);
        for round in 0..rounds {
            let mut arms: [(&dyn Target, usize); 2] = [(&clone, calls), (&anew, few)];
            arms.rotate_left(round as usize % 2);
            for (arm, calls) in arms {
                run.add(closed(arm, round, 1, Until::Calls(calls)).await?);
            }
        }
    }
    let median = |run: &Run, arm: &str| {
        run.row(arm, Mode::Closed, 1.0).latency_ms.map_or(f64::NAN, |latency| latency.p50)
    };
    let paper = [(64, "4.4 ms", 0.8), (1024, "", 1.5)];
    run.comparisons = paper
        .into_iter()
        .map(|(size, paper, target)| {
            let arm = clone_of(size);
            let mut told = at_most(&format!("`{arm}`, p50"), median(&run, &arm), " ms", target);
            told.paper = paper.to_owned();
            told
        })
        .collect();
    let line = |name: &str, arm: fn(usize) -> String| Line {
        name: name.to_owned(),
        points: sizes
            .iter()
            .map(|size| (float(*size), median(&run, &arm(*size)), String::new()))
            .collect(),
        cited: false,
    };
    let plot = Plot {
        title: TITLE.to_owned(),
        x: "touched memory, MB".to_owned(),
        y: "median, ms".to_owned(),
        log_x: true,
        log_y: true,
        room: 1.2,
        lines: vec![line("clone", clone_of), line("started anew", start_of)],
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
}
