//! The engine's own import cache on fake zygotes, in virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use engine::{
    Distribution, EngineConfig, Handler, ImportCache, ImportTime, PackageStore, VersionId,
    ZygotePolicy, ZygoteTree,
};
use sandbox::fake::{FakeProvider, FakeSettings, Operation};
use sandbox::wire::Convention;
use sandbox::{Kind, Layer, Limits, Network, Pending, PythonSpec, Reset};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::workload::{Function, Workload, ZYGOTE_BYTES};

/// Time between two starts.
const INTERVAL: Duration = Duration::from_millis(100);

/// For which no start comes, after the last one and when what it had begun has come to its end.
const QUIET: Duration = Duration::from_secs(60);

/// What a zygote takes of a processor beside its imports, as the policy counts it.
const MAKING_MS: f64 = 20.0;

/// What one start paid, and what the zygotes weighed then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Milliseconds of a zygote's imports that it waited for.
    waited: f64,
    /// Milliseconds of its own imports.
    own: f64,
    /// Milliseconds of a processor that making zygotes took from then until the next start, what it waited for included.
    pub(crate) building: f64,
    pub(crate) bytes: u64,
}

impl Start {
    /// Milliseconds of imports that it waited for: those of a zygote that was made for it, and its own.
    pub(crate) fn residual(&self) -> f64 {
        self.waited + self.own
    }

    /// The same with what making zygotes took meanwhile, which counts once where it waited for that.
    pub(crate) fn charged(&self) -> f64 {
        self.waited.max(self.building) + self.own
    }

    /// It imported nothing itself, and waited for nothing.
    pub(crate) fn hit(&self) -> bool {
        self.residual() < 1.0
    }
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) policy: ZygotePolicy,
    pub(crate) budget: u64,
    pub(crate) seed: Option<ZygoteTree>,
    pub(crate) half_life: f64,
}

impl Setting {
    /// Zygotes between a root and the deepest one. What bounds them are kernel uids, which neither SOCK nor Forklift shares
    /// out: our own policy keeps the bound that it has on the real engine, theirs have none.
    fn depth(&self) -> usize {
        match self.policy {
            ZygotePolicy::Paper | ZygotePolicy::Static => usize::MAX,
            _ => EngineConfig::default().zygote_depth,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Run {
    /// The starts that count, in order.
    pub(crate) starts: Vec<Start>,
    /// Zygotes made because of them.
    pub(crate) made: usize,
    pub(crate) zygotes: usize,
    /// Milliseconds of a processor that making zygotes took in a quiet minute after all of them. No start is charged for it.
    pub(crate) quiet_ms: f64,
}

#[derive(Debug)]
struct Directories {
    disk: HashMap<String, u64>,
}

impl PackageStore for Directories {
    fn layer<'a>(&'a self, _: &'a PythonSpec, _: &'a [Distribution]) -> Pending<'a, Layer> {
        Box::pin(async { "packages/some".parse().map_err(|_| sandbox::ProviderError::WardenGone) })
    }

    fn disk_bytes(&self, distribution: &Distribution) -> u64 {
        self.disk.get(&distribution.wheel).copied().unwrap_or(500_000)
    }
}

/// Starts all functions of `warm`, then those of `judged`, once each in their order; tells of the latter.
pub(crate) fn run(
    workload: &Workload,
    setting: &Setting,
    warm: &[&Function],
    judged: &[&Function],
) -> Result<Run> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let settings = FakeSettings { zygote_bytes: ZYGOTE_BYTES, ..FakeSettings::default() };
        let provider = FakeProvider::new(settings);
        provider.record(workload.costs.clone());
        let config = EngineConfig {
            zygotes: setting.policy,
            memory_bytes: u64::MAX,
            zygote_bytes: setting.budget,
            zygote_depth: setting.depth(),
            zygote_half_life: setting.half_life,
            ..EngineConfig::default()
        };
        let cache = ImportCache::new(
            Arc::new(provider.clone()),
            Arc::new(config),
            Some(Arc::new(Directories { disk: workload.disk.clone() })),
            setting.seed.as_ref(),
            TaskTracker::new(),
            CancellationToken::new(),
        );
        let mut starts: Vec<Start> = Vec::with_capacity(judged.len());
        let mut handlers: HashMap<*const Function, Handler> = HashMap::new();
        let mut next = Instant::now();
        let (mut built, mut made) = (0.0, 0);
        for (at, function) in warm.iter().chain(judged).enumerate() {
            next = next.max(Instant::now()) + INTERVAL;
            sleep_until(next).await;
            let before = std::mem::replace(&mut built, building(&provider));
            if let Some(last) = starts.last_mut() {
                last.building = built - before;
            }
            if at == warm.len() {
                made = provider.census().derived_zygotes;
            }
            let known = handlers.len();
            let handler = handlers
                .entry(std::ptr::from_ref(*function))
                .or_insert_with(|| handler(known, function));
            let began = Instant::now();
            let pick = cache.pick(handler).await?;
            let waited = began.elapsed().as_secs_f64() * 1e3;
            let had = pick.zygote().and_then(|id| provider.imported(id)).unwrap_or_default();
            let had: BTreeSet<String> = had.into_iter().collect();
            let new: Vec<String> =
                function.used.iter().filter(|package| !had.contains(*package)).cloned().collect();
            let own = workload.residual(function, &had);
            cache.learn(handler, &pick, new, ImportTime::Load(own));
            if at >= warm.len() {
                let (zygotes, _) = cache.status();
                let bytes = zygotes.iter().map(|zygote| zygote.memory_bytes).sum();
                starts.push(Start { waited, own, building: 0.0, bytes });
            }
        }
        sleep(INTERVAL).await;
        finished(&provider).await;
        let before = std::mem::replace(&mut built, building(&provider));
        if let Some(last) = starts.last_mut() {
            last.building = built - before;
        }
        let census = provider.census();
        let made = census.derived_zygotes - made;
        sleep(QUIET).await;
        let quiet_ms = building(&provider) - built;
        Ok(Run { starts, made, zygotes: census.zygotes, quiet_ms })
    })
}

