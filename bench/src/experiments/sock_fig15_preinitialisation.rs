//! SOCK, Figure 15: throughput with and without preinitialised interpreters, by number of clients.

use std::time::Duration;

use anyhow::Result;

use super::{Measured, ratio, sweep};
use crate::load::Target;
use crate::plot::{Line, Plot};
use crate::run::Run;
use crate::sample::Mode;
use crate::stage::{NO_ZYGOTE, NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "sock_fig15";
pub(super) const TITLE: &str = "SOCK Figure 15: no-op calls with and without preinitialised interpreters, by number of clients";

const WITHOUT: &str = "no zygote";
const WITH: &str = "zygote";
const UNPREPARED: &str = "zygote, nothing prepared ahead";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let title = format!(
        "{TITLE} ({} processors here, 8 in the paper)",
        std::thread::available_parallelism()?
    );
    let mut run = Run::new(FIGURE, &title);
    run.method = vec![
        "closed loops in interleaved rounds over HTTP; 2000 functions called in turn, each call a new sandbox that is destroyed afterwards".to_owned(),
        format!("`{UNPREPARED}`: no slot and no spare fork is prepared before the call comes"),
    ];
    let without = stage.worker(WITHOUT, &[NO_ZYGOTE, NOTHING_KEPT], 20).await?;
    let with = stage.worker(WITH, &[NOTHING_KEPT], 20).await?;
    let unprepared =
        stage.worker(UNPREPARED, &[NOTHING_KEPT, ("slots", "0"), ("spares", "0")], 20).await?;
    stage.rest(&mut run).await?;
    let arms: [&dyn Target; 3] = [&without, &with, &unprepared];
    let (levels, rounds, time) = stage.amount(
        (&[1, 2, 5, 10, 15, 20][..], 5, Duration::from_secs(3)),
        (&[1, 10][..], 1, Duration::from_millis(300)),
    );
    sweep(&mut run, &arms, levels, rounds, time).await?;

    let highest = levels.last().copied().unwrap_or(1);
    run.comparisons = vec![
        ratio(&run, (WITH, WITHOUT), highest, "3×", None),
        ratio(&run, (WITH, WITHOUT), 10, "", None),
        ratio(&run, (WITH, WITHOUT), 1, "", None),
        ratio(&run, (UNPREPARED, WITHOUT), highest, "3×", None),
    ];
    let rows = run.rows();
    let line = |arm: &&dyn Target| {
        let rows = rows.iter().filter(|row| row.arm == arm.name() && row.mode == Mode::Closed);
        let points = rows.map(|row| (row.level, row.throughput, String::new()));
        Line { name: arm.name().to_owned(), points: points.collect(), cited: false }
    };
    let plot = Plot {
        title,
        x: "clients".to_owned(),
        y: "calls a second".to_owned(),
        log_x: false,
        log_y: false,
        room: 1.3,
        lines: arms.iter().map(line).collect(),
    };
    without.stop().await?;
    with.stop().await?;
    unprepared.stop().await?;
    Ok(Measured { run, plots: vec![("plot", plot)] })
}
