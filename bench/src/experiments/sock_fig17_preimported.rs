//! SOCK, Figure 17: calls to distinct functions of one library, with no cache and with all, the parts of what a call
//! without caches waits for printed apart (Figure 7).

use anyhow::Result;

use super::Measured;
use crate::baselines::installers::{Around, Installer, Step};
use crate::calls::{self, Calls, REST};
use crate::libraries::{self, Copies, Library};
use crate::load::{Target, Until, closed};
use crate::plot::{Line, Plot};
use crate::run::{Comparison, Run};
use crate::sample::{float, median};
use crate::stage::{NO_ZYGOTE, NOTHING_KEPT, Stage};

pub(super) const FIGURE: &str = "sock_fig17";
pub(super) const TITLE: &str = "SOCK Figure 17: sequential calls to distinct functions of one library, twenty libraries, no caches and all caches";

/// Copies of each function that are called before.
const WARMERS: usize = 3;

/// How many times faster all caches are to be than none, with pip.
const TARGET: f64 = 100.0;

const IMPORT: &str = "import";
const ALL: &str = "all caches";

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (rounds, imports, calls) = stage.amount((2, 3, 10), (1, 1, 3));
    let libraries = if stage.quick { libraries::some()? } else { libraries::all()? };
    let copies = WARMERS + rounds as usize * calls;
    run.method = vec![
        "libraries: bench/libraries, current versions, each with all that it needs; functions that import it and do nothing".to_owned(),
        "no caches: `pip download` from a loopback index, `pip install` of that into an empty directory, byte-compiled, then a call to a worker without zygotes and without kept instances, which imports; medians added up. The installers run outside any container, in their favour".to_owned(),
        "uv: the same with `uv pip install --compile-bytecode`, its cache empty, and once more from the cache that this filled".to_owned(),
        format!("`{IMPORT}`: the install cache alone: the same call without its installation"),
        format!("`{ALL}`: the worker as it comes, distinct functions, each called once since it started, {WARMERS} others of the same lock called before"),
    ];
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let kind = Copies::of(&libraries, &wheels).await?;
    let template = stage.template(&kind, copies * libraries.len()).await?;
    let around = Around::of(&template, kind.index(), &stage.rootfs, stage.scratch())?;
    run.method.push(format!("installers: {}", around.versions().await?));
    let import = stage.worker_on(&template, IMPORT, &[NO_ZYGOTE, NOTHING_KEPT], 1).await?;
    let worker = stage.worker_on(&template, ALL, &[], 1).await?;
    let mut arms = Vec::new();
    for library in &libraries {
        calls::warm(&worker, library, 0..WARMERS).await?;
        let installers = Step::ALL.map(|step| {
            Installer::new(name(library, step.label()), step, &library.requirement, &around)
        });
        let importing =
            Calls::new(&import, name(library, IMPORT), REST, library.functions(WARMERS..copies));
        let cached =
            Calls::new(&worker, name(library, ALL), REST, library.functions(WARMERS..copies));
        // Files read once: no arm pays for the disk.
        importing.shoot(0).await?;
        arms.push((installers, importing, cached));
    }
    worker.settle().await?;
    stage.rest(&mut run).await?;
    for round in 0..rounds {
        for (installers, importing, cached) in &arms {
            for installer in installers {
                run.add(closed(installer, round, 1, Until::Calls(1)).await?);
            }
            run.add(closed(importing, round, 1, Until::Calls(imports)).await?);
            run.add(closed(cached, round, 1, Until::Calls(calls)).await?);
        }
    }
    import.stop().await?;
    worker.stop().await?;
    let parts: Vec<_> = libraries.iter().map(|library| Parts::of(&run, library)).collect();
    run.comparisons = parts.iter().flat_map(Parts::comparisons).collect();
    run.comparisons.push(overall(&parts));
    let plot = plot(&parts);
    Ok(Measured { run, plots: vec![("plot", plot)] })
}

fn name(library: &Library, part: &str) -> String {
    format!("{}, {part}", library.name)
}

