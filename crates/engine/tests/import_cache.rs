//! The import cache's policies on the whole engine: what is learnt, what is made of it, and who is forked from it.

mod world;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use engine::{
    Distribution, Engine, EngineConfig, Handler, NoSecrets, PackageStore, Packages, Start,
    ZygotePolicy, ZygoteTree,
};
use sandbox::fake::{FakeProvider, FakeSettings, Operation, Recorded};
use sandbox::{Layer, Pending, PythonSpec};
use world::{Lines, World, eventually, handler};

/// Lays out sets as directories named after what they hold, and remembers them.
#[derive(Debug, Default)]
struct Store(Mutex<Vec<Vec<String>>>);

impl PackageStore for Store {
    fn layer<'a>(&'a self, _: &'a PythonSpec, set: &'a [Distribution]) -> Pending<'a, Layer> {
        let names: Vec<String> = set.iter().map(|one| one.wheel.clone()).collect();
        let layer = format!("packages/{}", names.join("+")).parse();
        self.0.lock().unwrap().push(names);
        Box::pin(async move { Ok(layer.unwrap()) })
    }

    fn disk_bytes(&self, _: &Distribution) -> u64 {
        1 << 20
    }
}

/// A world whose engine knows what locks hold. Imports cost as `costs` says: module, milliseconds, what it needs.
fn world(config: EngineConfig, seed: Option<ZygoteTree>, costs: &[(&str, f64, &[&str])]) -> World {
    world_with(config, seed, costs, Arc::new(NoSecrets))
}

/// The same, with secrets.
fn world_with(
    config: EngineConfig,
    seed: Option<ZygoteTree>,
    costs: &[(&str, f64, &[&str])],
    secrets: Arc<dyn engine::SecretStore>,
) -> World {
    let provider = FakeProvider::new(FakeSettings::default());
    let recorded = |(module, milliseconds, needs): &(&str, f64, &[&str])| {
        let needs: Vec<String> = needs.iter().map(|need| (*need).to_owned()).collect();
        // `$B`: a variable that it looks up.
        let (variables, needs): (Vec<String>, Vec<String>) =
            needs.into_iter().partition(|need| need.starts_with('$'));
        let variables =
            variables.iter().map(|name| name.trim_start_matches('$').to_owned()).collect();
        // `?b`: only where there is a b.
        let (likes, needs): (Vec<String>, Vec<String>) =
            needs.into_iter().partition(|need| need.starts_with('?'));
        let likes = likes.iter().map(|like| like.trim_start_matches('?').to_owned()).collect();
        let milliseconds = *milliseconds;
        let cost = Recorded { milliseconds, bytes: 1 << 20, needs, likes, variables };
        ((*module).to_owned(), cost)
    };
    provider.record(costs.iter().map(recorded).collect());
    let lines = Arc::new(Lines::default());
    let packages = Packages { store: Some(Arc::new(Store::default())), seed };
    let sink = Arc::clone(&lines) as Arc<dyn engine::LogSink>;
    let provider_of_engine = Arc::new(provider.clone());
    let engine = Engine::with_stores(provider_of_engine, config, sink, packages, secrets);
    World { provider, engine, lines }
}

fn policy(zygotes: ZygotePolicy) -> EngineConfig {
    EngineConfig { zygotes, handler_cache: false, ..EngineConfig::default() }
}

/// A handler that locked these, each `name==version` with one module of the name, and says it imports `imports`.
fn locked(name: &str, module: &str, packages: &[&str], imports: &[&str]) -> Arc<Handler> {
    let distribution = |package: &&str| {
        let (name, version) = package.split_once("==").unwrap();
        Distribution {
            name: name.to_owned(),
            version: version.to_owned(),
            wheel: package.replace("==", "-"),
            modules: vec![name.to_owned()],
        }
    };
    Arc::new(Handler {
        packages: Some(format!("packages/{name}").parse().unwrap()),
        distributions: packages.iter().map(distribution).collect(),
        imports: imports.iter().map(|import| (*import).to_owned()).collect(),
        ..handler(name, module)
    })
}

/// What the zygote of the last fork has imported, its ancestors' imports included.
fn last_zygote(world: &World) -> Vec<String> {
    let mut modules = world.provider.imported(world.provider.last_forked_from().unwrap()).unwrap();
    modules.sort();
    modules
}

/// The distributions that it sees.
fn last_sees(world: &World) -> Vec<String> {
    let last = world.provider.last_forked_from();
    let status = world.engine.status();
    let zygote = status.zygotes.into_iter().find(|zygote| Some(zygote.id) == last).unwrap();
    let names = zygote.distributions.iter().map(|one| one.split("==").next().unwrap().to_owned());
    names.collect()
}

