//! What the engine tells the metrics.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{EngineConfig, Handler, ZygotePolicy};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use world::{World, eventually, handler, packaged};

/// Runs on one thread, since the recorder belongs to it; gives back all measures by name and labels.
fn measured(test: impl Future<Output = ()>) -> BTreeMap<String, DebugValue> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(test));
    let measures = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let labels = key.key().labels().map(|label| format!("{}={}", label.key(), label.value()));
        (format!("{}{{{}}}", key.key().name(), labels.collect::<Vec<_>>().join(",")), value)
    });
    measures.collect()
}

#[test]
fn calls_stages_caches_sandboxes_and_memory_are_told_to_the_metrics() {
    let measures = measured(async {
        let zygotes = ZygotePolicy::PerLock;
        let world = World::new(EngineConfig { zygotes, ..EngineConfig::default() });
        let echo: Arc<Handler> = Arc::new(packaged("h", "echo", "numpy", &["numpy"]));
        world.call(&echo).await.result.unwrap();
        world
            .until("its zygote is there and it is paused", |c| c.zygotes == 2 && c.paused == 1)
            .await;
        world.call(&echo).await.result.unwrap();
        world
            .call(&Arc::new(packaged("i", "raise", "numpy", &["numpy"])))
            .await
            .result
            .unwrap_err();
        world.call(&Arc::new(handler("j", "exit:1"))).await.result.unwrap_err();
        eventually("all is weighed", || world.engine.status().instances.idle_bytes == 2 << 20)
            .await;
        world.engine.status();
    });
    let count = |name: &str| match measures.get(name) {
        Some(DebugValue::Counter(count)) => *count,
        other => panic!("{name}: {other:?} in {:?}", measures.keys()),
    };
    let gauge = |name: &str| match measures.get(name) {
        Some(DebugValue::Gauge(value)) => value.0,
        other => panic!("{name}: {other:?} in {:?}", measures.keys()),
    };
    assert_eq!(count("lambswool_calls_total{start=cold,outcome=done}"), 1);
    assert_eq!(count("lambswool_calls_total{start=resume,outcome=done}"), 1);
    assert_eq!(count("lambswool_calls_total{start=fork,outcome=raised}"), 1);
    assert_eq!(count("lambswool_calls_total{start=fork,outcome=died}"), 1);
    assert_eq!(count("lambswool_cache_total{cache=handler,result=hit}"), 1);
    assert_eq!(count("lambswool_cache_total{cache=handler,result=miss}"), 3);
    assert_eq!(count("lambswool_cache_total{cache=import,result=hit}"), 2);
    assert_eq!(count("lambswool_cache_total{cache=import,result=miss}"), 1);
    assert!((gauge("lambswool_sandboxes{kind=instance,state=idle}") - 2.0).abs() < 0.1);
    assert!((gauge("lambswool_sandboxes{kind=zygote,state=ready}") - 2.0).abs() < 0.1);
    assert!((gauge("lambswool_memory_bytes{kind=idle-instance}") - f64::from(2 << 20)).abs() < 0.1);
    for stage in ["admit", "handler_cache", "import_cache", "fork", "load", "call", "park"] {
        let histogram = measures.get(&format!("lambswool_stage_seconds{{stage={stage}}}"));
        assert!(
            matches!(histogram, Some(DebugValue::Histogram(values)) if !values.is_empty()),
            "{stage}"
        );
    }
}
