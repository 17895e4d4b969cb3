//! The engine's own import cache on fake zygotes, in virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use engine::{
    Distribution, EngineConfig, Handler, HandlerId, ImportCache, ImportTime, PackageStore,
    ZygotePolicy, ZygoteTree,
};
use sandbox::fake::{FakeProvider, FakeSettings};
use sandbox::wire::Convention;
use sandbox::{Kind, Layer, Limits, Network, Pending, PythonSpec, Reset};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::workload::{Function, Workload, ZYGOTE_BYTES};

/// Time between two starts.
const INTERVAL: Duration = Duration::from_millis(100);

/// What one start paid, and what the zygotes weighed then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Milliseconds of imports that it waited for: those of a zygote that was made for it, and its own.
    pub(crate) residual: f64,
    /// It imported nothing itself, and waited for nothing.
    pub(crate) hit: bool,
    pub(crate) bytes: u64,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) policy: ZygotePolicy,
    pub(crate) budget: u64,
    pub(crate) seed: Option<ZygoteTree>,
    pub(crate) half_life: f64,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Run {
    /// The starts that count, in order.
    pub(crate) starts: Vec<Start>,
    /// Zygotes made while they came, and the milliseconds of imports that took.
    pub(crate) made: usize,
    pub(crate) made_ms: f64,
    pub(crate) zygotes: usize,
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
        let mut starts = Vec::with_capacity(judged.len());
        let mut handlers: HashMap<*const Function, Handler> = HashMap::new();
        let mut next = Instant::now();
        let (mut made, mut made_ms) = (0, 0.0);
        for (at, function) in warm.iter().chain(judged).enumerate() {
            if at == warm.len() {
                (made, made_ms) = (provider.census().derived_zygotes, provider.derived_ms());
            }
            next = next.max(Instant::now()) + INTERVAL;
            sleep_until(next).await;
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
                let residual = waited + own;
                starts.push(Start { residual, hit: residual < 1.0, bytes });
            }
        }
        let census = provider.census();
        let made_ms = provider.derived_ms() - made_ms;
        let made = census.derived_zygotes - made;
        Ok(Run { starts, made, made_ms, zygotes: census.zygotes })
    })
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
        id: HandlerId(Arc::from(&*name)),
        name,
        tenant: engine::DEFAULT_TENANT.to_owned(),
        kind: Kind::Container,
        reset: Reset::Never,
        python,
        packages: place.clone(),
        distributions: Arc::clone(&function.pins),
        imports: function.direct.clone(),
        code: place.unwrap_or_else(|| unreachable!("it is a layer's name")),
        module: "main".to_owned(),
        function: "handler".to_owned(),
        convention: Convention::Lambda,
        binary: false,
        environment: BTreeMap::new(),
        limits: Limits::default(),
        network: Network::None,
        egress: [].into(),
        timeout: Duration::from_secs(30),
        concurrency: 1,
    }
}