/// Until the engine has made nothing for a while.
async fn settled(world: &World) {
    let (mut before, mut still) = (None, 0);
    for _ in 0..400 {
        let now = Some((world.provider.begun(Operation::Derive), world.census().zygotes));
        still = if now == before { still + 1 } else { 0 };
        if still == 6 {
            return;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("zygotes are made without end");
}

#[tokio::test]
async fn by_the_papers_policy_a_call_waits_for_its_exact_zygote_which_comes_from_the_best_match() {
    let costs: &[(&str, f64, &[&str])] = &[("a", 5.0, &[]), ("b", 30.0, &[]), ("c", 5.0, &[])];
    let world = world(policy(ZygotePolicy::Paper), None, costs);
    world.call(&locked("one", "echo", &["a==1"], &["a"])).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["a"]);
    let both = locked("both", "uses:a+b", &["a==1", "b==1"], &["a", "b"]);
    assert_eq!(world.call(&both).await.start, Some(Start::Cold), "it had to be made first");
    assert_eq!(last_zygote(&world), ["a", "b"]);
    let status = world.engine.status();
    let newest = status.zygotes.last().unwrap();
    assert_eq!(
        (&newest.imports[..], newest.parent),
        (&["b".to_owned()][..], Some(status.zygotes[1].id))
    );
    world.call(&both).await.result.unwrap();
    assert_eq!(world.census().derived_zygotes, 2, "an exact match is forked from as it is");
}

/// The same with a variable of its own.
fn setting(handler: &Handler, variable: &str) -> Arc<Handler> {
    let id = engine::VersionId(format!("{}-{variable}", handler.id).into());
    let environment = [(variable.to_owned(), "1".to_owned())].into();
    Arc::new(Handler { id, environment, ..handler.clone() })
}

#[tokio::test]
async fn who_sets_a_variable_is_forked_from_nothing_that_has_looked_it_up() {
    for zygotes in [ZygotePolicy::Paper, ZygotePolicy::PerLock, ZygotePolicy::Utility] {
        let world = world(policy(zygotes), None, &[("a", 50.0, &["$MODE"]), ("b", 50.0, &[])]);
        let plain = locked("plain", "uses:a+b", &["a==1", "b==1"], &["a", "b"]);
        world.engine.prepare(&plain).await;
        let (sets, other) = (setting(&plain, "MODE"), setting(&plain, "SPEED"));
        // Often enough that zygotes are worth making.
        for _ in 0..8 {
            world.call(&sets).await.result.unwrap();
            assert!(!last_zygote(&world).contains(&"a".to_owned()), "{zygotes:?}");
            world.call(&plain).await.result.unwrap();
            assert_eq!(last_zygote(&world), ["a", "b"], "{zygotes:?}");
            world.call(&other).await.result.unwrap();
            assert_eq!(last_zygote(&world), ["a", "b"], "{zygotes:?}");
        }
        settled(&world).await;
        world.call(&sets).await.result.unwrap();
        let learns = zygotes == ZygotePolicy::Utility;
        assert_eq!(
            last_zygote(&world),
            if learns { vec!["b"] } else { vec![] },
            "what can be shared"
        );
        settled(&world).await;
        let made = world.provider.begun(Operation::Derive);
        assert_eq!(made, 1 + u64::from(learns), "nothing is made in vain: {zygotes:?}");
    }
}

#[tokio::test]
async fn who_brings_a_module_itself_is_forked_from_nothing_that_has_looked_for_it_in_vain() {
    for zygotes in [ZygotePolicy::Paper, ZygotePolicy::PerLock, ZygotePolicy::Utility] {
        let world = world(policy(zygotes), None, &[("a", 50.0, &["$=import extra"])]);
        let plain = locked("plain", "uses:a", &["a==1"], &["a"]);
        let id = engine::VersionId("brings".into());
        let own = vec!["main".to_owned(), "extra".to_owned()];
        let brings = Arc::new(Handler { id, own, ..Handler::clone(&plain) });
        let root: [&str; 0] = [];
        world.engine.prepare(&plain).await;
        for _ in 0..8 {
            world.call(&plain).await.result.unwrap();
            assert_eq!(last_zygote(&world), ["a"], "{zygotes:?}");
            world.call(&brings).await.result.unwrap();
            assert_eq!(last_zygote(&world), root, "{zygotes:?}");
        }
    }
}

#[tokio::test]
async fn who_locked_two_that_bring_the_same_file_is_forked_from_nothing_that_has_the_hidden_one_alone()
 {
    for zygotes in [ZygotePolicy::Paper, ZygotePolicy::PerLock, ZygotePolicy::Utility] {
        let imports: &[(&str, f64, &[&str])] =
            &[("a", 50.0, &[]), ("b", 50.0, &[]), ("c", 50.0, &[])];
        let world = world(policy(zygotes), None, imports);
        let hidden = locked("hidden", "uses:a+b", &["a==1", "b==1"], &["a", "b"]);
        let both = locked("both", "uses:a+b", &["a==1", "b==1", "c==1"], &["a", "b"]);
        let clashes = vec![("c".to_owned(), "b".to_owned())];
        let both = Arc::new(Handler { clashes, ..Handler::clone(&both) });
        world.engine.prepare(&hidden).await;
        for _ in 0..8 {
            world.call(&hidden).await.result.unwrap();
            assert!(last_zygote(&world).contains(&"b".to_owned()), "{zygotes:?}");
            world.call(&both).await.result.unwrap();
            let sees = last_sees(&world);
            assert!(
                sees.contains(&"c".to_owned()) || !sees.contains(&"b".to_owned()),
                "{zygotes:?}: {sees:?}"
            );
        }
    }
}

#[tokio::test]
async fn who_wants_nothing_imported_ahead_is_forked_from_roots_alone() {
    for zygotes in [ZygotePolicy::Paper, ZygotePolicy::PerLock, ZygotePolicy::Utility] {
        let world = world(policy(zygotes), None, &[("a", 50.0, &[])]);
        let plain = locked("plain", "uses:a", &["a==1"], &["a"]);
        let id = engine::VersionId("alone".into());
        let alone = Arc::new(Handler { id, import_cache: false, ..Handler::clone(&plain) });
        let root: [&str; 0] = [];
        world.engine.prepare(&alone).await;
        for _ in 0..8 {
            world.call(&alone).await.result.unwrap();
            assert_eq!(last_zygote(&world), root, "{zygotes:?}");
        }
        settled(&world).await;
        assert_eq!(world.census().derived_zygotes, 0, "none is made for it: {zygotes:?}");
        world.engine.prepare(&plain).await;
        world.call(&plain).await.result.unwrap();
        assert_eq!(last_zygote(&world), ["a"], "{zygotes:?}");
        world.call(&alone).await.result.unwrap();
        assert_eq!(last_zygote(&world), root, "nor is another's taken: {zygotes:?}");
    }
}

#[tokio::test]
async fn what_is_imported_ahead_is_told_where_something_is_and_only_there() {
    for zygotes in [
        ZygotePolicy::None,
        ZygotePolicy::Root,
        ZygotePolicy::Paper,
        ZygotePolicy::PerLock,
        ZygotePolicy::Static,
        ZygotePolicy::Utility,
    ] {
        let world = world(policy(zygotes), None, &[("a", 50.0, &[])]);
        let plain = locked("plain", "uses:a", &["a==1"], &["a"]);
        let id = engine::VersionId("alone".into());
        let alone = Arc::new(Handler { id, import_cache: false, ..Handler::clone(&plain) });
        let told = async |handler: &Handler| {
            let mut told = false;
            world.engine.prepare_telling(handler, || told = true).await;
            told
        };
        assert!(!told(&alone).await, "it wants none: {zygotes:?}");
        let imports =
            !matches!(zygotes, ZygotePolicy::None | ZygotePolicy::Root | ZygotePolicy::Static);
        assert_eq!(told(&plain).await, imports, "{zygotes:?}");
        settled(&world).await;
        assert_eq!(world.census().derived_zygotes, usize::from(imports), "{zygotes:?}");
        assert!(!told(&plain).await, "it is there: {zygotes:?}");
    }
}

#[tokio::test]
async fn nothing_is_made_again_and_again_for_who_cannot_use_it() {
    for zygotes in
        [ZygotePolicy::Paper, ZygotePolicy::PerLock, ZygotePolicy::Static, ZygotePolicy::Utility]
    {
        let node = ZygoteTree {
            packages: vec!["a==1".to_owned()],
            modules: vec!["a".to_owned()],
            children: Vec::new(),
        };
        let seed = ZygoteTree { children: vec![node], ..ZygoteTree::default() };
        let config = EngineConfig {
            zygote_idle: Duration::from_millis(50),
            idle: Duration::from_millis(10),
            ..policy(zygotes)
        };
        let world = world(config, Some(seed), &[("a", 50.0, &["$MODE"])]);
        let sets = setting(&locked("one", "uses:a", &["a==1"], &["a"]), "MODE");
        for _ in 0..8 {
            world.call(&sets).await.result.unwrap();
            // By some policies unused zygotes are dropped meanwhile.
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        settled(&world).await;
        let made = world.provider.begun(Operation::Derive);
        assert!(made <= 1, "{zygotes:?}: {made}, until it was known");
    }
}

#[tokio::test]
async fn who_goes_through_the_whole_environment_serves_those_who_set_nothing() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("a", 50.0, &["$*"])]);
    let plain = locked("plain", "uses:a", &["a==1"], &["a"]);
    world.engine.prepare(&plain).await;
    world.call(&plain).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["a"]);
    world.call(&setting(&plain, "MODE")).await.result.unwrap();
    assert_eq!(last_zygote(&world), [""; 0]);
}