/// Waits until there is what is being made now.
async fn finished(provider: &FakeProvider) {
    let begun = provider.begun(Operation::Derive);
    let late = Instant::now() + QUIET;
    while (provider.census().derived_zygotes as u64) < begun && Instant::now() < late {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Milliseconds of a processor that making zygotes has taken so far.
#[expect(clippy::cast_precision_loss, reason = "a count of zygotes")]
fn building(provider: &FakeProvider) -> f64 {
    provider.derived_ms() + MAKING_MS * provider.census().derived_zygotes as f64
}

fn handler(number: usize, function: &Function) -> Handler {
    let name = format!("f{number}");
    let layer = |text: &str| text.parse().ok();
    let none: Option<Layer> = None;
    let place = layer("base/b").or(none);
    let python = PythonSpec {
        base: place.clone().unwrap_or_else(|| unreachable!("it is a layer's name")),
        guest: place.clone().unwrap_or_else(|| unreachable!("it is a layer's name")),
        interpreter: "/usr/bin/python3".to_owned(),
    };
    Handler {
        id: VersionId(Arc::from(&*name)),
        name,
        tenant: function::DEFAULT_TENANT.to_owned(),
        kind: Kind::Container,
        reset: Reset::Never,
        python,
        packages: place.clone(),
        distributions: Arc::clone(&function.pins),
        imports: function.direct.clone(),
        code: place.unwrap_or_else(|| unreachable!("it is a layer's name")),
        opt: None,
        module: "main".to_owned(),
        function: "handler".to_owned(),
        convention: Convention::Lambda,
        binary: false,
        environment: BTreeMap::new(),
        sets: Vec::new(),
        import_cache: true,
        own: Vec::new(),
        clashes: Vec::new(),
        entries: None,
        limits: Limits::default(),
        network: Network::None,
        egress: [].into(),
        timeout: Duration::from_secs(30),
        concurrency: 1,
        lambda: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::function;
    use sandbox::fake::Recorded;

    /// `a==1` takes 100 ms to import, `b==1` 50 and `c==1` 25.
    fn workload() -> Workload {
        let cost = |(name, milliseconds): (&str, f64)| {
            let cost = Recorded { milliseconds, bytes: 1 << 20, ..Recorded::default() };
            (name.to_owned(), cost)
        };
        let costs = [("a==1", 100.0), ("b==1", 50.0), ("c==1", 25.0)].map(cost);
        Workload { train: vec![], test: vec![], costs: costs.into(), disk: HashMap::new() }
    }

    fn setting(policy: ZygotePolicy, seed: Option<ZygoteTree>) -> Setting {
        Setting { policy, budget: 1 << 30, seed, half_life: 500.0 }
    }

    #[test]
    fn what_a_start_waited_for_is_charged_once_and_what_was_built_beside_it_as_well() {
        let (workload, one) = (workload(), function(&["a==1", "b==1"]));
        let paper = run(&workload, &setting(ZygotePolicy::Paper, None), &[], &[&one, &one]);
        let starts = paper.unwrap().starts;
        let told: Vec<_> = starts.iter().map(|start| (start.residual(), start.charged())).collect();
        let milliseconds = |at: usize| (told[at].0.round(), told[at].1.round());
        assert_eq!([milliseconds(0), milliseconds(1)], [(150.0, 170.0), (0.0, 0.0)]);
        let node = |packages: &[&str]| ZygoteTree {
            packages: packages.iter().map(|name| (*name).to_owned()).collect(),
            ..ZygoteTree::default()
        };
        let tree = ZygoteTree { children: vec![node(&["a==1", "b==1"])], ..ZygoteTree::default() };
        let fixed = run(&workload, &setting(ZygotePolicy::Static, Some(tree)), &[], &[&one, &one]);
        let starts = fixed.unwrap().starts;
        // The zygote is made beside the first start, which imports everything itself, and the second finds it.
        let charged: f64 = starts.iter().map(Start::charged).sum();
        let residual: f64 = starts.iter().map(Start::residual).sum();
        assert_eq!(((charged - residual).round(), starts[0].residual().round()), (170.0, 150.0));
    }

    #[test]
    fn what_the_last_start_had_begun_is_charged_however_long_it_takes() {
        let mut workload = workload();
        let slow = Recorded { milliseconds: 5000.0, ..Recorded::default() };
        workload.costs.insert("a==1".to_owned(), slow);
        let (packages, one) = (vec!["a==1".to_owned()], function(&["a==1"]));
        let tree = ZygoteTree { packages, ..ZygoteTree::default() };
        let run = run(&workload, &setting(ZygotePolicy::Static, Some(tree)), &[], &[&one]).unwrap();
        let building = run.starts[0].building.round();
        assert_eq!((run.made, building, run.quiet_ms), (1, 5020.0, 0.0));
    }

    #[test]
    fn no_policy_is_charged_for_what_was_built_before_the_judged_starts() {
        let (workload, one) = (workload(), function(&["a==1"]));
        for policy in [ZygotePolicy::Root, ZygotePolicy::Paper, ZygotePolicy::Utility] {
            let warm = vec![&one; 40];
            let run = run(&workload, &setting(policy, None), &warm, &[&one]).unwrap();
            assert_eq!((run.made, run.starts[0].building.round()), (0, 0.0), "{policy:?}");
        }
    }

    #[test]
    fn zygotes_of_others_policies_may_be_as_deep_as_their_trees() {
        let workload = workload();
        let sets = [vec!["a==1"], vec!["a==1", "b==1"], vec!["a==1", "b==1", "c==1"]];
        let functions = sets.map(|set| function(&set));
        let starts: Vec<&Function> = functions.iter().collect();
        let paper = run(&workload, &setting(ZygotePolicy::Paper, None), &[], &starts).unwrap();
        // Each comes from the one before, and imports one package more.
        let waited: Vec<f64> = paper.starts.iter().map(|start| start.residual().round()).collect();
        assert_eq!(waited, [100.0, 50.0, 25.0]);
    }
}
