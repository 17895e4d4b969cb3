//! HyperFork, figure 2: how long a clone takes to its first answer, by the memory that its origin has touched.
//!
//! Against the same guest started anew, which touches that memory itself; and, since that guest is not what anybody waits
//! for, Python that has imported numpy. Two ways of cloning: a sealed file that each clone maps, and the paper's own, a
//! fork of the monitor, on small pages and on huge ones.

use anyhow::Result;
use microvm::machine::Hypervisor;

use super::{Measured, at_least, at_most, on_kvm, take_turns};
use crate::baselines::first_byte;
use crate::guests::{Forking, Frozen, Guest, Point, Program, Way, build, on_the_host, python};
use crate::libraries;
use crate::load::{Pending, Shot, Target};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::{Mode, float};
use crate::stage::Stage;

pub(super) const FIGURE: &str = "hyperfork_fig2";
pub(super) const TITLE: &str = "From a prepared guest to its clone's first answer, by touched memory: file mapped privately, fork of the monitor, started anew";

/// Megabytes: the paper's sizes, and one below.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 2048];

/// Touches memory, then answers each byte of its channel.
const TOUCHES: &str = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
    int main(int count, char **words) { long size = atol(words[1]) << 20; char c;\n\
    char *all = mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (all == MAP_FAILED) return 1;\n\
    for (long at = 0; at < size; at += 4096) all[at] = at >> 12 | 1;\n\
    while (read(3, &c, 1) == 1) write(3, \"x\", 1); return 0; }\n";

const NUMPY_START: &str = "Python + numpy, started anew";
const NUMPY_CLONE: &str = "Python + numpy, clone";
const NUMPY_HOST: &str = "Python + numpy, process of the host";

const CLONE: &str = "clone of a file";
const FORK: &str = "fork";
const HUGE: &str = "fork, huge pages";
const ANEW: &str = "started anew";

/// The paper's milliseconds, as far as its text and figure tell them.
const PAPER_FORK: [(usize, f64); 2] = [(128, 4.4), (2048, 19.2)];
const PAPER_BOOT: [(usize, f64); 2] = [(128, 552.0), (2048, 598.0)];

fn of_size(way: &str, size: usize) -> String {
    format!("{way}, {size} MB")
}

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    on_kvm(&mut run);
    run.method = vec![
        format!(
            "`{CLONE}`: a sealed file, held on huge pages, mapped privately: machine, processor, mapping, one byte in and one byte out; its destruction is in the throughput only. In the load generator's own process, without jail, HTTP or worker"
        ),
        format!(
            "`{FORK}`: HyperFork to the letter: a monitor of one thread and one guest in anonymous memory saves the processor, forks, and the new process makes a machine around the same memory; timed by the monitor itself until the clone's guest has answered. The stages say when `fork` returned to the original, and when the clone had its machine"
        ),
        format!(
            "`{ANEW}`: loading the program, which then touches its memory; no kernel boots, so it is less than the paper's"
        ),
        format!(
            "`{NUMPY_START}`: interpreter and `import numpy` in a guest, beside `{NUMPY_HOST}`: the same interpreter, library and bytecode, started by the load generator; either sees numpy and no other package"
        ),
    ];
    let dir = stage.scratch().join("touches");
    build(&dir, TOUCHES, &[])?;
    let numpy = Numpy::prepare(stage).await?;
    let sizes = stage.amount(&SIZES[..], &SIZES[..2]);
    stage.rest(&mut run).await?;
    let (rounds, calls, few) = stage.amount((5, 60, 2), (2, 5, 2));
    for &size in sizes {
        // One size at a time: each holds its memory, in three guests.
        let arguments = vec![size.to_string()];
        let program = Program::built(&dir, &arguments);
        let frozen = Frozen::make(&program, Point::Rehearsed)?.learned()?;
        let clone = Guest::new(of_size(CLONE, size), Way::Clone(frozen));
        let fork = Forking::start(of_size(FORK, size), &dir, &arguments, false).await?;
        let huge = Forking::start(of_size(HUGE, size), &dir, &arguments, true).await?;
        let anew = Way::Start(Box::new(Hypervisor::open()?), program, 0);
        let anew = Guest::new(of_size(ANEW, size), anew);
        let arms: [(&dyn Target, usize); 4] =
            [(&clone, calls), (&fork, calls), (&huge, calls), (&anew, few)];
        take_turns(&mut run, &arms, rounds).await?;
    }
    take_turns(&mut run, &numpy.arms((calls, few * 4)), rounds).await?;
    run.comparisons = compare(&run);
    let line = |way: &str| Line {
        name: way.to_owned(),
        points: sizes
            .iter()
            .map(|size| (float(*size), p50(&run, &of_size(way, *size)), String::new()))
            .collect(),
        cited: false,
    };
    let cited = |name: &str, points: [(usize, f64); 2]| Line {
        name: name.to_owned(),
        points: points.map(|(size, ms)| (float(size), ms, String::new())).to_vec(),
        cited: true,
    };
    let mut lines: Vec<Line> = [CLONE, FORK, HUGE, ANEW].map(line).into();
    lines.push(cited("paper: fork", PAPER_FORK));
    lines.push(cited("paper: boot", PAPER_BOOT));
    let plot = Plot {
        title: TITLE.to_owned(),
        x: format!("touched memory, MB ({})", run.here),
        y: "median, ms".to_owned(),
        log_x: true,
        log_y: true,
        room: 1.2,
        lines,
    };
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn p50(run: &Run, arm: &str) -> f64 {
    run.row(arm, Mode::Closed, 1.0).latency_ms.map_or(f64::NAN, |latency| latency.p50)
}

fn compare(run: &Run) -> Vec<Comparison> {
    let below = |way: &str, size: usize, paper: &str, target: f64| {
        let arm = of_size(way, size);
        let told = at_most(&format!("`{arm}`, p50"), p50(run, &arm), " ms", target);
        Comparison { paper: paper.to_owned(), ..told }
    };
    let beside = |way: &str, size: usize, paper: &str| Comparison {
        target: String::new(),
        reached: None,
        ..below(way, size, paper, f64::INFINITY)
    };
    let (start, clone, host) = (p50(run, NUMPY_START), p50(run, NUMPY_CLONE), p50(run, NUMPY_HOST));
    let times = "full start of Python + numpy in the guest over a clone of it";
    vec![
        below(CLONE, 64, "", 0.8),
        below(CLONE, 1024, "", 1.5),
        beside(FORK, 128, "4.4 ms"),
        beside(HUGE, 128, "4.4 ms"),
        beside(ANEW, 128, "552 ms (boots a kernel)"),
        Comparison { paper: "~100×".to_owned(), ..at_least(times, start / clone, "×", 100.0) },
        at_most("the same start over that of a process of the host", start / host, "×", 4.0),
    ]
}

/// Python that has imported numpy.
struct Numpy {
    anew: Guest,
    clone: Guest,
    host: OnTheHost,
}

impl Numpy {
    async fn prepare(stage: &Stage) -> Result<Self> {
        let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
        let packages = libraries::site(&wheels, &stage.rootfs, &["numpy"]).await?;
        let script = "import numpy\nanswer(lambda: None)\n";
        let program = python(&stage.rootfs, &packages, script, 1);
        let clone = Way::Clone(Frozen::make(&program, Point::Rehearsed)?.learned()?);
        let anew = Way::Start(Box::new(Hypervisor::open()?), program, 0);
        Ok(Self {
            anew: Guest::new(NUMPY_START, anew),
            clone: Guest::new(NUMPY_CLONE, clone),
            host: OnTheHost { rootfs: stage.rootfs.clone(), packages },
        })
    }

    fn arms(&self, (many, few): (usize, usize)) -> [(&dyn Target, usize); 3] {
        [(&self.anew, few), (&self.clone, many), (&self.host, few)]
    }
}

/// A process that imports numpy and says one byte.
struct OnTheHost {
    rootfs: crate::baselines::rootfs::Rootfs,
    packages: std::path::PathBuf,
}

impl Target for OnTheHost {
    fn name(&self) -> &'static str {
        NUMPY_HOST
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        let script = "import numpy\nos.write(1, b'x')";
        Box::pin(first_byte(on_the_host(&self.rootfs, &self.packages, script)))
    }
}