/// Its secret can be exchanged.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<String>>);

impl engine::SecretStore for Secrets {
    fn read(&self, _: &Handler) -> Result<engine::SecretEnvironment, engine::SecretsUnreadable> {
        let names = self.0.lock().unwrap().clone();
        Ok(names.into_iter().map(|name| (name, "secret".to_owned().into())).collect())
    }

    fn names(&self, _: &Handler) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_secret_is_a_variable_as_any_other_from_the_moment_it_is_set() {
    let secrets = Arc::new(Secrets::default());
    let store = Arc::clone(&secrets) as Arc<dyn engine::SecretStore>;
    let world = world_with(policy(ZygotePolicy::Utility), None, &[("a", 50.0, &["$KEY"])], store);
    let handler = locked("one", "uses:a", &["a==1"], &["a"]);
    world.engine.prepare(&handler).await;
    for (names, from) in [(&[][..], &["a"][..]), (&["KEY"], &[]), (&["OTHER"], &["a"])] {
        *secrets.0.lock().unwrap() = names.iter().map(|name| (*name).to_owned()).collect();
        world.call(&handler).await.result.unwrap();
        assert_eq!(last_zygote(&world), from, "with {names:?}");
    }
}

#[tokio::test]
async fn a_zygote_of_another_version_or_wheel_serves_nobody_else() {
    for zygotes in [ZygotePolicy::Paper, ZygotePolicy::Utility] {
        let world = world(policy(zygotes), None, &[("a", 50.0, &[])]);
        world.engine.prepare(&locked("one", "echo", &["a==1"], &["a"])).await;
        assert_eq!(world.census().derived_zygotes, 1);
        let other = locked("two", "uses:a", &["a==2"], &["a"]);
        // Often enough that a zygote of its own is worth making.
        for _ in 0..8 {
            world.call(&other).await.result.unwrap();
        }
        settled(&world).await;
        world.call(&other).await.result.unwrap();
        let layers: Vec<String> = world
            .engine
            .status()
            .zygotes
            .iter()
            .flat_map(|one| one.distributions.clone())
            .collect();
        assert_eq!(layers, ["a==1", "a==2"], "{zygotes:?}");
        let rebuilt = Handler {
            name: "three".to_owned(),
            ..(*locked("three", "echo", &["a==1"], &["a"])).clone()
        };
        let mut wheels = rebuilt.distributions.to_vec();
        wheels[0].wheel = "a-1-rebuilt".to_owned();
        let rebuilt = Arc::new(Handler { distributions: wheels.into(), ..rebuilt });
        if zygotes == ZygotePolicy::Utility {
            world.call(&rebuilt).await.result.unwrap();
            assert_eq!(last_zygote(&world), [""; 0]);
        }
    }
}

#[tokio::test]
async fn what_a_handler_was_seen_to_import_is_imported_for_its_next_call() {
    let costs: &[(&str, f64, &[&str])] =
        &[("alpha", 10.0, &[]), ("beta.m0", 3.0, &[]), ("beta.m1", 3.0, &[])];
    let world = world(policy(ZygotePolicy::Utility), None, costs);
    let seen = locked(
        "seen",
        "uses:alpha/beta.m0+beta.m1",
        &["alpha==1", "beta==1", "gamma==1"],
        &["gamma"],
    );
    world.call(&seen).await.result.unwrap();
    assert_eq!(last_zygote(&world), [""; 0], "the first call waits for nothing");
    for _ in 0..8 {
        world.call(&seen).await.result.unwrap();
    }
    settled(&world).await;
    world.call(&seen).await.result.unwrap();
    let modules = last_zygote(&world);
    assert!(
        ["alpha", "beta.m0", "beta.m1"]
            .iter()
            .all(|module| modules.contains(&(*module).to_owned())),
        "{modules:?}"
    );
    assert!(world.engine.status().zygotes.iter().any(|zygote| zygote.saved_ms > 0.0));
}

#[tokio::test]
async fn what_handlers_have_in_common_serves_one_that_nobody_has_seen() {
    let costs: &[(&str, f64, &[&str])] =
        &[("base", 100.0, &[]), ("x", 2.0, &[]), ("y", 2.0, &[]), ("z", 2.0, &[])];
    let world = world(policy(ZygotePolicy::Utility), None, costs);
    for (name, own) in
        [("one", "x==1"), ("two", "y==1"), ("one again", "x==1"), ("two again", "y==1")]
    {
        let module = own.split_once("==").unwrap().0;
        let uses = format!("uses:base+{module}");
        let handler = locked(name, &uses, &["base==1", own], &["base", module]);
        world.call(&handler).await.result.unwrap();
        settled(&world).await;
    }
    let unseen = locked("unseen", "echo", &["base==1", "z==1"], &["base", "z"]);
    world.call(&unseen).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["base"]);
    let stranger = locked("stranger", "echo", &["z==1"], &["z"]);
    world.call(&stranger).await.result.unwrap();
    assert_eq!(last_zygote(&world), [""; 0], "it did not lock what they have in common");
}