/// Median milliseconds of one library.
struct Parts {
    library: String,
    download: f64,
    install: f64,
    uv: f64,
    uv_cached: f64,
    import: f64,
    all: f64,
}

impl Parts {
    fn of(run: &Run, library: &Library) -> Self {
        let middle = |part: &str| {
            let samples = run.answered(&name(library, part));
            median(&samples.iter().map(|sample| sample.latency_ms).collect::<Vec<_>>())
        };
        Self {
            library: library.requirement.clone(),
            download: middle(Step::PipDownload.label()),
            install: middle(Step::PipInstall.label()),
            uv: middle(Step::Uv.label()),
            uv_cached: middle(Step::UvCached.label()),
            import: middle(IMPORT),
            all: middle(ALL),
        }
    }

    fn with_pip(&self) -> f64 {
        self.download + self.install + self.import
    }

    fn with_uv(&self) -> f64 {
        self.uv + self.import
    }

    fn comparisons(&self) -> [Comparison; 2] {
        let times = self.with_pip() / self.all;
        let pip = Comparison {
            what: format!("{}: pip, no caches over all caches", self.library),
            paper: "≥ 45×".to_owned(),
            target: format!("≥ {TARGET}×"),
            ours: format!(
                "{times:.0}×: download {:.0} + install {:.0} + import {:.0} ms over {:.2} ms",
                self.download, self.install, self.import, self.all
            ),
            reached: times.is_finite().then_some(times >= TARGET),
        };
        let uv = Comparison {
            what: format!("{}: uv, its cache empty; full; import alone", self.library),
            paper: String::new(),
            target: String::new(),
            ours: format!(
                "{:.0}×; {:.0}×; {:.0}×: uv {:.0} or {:.0} + import {:.0} ms",
                self.with_uv() / self.all,
                (self.uv_cached + self.import) / self.all,
                self.import / self.all,
                self.uv,
                self.uv_cached,
                self.import
            ),
            reached: None,
        };
        [pip, uv]
    }
}

fn overall(parts: &[Parts]) -> Comparison {
    let times: Vec<_> = parts.iter().map(|part| part.with_pip() / part.all).collect();
    let mean = |of: fn(&Parts) -> f64| parts.iter().map(of).sum::<f64>() / float(parts.len());
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    Comparison {
        what: "all libraries, pip: least and median ratio; means of download, install, import"
            .to_owned(),
        paper: "1.6 s, 2.3 s, 0.107 s".to_owned(),
        target: format!("least ≥ {TARGET}×"),
        ours: format!(
            "{least:.0}×, {:.0}×; {:.2} s, {:.2} s, {:.3} s",
            median(&times),
            mean(|part| part.download) / 1e3,
            mean(|part| part.install) / 1e3,
            mean(|part| part.import) / 1e3
        ),
        reached: least.is_finite().then_some(least >= TARGET),
    }
}

fn plot(parts: &[Parts]) -> Plot {
    let mut sorted: Vec<&Parts> = parts.iter().collect();
    sorted.sort_by(|a, b| a.with_pip().total_cmp(&b.with_pip()));
    let line = |name: &str, of: fn(&Parts) -> f64, labelled: bool| {
        let points = (1usize..).zip(&sorted).map(|(at, part)| {
            let library = part.library.split("==").next().unwrap_or_default();
            let label = if labelled { library.to_owned() } else { String::new() };
            (float(at), of(part), label)
        });
        Line { name: name.to_owned(), points: points.collect(), cited: false }
    };
    Plot {
        title: TITLE.to_owned(),
        x: "libraries, by time without caches".to_owned(),
        y: "ms, median".to_owned(),
        log_x: false,
        log_y: true,
        room: 1.4,
        lines: vec![
            line("no caches, pip", Parts::with_pip, true),
            line("no caches, uv", Parts::with_uv, false),
            line("install cache alone", |part| part.import, false),
            line("all caches", |part| part.all, false),
        ],
    }
}
