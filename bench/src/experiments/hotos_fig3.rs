//! "Serverless and Linux" (HotOS '17), figure 3: a program that says one byte, as a process, as a unikernel, in runc.
//!
//! The paper's monitor boots a unikernel for each action. Here the same unikernel is also cloned from a frozen one and put
//! back in place, and so is an unmodified Linux program. As in the paper: latency, and the most that an open loop gets
//! through. Machines run in the load generator's thread, one at a time; processes and containers run on all processors.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use super::{Measured, on_kvm, ramp, ratio, shares, take_turns, throughput_latency};
use crate::baselines::{first_byte, runc::Runc};
use crate::guests::{Frozen, Guest, Point, Program, Unikernels, Way, build};
use crate::load::{Pending, Shot, Target};
use crate::plot::Plot;
use crate::run::{Comparison, Run};
use crate::sample::{Mode, float};
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hotos_fig3";
pub(super) const TITLE: &str = "A program that says one byte: process, unikernel (cold, cloned, reset), Linux program in a micro-VM, runc";

const PROCESS: &str = "process";
const COLD: &str = "unikernel, cold";
const CLONE: &str = "unikernel, clone";
const RESET: &str = "unikernel, reset";
const LINUX_CLONE: &str = "Linux program, clone";
const LINUX_RESET: &str = "Linux program, reset";
const RUNC: &str = "runc";

/// On the host it says its byte and ends; as a guest it answers each byte of its channel.
const HELLO: &str = "#include <unistd.h>\n\
    int main(void) { char c; if (read(3, &c, 1) != 1) return write(1, \"x\", 1) != 1;\n\
    do write(3, \"x\", 1); while (read(3, &c, 1) == 1); return 0; }\n";
const UNIKERNEL: &str = "#include \"wool.h\"\n\
    void _start(void) { for (;;) { wool_ready(); wool_send(\"x\", 1); } }\n";

/// Of what each arm reached one at a time: the open loop's rates, beyond what two processors could give.
const FRACTIONS: [f64; 6] = [0.5, 0.8, 1.0, 1.2, 1.7, 2.4];

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    on_kvm(&mut run);
    run.method = vec![
        "latency: until the byte is there; throughput counts the cleaning up, too: the end of the process, the machine's destruction, the reset".to_owned(),
        "the machines are in the load generator's own process, without jail, HTTP or worker, and run in its one thread; process and runc are started by it and run on all processors".to_owned(),
        format!("open loop: a fixed schedule at {FRACTIONS:?} of what the arm reached one at a time; its maximum is the most answers a second at any of these rates, `open.svg` shows what they wait"),
    ];
    let dir = stage.scratch().join("hello");
    let program = build(&dir, HELLO, &[])?;
    let unikernel = unikernel(&stage.scratch().join("unikernel"))?;
    let guest = Program::built(&dir, &[]);
    let frozen = || Frozen::make(&guest, Point::Rehearsed)?.learned();
    let process = Started(program);
    let cold = Unikernels::cold(COLD, &unikernel)?;
    let clone = Unikernels::cloned(CLONE, &unikernel)?;
    let reset = Unikernels::reset(RESET, &unikernel)?;
    let linux_clone = Guest::new(LINUX_CLONE, Way::Clone(frozen()?));
    let linux_reset = Guest::new(LINUX_RESET, Way::Reset(frozen()?, RefCell::default()));
    let runc = Runc::of(&dir, std::iter::once("/program"), &stage.scratch().join("runc"))?;
    if runc.is_none() {
        run.warnings.push("no runc: it is not installed".to_owned());
    }
    stage.rest(&mut run).await?;
    let (rounds, calls, few) = stage.amount((5, 500, 40), (2, 10, 3));
    let mut arms: Vec<(&dyn Target, usize)> = vec![
        (&process, calls),
        (&cold, calls),
        (&clone, calls),
        (&reset, 4 * calls),
        (&linux_clone, calls),
        (&linux_reset, 4 * calls),
    ];
    arms.extend(runc.iter().map(|runc| (runc as &dyn Target, few)));
    take_turns(&mut run, &arms, rounds).await?;
    let arms: Vec<&dyn Target> = arms.iter().map(|(arm, _)| *arm).collect();
    let time = stage.amount(Duration::from_secs(3), Duration::from_millis(200));
    ramp(&mut run, &arms, &FRACTIONS, time).await?;
    run.comparisons = vec![
        ratio(&run, (COLD, RUNC), 1, "8×", None),
        ratio(&run, (CLONE, RUNC), 1, "", Some(10.0)),
        ratio(&run, (RESET, RUNC), 1, "", Some(50.0)),
        ratio(&run, (RESET, PROCESS), 1, "0.75× (unikernel, cold)", Some(1.0)),
        ratio(&run, (LINUX_CLONE, RUNC), 1, "", Some(10.0)),
        ratio(&run, (LINUX_RESET, RUNC), 1, "", Some(50.0)),
        ratio(&run, (LINUX_RESET, PROCESS), 1, "", Some(1.0)),
    ];
    let paper = [(PROCESS, "5.8 ms", "329/s"), (COLD, "7.8 ms", "193/s"), (RUNC, "23 ms", "24/s")];
    for arm in &arms {
        let told = paper.iter().find(|(name, ..)| *name == arm.name());
        let (latency, rate) = told.map_or(("", ""), |(_, latency, rate)| (latency, rate));
        run.comparisons.push(mean(&run, arm.name(), latency));
        run.comparisons.push(most(&run, arm.name(), rate));
    }
    let mut plot = shares(&run, arms.iter().map(|arm| arm.name()), 1.2);
    plot.x = format!("latency, ms ({})", run.here);
    let open = Plot {
        x: format!("calls a second, sent on a fixed schedule ({})", run.here),
        y: "p99 latency from when a call was due, ms".to_owned(),
        log_y: true,
        room: 4.0,
        lines: throughput_latency(&run, &arms, Mode::Open),
        ..plot.clone()
    };
    Ok(Measured { run, plots: vec![("plot", plot), ("open", open)] })
}

fn unikernel(dir: &Path) -> Result<Vec<u8>> {
    let library = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../guest/unikernel");
    let library = library.to_str().context("the checkout's path is no text")?;
    let bare = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie"];
    let file = build(dir, UNIKERNEL, &[&bare[..], &["-I", library]].concat())?;
    std::fs::read(file).context("read the unikernel")
}

/// As the paper has it: the mean.
fn mean(run: &Run, arm: &str, paper: &str) -> Comparison {
    let latency = run.row(arm, Mode::Closed, 1.0).latency_ms;
    Comparison {
        what: format!("mean latency of `{arm}`"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: latency.map_or_else(|| "not measured".to_owned(), |q| format!("{:.3} ms", q.mean)),
        reached: None,
    }
}

/// The most that an arm got through, over all rates of its open loop.
fn most(run: &Run, arm: &str, paper: &str) -> Comparison {
    let cells = run.cells.iter().filter(|cell| cell.arm == arm && cell.mode == Mode::Open);
    let rate = cells.map(|cell| float(cell.good()) / cell.answered).fold(0.0, f64::max);
    Comparison {
        what: format!("open loop's maximum of `{arm}`"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: format!("{rate:.0}/s"),
        reached: None,
    }
}

/// fork and exec.
struct Started(PathBuf);

impl Target for Started {
    fn name(&self) -> &'static str {
        PROCESS
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(first_byte(Command::new(&self.0)))
    }
}