#[tokio::test]
async fn no_call_waits_for_a_zygote_by_the_default_policy() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("slow", 3000.0, &[])]);
    let slow = locked("slow", "uses:slow", &["slow==1"], &["slow"]);
    let begun = std::time::Instant::now();
    for _ in 0..5 {
        world.call(&slow).await.result.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(1500));
}

#[tokio::test]
async fn a_package_that_leaves_threads_is_learnt_and_the_rest_of_the_set_still_gets_a_zygote() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("good", 40.0, &[])]);
    let mixed =
        locked("mixed", "uses:good+threads", &["good==1", "threads==1"], &["good", "threads"]);
    for _ in 0..4 {
        world.call(&mixed).await.result.unwrap();
        settled(&world).await;
    }
    world.call(&mixed).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["good"]);
    let status = world.engine.status();
    assert!(status.refused.iter().any(|refused| refused.for_good));
    let unfit = world.census().derived_zygotes;
    world.call(&mixed).await.result.unwrap();
    settled(&world).await;
    assert_eq!(world.census().derived_zygotes, unfit, "it is not tried again");
}

#[tokio::test]
async fn zygotes_stay_within_their_budget_whatever_is_called() {
    let costs: Vec<(String, f64)> =
        (0..6).map(|n| (format!("p{n}"), 20.0 + f64::from(n))).collect();
    let costs: Vec<(&str, f64, &[&str])> =
        costs.iter().map(|(name, cost)| (&**name, *cost, &[][..])).collect();
    for zygotes in [ZygotePolicy::Paper, ZygotePolicy::Utility] {
        let budget = 40 << 20;
        let world = world(EngineConfig { zygote_bytes: budget, ..policy(zygotes) }, None, &costs);
        for n in 0..36 {
            let name = format!("p{}", n % 6);
            let package = format!("{name}==1");
            world
                .call(&locked(&name, &format!("uses:{name}"), &[&package], &[&name]))
                .await
                .result
                .unwrap();
            settled(&world).await;
            let used: u64 = world.engine.status().zygotes.iter().map(|one| one.memory_bytes).sum();
            assert!(used <= budget, "{zygotes:?}: {used} of {budget} bytes");
        }
        assert!(world.census().zygotes >= 3);
    }
}

