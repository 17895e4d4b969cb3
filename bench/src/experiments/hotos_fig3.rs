//! "Serverless and Linux" (HotOS '17), figure 3: a program that says one byte, as a process, as a unikernel, as a micro-VM
//! that is cloned or reset, and in runc.
//!
//! The paper's monitor boots a unikernel for each action. Here the same program is also cloned from a frozen machine, and
//! put back in place. Only closed loops: the paper's open loop needs more than the two processors that we have.

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use microvm::hypervisor::Hypervisor;
use tokio::process::Command;

use super::microvm_targets::kvm;
use super::{Measured, distribution, ratio};
use crate::baselines::{first_byte, runc::Runc};
use crate::guests::{Frozen, Guest, Way, build};
use crate::load::{Pending, Shot, Target, Until, closed};
use crate::plot::Plot;
use crate::run::Run;
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hotos_fig3";
pub(super) const TITLE: &str =
    "A program that says one byte: process, unikernel, cloned and reset micro-VM, runc";

const PROCESS: &str = "process";
const COLD: &str = "unikernel, cold";
const CLONE: &str = "micro-VM, clone";
const RESET: &str = "micro-VM, reset";
const RUNC: &str = "runc";

/// On the host it says its byte and ends; as a guest it answers each byte of its channel.
const HELLO: &str = "#include <unistd.h>\n\
    int main(void) { char c; if (read(3, &c, 1) != 1) return write(1, \"x\", 1) != 1;\n\
    do write(3, \"x\", 1); while (read(3, &c, 1) == 1); return 0; }\n";
const UNIKERNEL: &str = "#include \"wool.h\"\n\
    void _start(void) { for (;;) { wool_ready(); wool_send(\"x\", 1); } }\n";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    run.method = vec![
        format!("KVM of this machine: {}", kvm()),
        "latency: until the byte is there; throughput counts the cleaning up, too: the end of the process, the machine's destruction, the reset".to_owned(),
        "the machines are in the load generator's own process, without jail, HTTP or worker; process and runc are started by it".to_owned(),
    ];
    let dir = stage.scratch().join("hello");
    let program = build(&dir, HELLO, &[])?;
    let library = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../guest/unikernel");
    let library = library.to_str().context("the checkout's path is no text")?;
    let bare = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie"];
    let unikernel = build(
        &stage.scratch().join("unikernel"),
        UNIKERNEL,
        &[&bare[..], &["-I", library]].concat(),
    )?;
    let unikernel = std::fs::read(unikernel).context("read the unikernel")?;
    let process = Started(program);
    let cold = Guest::new(COLD, Way::Unikernel(Box::new(Hypervisor::open()?), unikernel));
    let clone = Guest::new(CLONE, Way::Clone(Frozen::make(&dir, &[])?));
    let reset = Guest::new(RESET, Way::Reset(Frozen::make(&dir, &[])?, RefCell::default()));
    let runc = Runc::of(&dir, std::iter::once("/program"), &stage.scratch().join("runc"))?;
    if runc.is_none() {
        run.warnings.push("no runc: it is not installed".to_owned());
    }
    stage.rest(&mut run).await?;
    let (rounds, calls, few) = stage.amount((5, 500, 40), (2, 10, 3));
    for round in 0..rounds {
        let mut arms: Vec<(&dyn Target, usize)> =
            vec![(&process, calls), (&cold, calls), (&clone, calls), (&reset, 4 * calls)];
        arms.extend(runc.iter().map(|runc| (runc as &dyn Target, few)));
        let count = arms.len();
        arms.rotate_left(round as usize % count);
        for (arm, calls) in arms {
            run.add(closed(arm, round, 1, Until::Calls(calls)).await?);
        }
    }
    run.comparisons = vec![
        ratio(&run, (COLD, RUNC), 1, "8×", None),
        ratio(&run, (CLONE, RUNC), 1, "", Some(10.0)),
        ratio(&run, (RESET, RUNC), 1, "", Some(50.0)),
        ratio(&run, (RESET, PROCESS), 1, "0.75× (unikernel)", Some(1.0)),
    ];
    let lines = [PROCESS, COLD, CLONE, RESET, RUNC].map(|arm| distribution(&run, arm));
    let plot = Plot {
        title: TITLE.to_owned(),
        x: "latency, ms".to_owned(),
        y: "share of calls".to_owned(),
        log_x: true,
        log_y: false,
        room: 1.2,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
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
