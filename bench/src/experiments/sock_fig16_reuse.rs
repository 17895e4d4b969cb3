//! SOCK, Figure 16: creating a container from a zygote against unpausing one, by number of clients.

use std::time::Duration;

use anyhow::Result;

use super::resumes::{Frozen, Resumes};
use super::{Measured, sweep};
use crate::load::Target;
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::Mode;
use crate::stage::{NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "sock_fig16";
pub(super) const TITLE: &str =
    "SOCK Figure 16: a new container from a zygote against a paused one, by number of clients";

const CREATE: &str = "create from zygote";
const UNPAUSE: &str = "unpause";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let title = format!(
        "{TITLE} ({} processors here, 8 in the paper)",
        std::thread::available_parallelism()?
    );
    let mut run = Run::new(FIGURE, &title);
    run.method = vec![
        "closed loops in interleaved rounds over HTTP".to_owned(),
        format!(
            "`{CREATE}`: 2000 functions called in turn, each call a new sandbox that is destroyed afterwards"
        ),
        format!(
            "`{UNPAUSE}`: each client has a function of its own; before each call the freezer of its instance reads frozen, and waiting for that is not part of the call, but of the throughput and the processor time"
        ),
    ];
    let levels = stage.amount(&[1, 2, 5, 10, 15, 20][..], &[1, 10][..]);
    let most = levels.last().copied().unwrap_or(1);
    let create = stage.worker(CREATE, &[NOTHING_KEPT], most).await?;
    let kept = stage.worker(UNPAUSE, &[], most).await?;
    let resumes = Resumes::prepare(&kept, UNPAUSE, 0, most, Duration::ZERO).await?;
    let unpause = Frozen(&resumes);
    stage.rest(&mut run).await?;
    let arms: [&dyn Target; 2] = [&create, &unpause];
    let (rounds, time) = stage.amount((5, Duration::from_secs(3)), (1, Duration::from_millis(300)));
    sweep(&mut run, &arms, levels, rounds, time).await?;

    run.method.push(resumes.proof());
    run.comparisons = vec![latency(&run, CREATE, "32 ms"), latency(&run, UNPAUSE, "3 ms")];
    let rows = run.rows();
    let line = |arm: &&dyn Target| {
        let rows = rows.iter().filter(|row| row.arm == arm.name() && row.mode == Mode::Closed);
        let points =
            rows.filter_map(|row| Some((row.level, row.latency_ms.as_ref()?.mean, String::new())));
        Line { name: arm.name().to_owned(), points: points.collect(), cited: false }
    };
    let mut lines: Vec<_> = arms.iter().map(line).collect();
    let cited =
        vec![(10.0, 32.0, "create, paper".to_owned()), (10.0, 3.0, "unpause, paper".to_owned())];
    lines.push(Line { name: "the paper's, 8 cores".to_owned(), points: cited, cited: true });
    let plot = Plot {
        title,
        x: "clients".to_owned(),
        y: "mean latency, ms".to_owned(),
        log_x: false,
        log_y: true,
        room: 1.3,
        lines,
    };
    create.stop().await?;
    kept.stop().await?;
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn latency(run: &Run, arm: &str, paper: &str) -> Comparison {
    let row = run.row(arm, Mode::Closed, 10.0);
    let ours = row
        .latency_ms
        .map(|q| format!("{:.2} ms mean, {:.2} p50, {:.2} p99", q.mean, q.p50, q.p99));
    Comparison {
        what: format!("latency of `{arm}`, 10 at a time"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: ours.unwrap_or_else(|| "not measured".to_owned()),
        reached: None,
    }
}