#[tokio::test]
async fn a_given_tree_is_made_as_handlers_come_that_it_may_serve_and_nothing_else() {
    let text = r#"{"packages": [], "children": [{"packages": ["a==1"], "children": [{"packages": ["b==1"], "children": []}]},
        {"packages": ["c==9"], "children": []}]}"#;
    let tree: ZygoteTree = serde_json::from_str(text).unwrap();
    let world =
        world(policy(ZygotePolicy::Static), Some(tree), &[("a", 20.0, &[]), ("b", 20.0, &[])]);
    let both = locked("both", "uses:a+b", &["a==1", "b==1", "c==1"], &["a", "b"]);
    world.call(&both).await.result.unwrap();
    settled(&world).await;
    world.call(&both).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["a", "b"]);
    world.call(&locked("one", "uses:a", &["a==1", "c==1"], &["a"])).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["a"]);
    assert_eq!(world.census().derived_zygotes, 2);
}

/// Nodes of these packages, each below the one before.
fn line(packages: &[&str]) -> ZygoteTree {
    let below = |child: Vec<ZygoteTree>, package: &&str| {
        let packages = vec![(*package).to_owned()];
        vec![ZygoteTree { packages, children: child, ..ZygoteTree::default() }]
    };
    let children = packages.iter().rev().fold(Vec::new(), below);
    ZygoteTree { children, ..ZygoteTree::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_given_tree_is_made_as_it_is_given() {
    let costs: &[(&str, f64, &[&str])] = &[
        ("a", 5.0, &["a.inner"]),
        ("a.inner", 40.0, &[]),
        ("b", 30.0, &["b.inner", "a"]),
        ("b.inner", 5.0, &[]),
        ("c", 5.0, &["b"]),
    ];
    for zygotes in [ZygotePolicy::Static, ZygotePolicy::Utility] {
        let config = EngineConfig { zygote_depth: 3, ..policy(zygotes) };
        let world = world(config, Some(line(&["A==1", "b==1", "c==1"])), costs);
        let all = locked("all", "uses:c", &["a==1", "b==1", "c==1"], &["c"]);
        assert!(world.engine.prepare(&all).await);
        let status = world.engine.status();
        let made: Vec<_> = status.zygotes.iter().map(|one| (one.parent, &*one.imports)).collect();
        let ids: Vec<_> = status.zygotes.iter().map(|one| Some(one.id)).collect();
        let own = ["a", "b", "c"].map(|module| vec![module.to_owned()]);
        let line = [(None, &[][..]), (ids[0], &own[0]), (ids[1], &own[1]), (ids[2], &own[2])];
        assert_eq!(made, line, "{zygotes:?}");
    }
}

#[tokio::test]
async fn a_seeded_worker_makes_no_zygotes_beside_those_that_its_deploys_need() {
    let costs: &[(&str, f64, &[&str])] =
        &[("a", 5.0, &["a.inner"]), ("a.inner", 40.0, &[]), ("b", 30.0, &["a"])];
    let handlers = [
        locked("one", "uses:a", &["a==1"], &["a"]),
        locked("two", "uses:a+b", &["a==1", "b==1"], &["a", "b"]),
    ];
    let first = world(policy(ZygotePolicy::Utility), None, costs);
    for handler in &handlers {
        first.engine.prepare(handler).await;
    }
    let tree = first.engine.zygote_tree();
    assert_eq!(tree.nodes(), 3, "{tree:?}");
    let second = world(policy(ZygotePolicy::Utility), Some(tree.clone()), costs);
    for handler in &handlers {
        assert!(second.engine.prepare(handler).await);
    }
    settled(&second).await;
    assert_eq!(second.engine.zygote_tree(), tree);
}

#[tokio::test]
async fn a_given_tree_is_made_for_handlers_that_nobody_has_called() {
    let costs: &[(&str, f64, &[&str])] = &[("a", 20.0, &[]), ("b", 30.0, &["a"]), ("c", 9.0, &[])];
    let node = |package: &str, children| {
        let packages = vec![package.to_owned()];
        ZygoteTree { packages, children, ..ZygoteTree::default() }
    };
    let children = vec![node("a==1", vec![node("b==1", Vec::new())]), node("c==1", Vec::new())];
    let tree = ZygoteTree { children, ..ZygoteTree::default() };
    let both = locked("both", "uses:a+b", &["a==1", "b==1"], &["a", "b"]);
    let handlers = [Arc::new(handler("none", "echo")), Arc::clone(&both)];
    let world = world(policy(ZygotePolicy::Utility), None, costs);
    world.engine.plant(&tree, &handlers).await;
    let status = world.engine.status();
    let made: Vec<_> = status.zygotes.iter().map(|one| (one.parent, &*one.imports)).collect();
    let ids: Vec<_> = status.zygotes.iter().map(|one| Some(one.id)).collect();
    let own = ["a", "b"].map(|module| vec![module.to_owned()]);
    // No handler locked `c`.
    assert_eq!(made, [(None, &[][..]), (ids[0], &own[0]), (ids[1], &own[1])], "{status:?}");
    assert!(world.engine.prepare(&both).await);
    settled(&world).await;
    assert_eq!(world.engine.status().zygotes.len(), 3, "it needs none of its own beside them");
    let none = self::world(policy(ZygotePolicy::None), None, costs);
    none.engine.plant(&tree, &handlers).await;
    assert_eq!(none.engine.status().zygotes.len(), 0);
}

#[tokio::test]
async fn a_deploy_has_a_zygote_of_its_own_made_when_the_given_one_cannot_be_forked() {
    let both = ["a==1", "threads==1"].map(str::to_owned).to_vec();
    let given = ZygoteTree { packages: both, ..ZygoteTree::default() };
    let seed = ZygoteTree { children: vec![given], ..ZygoteTree::default() };
    let costs: &[(&str, f64, &[&str])] = &[("a", 20.0, &[])];
    let world = world(policy(ZygotePolicy::Utility), Some(seed), costs);
    let handler = locked("one", "uses:a", &["a==1", "threads==1"], &["a"]);
    assert!(world.engine.prepare(&handler).await);
    let status = world.engine.status();
    assert_eq!(status.refused.len(), 1, "{status:?}");
    assert_eq!(status.zygotes.last().unwrap().imports, ["a"]);
}

#[tokio::test]
async fn a_tree_that_was_written_down_grows_again_elsewhere() {
    let costs: &[(&str, f64, &[&str])] = &[("a", 20.0, &[]), ("b", 20.0, &[])];
    let first = world(policy(ZygotePolicy::Utility), None, costs);
    let both = locked("both", "uses:a+b", &["a==1", "b==1"], &["a", "b"]);
    first.engine.prepare(&both).await;
    let tree = first.engine.zygote_tree();
    assert_eq!(tree.nodes(), 2);
    let written = serde_json::to_string(&tree).unwrap();
    let second =
        world(policy(ZygotePolicy::Static), Some(serde_json::from_str(&written).unwrap()), costs);
    second.engine.prepare(&both).await;
    settled(&second).await;
    second.call(&both).await.result.unwrap();
    assert_eq!(last_zygote(&second), ["a", "b"]);
}

#[tokio::test]
async fn a_zygote_that_was_forked_often_enough_is_replaced_without_a_call_noticing() {
    let config = EngineConfig {
        zygote_forks: 5,
        idle: Duration::from_millis(40),
        ..policy(ZygotePolicy::Utility)
    };
    let world = world(config, None, &[("a", 20.0, &[])]);
    let one = locked("one", "uses:a", &["a==1"], &["a"]);
    world.engine.prepare(&one).await;
    let first = world.engine.status().zygotes.last().unwrap().id;
    for _ in 0..8 {
        assert_eq!(world.call(&one).await.start, Some(Start::Fork));
    }
    let replaced = || world.engine.status().zygotes.iter().all(|zygote| zygote.id != first);
    eventually("its successor stands in its place", replaced).await;
    assert_eq!(world.call(&one).await.start, Some(Start::Fork));
    assert_eq!(last_zygote(&world), ["a"]);
    assert_eq!(world.census().zygotes, 2);
}

#[tokio::test]
async fn an_old_interpreter_is_replaced_with_all_that_came_from_it() {
    let age = Duration::from_millis(300);
    let config = EngineConfig {
        zygote_age: age,
        idle: Duration::from_millis(40),
        ..policy(ZygotePolicy::Utility)
    };
    let world = world(config, None, &[("a", 5.0, &[])]);
    let one = locked("one", "uses:a", &["a==1"], &["a"]);
    world.engine.prepare(&one).await;
    let first: Vec<_> = world.engine.status().zygotes.iter().map(|zygote| zygote.id).collect();
    let young = || {
        let now = world.engine.status().zygotes;
        now.len() == 2 && now.iter().all(|zygote| !first.contains(&zygote.id))
    };
    eventually("both are new", young).await;
    let now = world.engine.status().zygotes;
    assert!(
        now.iter().any(|zygote| zygote.parent.is_some()),
        "the new one comes from the new root"
    );
}

/// As one that a provider had on disk meanwhile: it is replaced as if it had lived all that time.
#[tokio::test]
async fn a_zygote_that_was_on_disk_is_as_old_as_it_says() {
    let age = Duration::from_secs(3600);
    let config = EngineConfig {
        zygote_age: age,
        idle: Duration::from_millis(40),
        ..policy(ZygotePolicy::Utility)
    };
    let world = world(config, None, &[("a", 5.0, &[])]);
    world.provider.set(|settings| settings.zygote_age = age - Duration::from_millis(300));
    let one = locked("one", "uses:a", &["a==1"], &["a"]);
    world.engine.prepare(&one).await;
    world.provider.set(|settings| settings.zygote_age = Duration::ZERO);
    let first: Vec<_> = world.engine.status().zygotes.iter().map(|zygote| zygote.id).collect();
    let replaced = || {
        let now = world.engine.status().zygotes;
        now.len() == 2 && now.iter().all(|zygote| !first.contains(&zygote.id))
    };
    eventually("both are new", replaced).await;
}

#[tokio::test]
async fn no_accepted_call_is_lost_while_zygotes_are_killed() {
    let costs: &[(&str, f64, &[&str])] = &[("a", 3.0, &[]), ("b", 3.0, &[])];
    let config =
        EngineConfig { zygote_retry: Duration::from_millis(20), ..policy(ZygotePolicy::Utility) };
    let world = world(config, None, costs);
    let handlers = [
        locked("one", "uses:a", &["a==1"], &["a"]),
        locked("two", "uses:a+b", &["a==1", "b==1"], &["a", "b"]),
    ];
    for round in 0..200 {
        if round % 9 == 4 {
            world.provider.kill_zygotes();
        }
        world.call(&handlers[round % 2]).await.result.unwrap();
    }
    settled(&world).await;
    assert!(world.census().derived_zygotes > 2, "they were made anew");
}

#[tokio::test]
async fn the_first_call_of_a_deployed_function_finds_what_it_declares_imported() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("a", 50.0, &[]), ("b", 30.0, &[])]);
    let one = locked("one", "uses:a", &["a==1", "b==1"], &["a"]);
    world.engine.prepare(&one).await;
    // With its whole lock in sight: what `a` needs of it was not observed yet.
    let zygote = world.engine.status().zygotes.pop().unwrap();
    assert_eq!(
        (&zygote.imports[..], &zygote.distributions[..]),
        (&["a".to_owned()][..], &["a==1".to_owned(), "b==1".to_owned()][..])
    );
    assert_eq!(world.call(&one).await.start, Some(Start::Fork));
    assert_eq!(last_zygote(&world), ["a"]);
    // A second one that declares as much of the same lock needs no other.
    let made = world.census().derived_zygotes;
    world.engine.prepare(&locked("two", "uses:a", &["a==1", "b==1"], &["a"])).await;
    assert_eq!(world.census().derived_zygotes, made);
    // One that declares more is made of it.
    world.engine.prepare(&locked("three", "uses:a+b", &["a==1", "b==1"], &["a", "b"])).await;
    let status = world.engine.status();
    assert_eq!(status.zygotes.last().unwrap().parent, Some(zygote.id));
}

