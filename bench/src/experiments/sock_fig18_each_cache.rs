//! SOCK, Figure 18: each cache by itself, django, a hundred functions called at random.

use anyhow::Result;

use super::{Measured, shares, take_turns};
use crate::baselines::installers::{Around, Installer, Step};
use crate::calls::{Calls, REST};
use crate::libraries::{self, Copies, Library};
use crate::load::{Pending, Shot, Target};
use crate::run::{Comparison, Run};
use crate::sample::median;
use crate::stage::{NO_ZYGOTE, NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "sock_fig18";
pub(super) const TITLE: &str = "SOCK Figure 18: no cache, each cache by itself, all of them; 100 functions of django at random";

const NONE: &str = "no cache";
const HANDLER: &str = "handler cache";
const INSTALL: &str = "install cache";
const IMPORT: &str = "import cache";
const ALL: &str = "all caches";

/// Memory of the caches of an arm, and half of it.
const MEMORY: (&str, &str) = ("400MiB", "200MiB");

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let title = format!("{TITLE}, {} of memory, the slow arms sampled", MEMORY.0);
    let mut run = Run::new(FIGURE, &title);
    let functions = stage.amount(100, 6);
    // Calls of a round: with nothing, with the handler cache alone, with the others.
    let (rounds, (none, handler, others)) = stage.amount((10, (1, 4, 20)), (1, (1, 2, 6)));
    let all = rounds as usize * others;
    run.method = vec![
        format!(
            "one task calls {functions} functions that import django and do nothing, in one random order for all arms; arms take turns in rounds of {others} calls, of {handler} (`{HANDLER}`) and {none} (`{NONE}`), which are slow"
        ),
        format!(
            "`{NONE}` and `{HANDLER}`: a call that finds no kept instance waits for `pip download` and `pip install`, byte-compiled, from a loopback index as well; the installers run outside any container, in their favour"
        ),
        format!(
            "`{INSTALL}`: a fresh interpreter imports in each call. `{IMPORT}`: zygotes, nothing kept. Nobody has a warm start: first calls are among those shown"
        ),
        format!(
            "memory: {} for kept instances (`{HANDLER}`) or zygotes (`{IMPORT}`); {} for each (`{ALL}`)",
            MEMORY.0, MEMORY.1
        ),
    ];
    let library = Library::named("django")?;
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let kind = Copies::of(std::slice::from_ref(&library), &wheels).await?;
    let template = stage.template(&kind, functions).await?;
    let around = Around::of(&template, kind.index(), &stage.rootfs, stage.scratch())?;
    run.method.push(format!("installers: {}", around.versions().await?));
    let fresh = stage.worker_on(&template, INSTALL, &[NO_ZYGOTE, NOTHING_KEPT], 1).await?;
    let kept = ("handler_cache_bytes", MEMORY.0);
    let kept = stage.worker_on(&template, HANDLER, &[NO_ZYGOTE, kept], 1).await?;
    let zygotes = ("zygote_bytes", MEMORY.0);
    let importing = stage.worker_on(&template, IMPORT, &[NOTHING_KEPT, zygotes], 1).await?;
    let both = [("zygote_bytes", MEMORY.1), ("handler_cache_bytes", MEMORY.1)];
    let everything = stage.worker_on(&template, ALL, &both, 1).await?;
    stage.rest(&mut run).await?;

    let mut random = fastrand::Rng::with_seed(18);
    let order: Vec<usize> = (0..all).map(|_| random.usize(..functions)).collect();
    let calls = |worker, name: &str| {
        Calls::new(worker, name.to_owned(), REST, library.functions(order.iter().copied()))
    };
    let steps = [Step::PipDownload, Step::PipInstall]
        .map(|step| Installer::new(step.label().to_owned(), step, &library.requirement, &around));
    let nothing = Installed { calls: calls(&fresh, NONE), steps: &steps };
    let handlers = Installed { calls: calls(&kept, HANDLER), steps: &steps };
    let (installed, imported) = (calls(&fresh, INSTALL), calls(&importing, IMPORT));
    let cached = calls(&everything, ALL);
    let arms: [(&dyn Target, usize); 5] = [
        (&nothing, none),
        (&handlers, handler),
        (&installed, others),
        (&imported, others),
        (&cached, others),
    ];
    take_turns(&mut run, &arms, rounds).await?;
    run.comparisons = arms.iter().map(|(arm, _)| comparison(&run, arm.name())).collect();
    let plot = shares(&run, arms.iter().map(|(arm, _)| arm.name()), 10.0);
    for worker in [fresh, kept, importing, everything] {
        worker.stop().await?;
    }
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn comparison(run: &Run, arm: &str) -> Comparison {
    let samples = run.answered(arm);
    let times: Vec<f64> = samples.iter().map(|sample| sample.latency_ms).collect();
    let hits = samples.iter().filter(|sample| sample.start == "resume").count();
    let paper = match arm {
        NONE => "seconds",
        HANDLER => "bimodal, mostly misses",
        INSTALL => "consistent, slower than 20 ms",
        IMPORT => "consistent, around 20 ms",
        _ => "better than each alone",
    };
    Comparison {
        what: format!("`{arm}`: median; calls that found a kept instance"),
        paper: paper.to_owned(),
        target: String::new(),
        ours: format!("{:.2} ms; {hits} of {}", median(&times), samples.len()),
        reached: None,
    }
}

/// Calls to a worker as if it had no install cache: a sandbox that is made waits for an installation.
struct Installed<'a> {
    calls: Calls<'a>,
    steps: &'a [Installer<'a>],
}

impl Target for Installed<'_> {
    fn name(&self) -> &str {
        self.calls.name()
    }

    fn shoot(&self, client: usize) -> Pending<'_, Shot> {
        Box::pin(async move {
            let mut shot = self.calls.shoot(client).await?;
            if shot.start != "resume" {
                // Before the sandbox, were it real; the sum is the same.
                for step in self.steps {
                    shot.first = step.shoot(client).await?.first;
                }
            }
            Ok(shot)
        })
    }

    fn before(&self, client: usize) -> Pending<'_, ()> {
        Box::pin(async move {
            for step in self.steps {
                step.before(client).await?;
            }
            Ok(())
        })
    }

    fn settle(&self) -> Pending<'_, ()> {
        self.calls.settle()
    }
}