#[tokio::test]
async fn what_a_zygote_imports_from_is_in_use_from_before_it_is_there_until_it_is_gone() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("a", 400.0, &[])]);
    let one = locked("one", "uses:a", &["a==1"], &["a"]);
    let (engine, handler) = (Arc::clone(&world.engine), Arc::clone(&one));
    let preparing = tokio::spawn(async move { engine.prepare(&handler).await });
    let layer: Layer = "packages/a-1".parse().unwrap();
    eventually("it imports", || world.engine.layers().contains(&layer)).await;
    assert_eq!(world.engine.status().zygotes.len(), 1, "only the root can be forked yet");
    while !preparing.is_finished() {
        assert!(world.engine.layers().contains(&layer), "not for a moment");
        tokio::task::yield_now().await;
    }
    assert_eq!(world.engine.status().zygotes.len(), 2);
    assert!(world.engine.layers().contains(&layer));
    world.provider.kill_zygotes();
    eventually("it is not used any more", || !world.engine.layers().contains(&layer)).await;
}

/// How many zygotes are above the deepest one when six locks, each within the next, were called in turn.
async fn depth_of_nested_locks(config: EngineConfig) -> Option<usize> {
    let names = ["a", "b", "c", "d", "e", "f"];
    let costs: Vec<(&str, f64, &[&str])> =
        names.iter().map(|name| (*name, 100.0, &[][..])).collect();
    let world = world(config, None, &costs);
    let packages = names.map(|name| format!("{name}==1"));
    for count in 1..=names.len() {
        let locks: Vec<&str> = packages[..count].iter().map(|lock| &**lock).collect();
        let handler = locked(&format!("n{count}"), "echo", &locks, &names[..count]);
        world.engine.prepare(&handler).await;
        world.call(&handler).await.result.unwrap();
        settled(&world).await;
    }
    let zygotes = world.engine.status().zygotes;
    let above = |id| zygotes.iter().find(|zygote| zygote.id == id).and_then(|zygote| zygote.parent);
    let depths =
        zygotes.iter().map(|zygote| std::iter::successors(zygote.parent, |id| above(*id)).count());
    depths.max()
}

#[tokio::test]
async fn however_locks_are_nested_zygotes_are_not_so_deep_that_kernel_ids_run_out() {
    for zygotes in [ZygotePolicy::Utility, ZygotePolicy::Paper] {
        assert_eq!(depth_of_nested_locks(policy(zygotes)).await, Some(2), "{zygotes:?}");
    }
}

#[tokio::test]
async fn where_nothing_bounds_their_depth_the_papers_zygotes_come_from_the_best_match_however_deep()
{
    let config = |zygote_depth| EngineConfig { zygote_depth, ..policy(ZygotePolicy::Paper) };
    for (depth, deepest) in [(3, 3), (usize::MAX, 6)] {
        assert_eq!(depth_of_nested_locks(config(depth)).await, Some(deepest));
    }
}

#[tokio::test]
async fn a_call_goes_on_without_a_zygote_when_the_papers_hangs_and_no_root_is_there() {
    let creation_timeout = Duration::from_millis(100);
    let world = world(EngineConfig { creation_timeout, ..policy(ZygotePolicy::Paper) }, None, &[]);
    let hangs = locked("hangs", "echo", &["slow:600000==1"], &["slow:600000"]);
    world.call(&hangs).await.result.unwrap();
}

#[tokio::test]
async fn what_a_handler_imports_is_no_part_of_its_answer() {
    let module = "m".repeat(100);
    let config = EngineConfig { reply_bytes: 50, ..policy(ZygotePolicy::Utility) };
    let world = world(config, None, &[(&module, 50.0, &[])]);
    let distribution = format!("{module}==1");
    let handler = locked("h", &format!("uses:{module}"), &[&distribution], &[&module]);
    world.call(&handler).await.result.unwrap();
}

#[tokio::test]
async fn nothing_that_has_imported_survives_a_repair_of_packages() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("a", 50.0, &[])]);
    let handler = locked("h", "uses:a", &["a==1"], &["a"]);
    world.engine.prepare(&handler).await;
    world.call(&handler).await.result.unwrap();
    assert_eq!(world.census().zygotes, 2);
    world.engine.renew_all();
    eventually("the root is left", || world.census().zygotes == 1).await;
    // One that was begun before is not taken in either.
    let slow = locked("slow", "echo", &["slow:300==1"], &["slow:300"]);
    let begun = world.provider.begun(Operation::Derive);
    let preparing = world.engine.prepare(&slow);
    let renewing = async {
        eventually("it is being made", || world.provider.begun(Operation::Derive) > begun).await;
        world.engine.renew_all();
    };
    tokio::join!(preparing, renewing);
    assert_eq!(world.census().zygotes, 1);
}

#[tokio::test]
async fn an_import_that_hangs_keeps_no_other_zygote_from_being_made() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("b", 50.0, &[])]);
    let hangs = locked("hangs", "echo", &["slow:600000==1"], &["slow:600000"]);
    let other = locked("other", "uses:b", &["b==1"], &["b"]);
    tokio::select! {
        _ = world.engine.prepare(&hangs) => panic!("it was to hang"),
        () = async {
            eventually("it is being made", || world.provider.begun(Operation::Derive) == 1).await;
            world.engine.prepare(&other).await;
        } => {}
    }
    world.call(&other).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["b"]);
}

#[tokio::test]
async fn what_shares_memory_with_its_forks_is_told_by_name_and_the_rest_has_a_zygote() {
    let world = world(policy(ZygotePolicy::Utility), None, &[("a", 50.0, &[])]);
    let both = locked("both", "uses:a+shares", &["a==1", "shares==1"], &["a", "shares"]);
    world.engine.prepare(&both).await;
    for _ in 0..6 {
        world.call(&both).await.result.unwrap();
    }
    settled(&world).await;
    world.call(&both).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["a"]);
    let told: Vec<_> = world.engine.unforkable().into_iter().collect();
    let why = "shares leaves memory that forks would share behind";
    assert_eq!(told, [("shares-1".to_owned(), why.to_owned())]);
}

#[tokio::test]
async fn what_importing_a_package_costs_is_told_as_far_as_zygotes_have_shown() {
    let costs: &[(&str, f64, &[&str])] = &[("a", 50.0, &["b"]), ("b", 20.0, &[]), ("c", 9.0, &[])];
    let world = world(policy(ZygotePolicy::Utility), None, costs);
    world.engine.prepare(&locked("both", "echo", &["a==1", "b==1"], &["a", "b"])).await;
    world.engine.prepare(&locked("alone", "echo", &["c==1", "d==1"], &["c"])).await;
    let told = world.engine.import_costs();
    let cost = |wheel: &str| told.get(wheel).map(|cost| (cost.milliseconds, cost.bytes));
    // Both were imported into one zygote.
    assert_eq!(cost("a-1"), Some((Some(50.0), None)));
    assert_eq!(cost("b-1"), Some((Some(20.0), None)));
    assert_eq!(cost("c-1"), Some((Some(9.0), Some(9 << 20))));
    assert_eq!(cost("d-1"), None, "no zygote has imported it");
}

#[tokio::test]
async fn an_optional_import_of_one_functions_packages_does_not_cost_others_their_zygote() {
    let costs: &[(&str, f64, &[&str])] = &[("a", 50.0, &["?b"]), ("b", 50.0, &[]), ("x", 1.0, &[])];
    let world = world(policy(ZygotePolicy::Utility), None, costs);
    let pair = locked("pair", "uses:b+a", &["a==1", "b==1"], &["a", "b"]);
    world.engine.prepare(&pair).await;
    for number in 0..6 {
        let alone = locked(&format!("alone{number}"), "uses:a", &["a==1", "x==1"], &["a"]);
        world.call(&alone).await.result.unwrap();
    }
    settled(&world).await;
    let alone = locked("another", "uses:a", &["a==1"], &["a"]);
    world.call(&alone).await.result.unwrap();
    assert_eq!(last_zygote(&world), ["a"]);
}
