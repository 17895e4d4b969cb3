//! Where attacks are carried out: a warden with some defences missing, or none, and what every attack finds there.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use container::{Defence, Isolation, RootMount};
use rustix::fs::{FileType, Mode, makedev, mknodat};
use sandbox::{
    Cpu, Instance, InstanceSpec, Layer, Limits, Network, Provider, ProviderError, Zygote,
    ZygoteSpec,
};
use serde_json::{Value, json};

use crate::attack::{Attack, Outcome, Who};
use crate::bait::Bait;
use crate::support::attack::{REPORT, handler};
use crate::support::{Conversation, NONE, World, ask, patience};

/// Small enough that whoever takes too much meets them at once.
const LIMITS: Limits = Limits {
    memory_bytes: 160 << 20,
    pids: 24,
    scratch_bytes: 8 << 20,
    scratch_inodes: 500,
    cpu: Cpu { quota: None, weight: None },
};

/// See the module's own words.
pub(crate) struct Stage<'a> {
    world: World,
    /// Whose forks attack each other; a neighbour to malicious zygotes.
    honest: Box<dyn Zygote>,
    bait: &'a Bait,
    packages: Layer,
}

impl<'a> Stage<'a> {
    pub(crate) async fn new(root: RootMount, without: &[Defence], bait: &'a Bait) -> Self {
        let without = without.iter().copied().collect();
        let isolation = Isolation { root, without, ..Isolation::LEAN };
        let world = World::bounded(isolation, NONE, bait.rules()).await;
        let packages = careless_packages(&world);
        let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        Self { world, honest, bait, packages }
    }

    /// Whether sandboxes have a `/proc` here.
    pub(crate) fn proc(&self) -> bool {
        self.world.containers.host().proc
    }

    /// Whether the kernel has Landlock scopes.
    pub(crate) fn scopes(&self) -> bool {
        self.world.containers.host().scopes
    }

    pub(crate) async fn end(self) {
        drop(self.honest);
        let _ = std::fs::remove_file(self.world.store.layer_path(&link()));
        self.world.end().await;
    }

    /// Carries it out.
    pub(crate) async fn run(&self, attack: &Attack) -> Outcome {
        let outcome = tokio::time::timeout(patience(60), self.carry_out(attack)).await;
        outcome.unwrap_or_else(|_| Outcome::Contained("no end".to_owned()))
    }

    async fn carry_out(&self, attack: &Attack) -> Outcome {
        match attack.who {
            Who::Handler | Who::Fresh | Who::Careless | Who::Bundle => self.handler(attack).await,
            Who::Heir => self.heir(attack).await,
            Who::Reaching => {
                let zygote = self.zygote(self.of_class(self.world.zygote(&[]))).await;
                let spec = self.reaching(self.instance(attack.source));
                let mut party = Party::new(&self.world, Some(zygote.as_ref()), spec).await.unwrap();
                let facts = self.bait.facts();
                let event = json!({"who": "attacker", "turn": 0, "told": null, "host": facts, "way": attack.way.name()});
                match party.ask(&event).await {
                    Ok(said) => Outcome::of(&said),
                    Err(ended) => Outcome::Contained(ended),
                }
            }
            Who::ReachingLanding => {
                let zygote = self.zygote(self.of_class(self.evil(attack))).await;
                believed(zygote.fork(self.reaching(self.world.instance(REPORT))).await)
            }
            Who::ReachingPackage => {
                let zygote = self.zygote(self.of_class(self.evil(attack))).await;
                assert_eq!(zygote.imports().failed, [], "the malicious package does not run");
                let spec = self.reaching(self.world.instance(REPORT));
                let mut instance = zygote.fork(spec).await.unwrap();
                Outcome::of(&ask(instance.as_mut(), "{}").await)
            }
            Who::Package | Who::BoundPackage => {
                let zygote = self.zygote(self.evil(attack)).await;
                Outcome::of(&self.world.report(zygote.as_ref()).await)
            }
            Who::Landing => {
                let zygote = self.zygote(self.evil(attack)).await;
                believed(zygote.fork(self.world.instance(REPORT)).await)
            }
            Who::SecondLanding => {
                let zygote = self.zygote(self.evil(attack)).await;
                let _first = zygote.fork(self.world.instance(REPORT)).await.unwrap();
                believed(zygote.fork(self.world.instance(REPORT)).await)
            }
            Who::Deriving => {
                let zygote = self.zygote(self.evil(attack)).await;
                believed(zygote.derive(self.world.zygote(&[])).await)
            }
        }
    }

    /// A zygote whose forks may connect to something.
    fn of_class(&self, spec: ZygoteSpec) -> ZygoteSpec {
        ZygoteSpec { network: Network::Egress, ..spec }
    }

    fn reaching(&self, spec: InstanceSpec) -> InstanceSpec {
        InstanceSpec { network: Network::Egress, egress: self.bait.destinations(), ..spec }
    }

    async fn zygote(&self, spec: ZygoteSpec) -> Box<dyn Zygote> {
        self.world.containers.create_zygote(spec).await.unwrap()
    }

    /// A malicious package.
    fn evil(&self, attack: &Attack) -> ZygoteSpec {
        let lands = !matches!(attack.who, Who::Landing | Who::ReachingLanding | Who::Deriving);
        let (means, facts) = (include_str!("means.py"), self.bait.facts().to_string());
        let lands = if lands { "True" } else { "False" };
        let source = format!(
            "{means}\nHOST.update(json.loads({facts:?}))\nLANDS = {lands}\n{}",
            attack.source
        );
        self.world.evil(&source)
    }

    /// What a function's handler is made of.
    fn instance(&self, source: &str) -> InstanceSpec {
        let means = include_str!("means.py");
        InstanceSpec {
            limits: LIMITS,
            packages: Some(self.packages.clone()),
            ..self.world.instance(&handler(&format!("{means}\n{source}")))
        }
    }

    /// The victim comes and goes; then the attacker comes.
    async fn heir(&self, attack: &Attack) -> Outcome {
        let (spec, facts) = (self.instance(attack.source), self.bait.facts());
        for who in ["victim", "attacker"] {
            let mut party =
                Party::new(&self.world, Some(self.honest.as_ref()), spec.clone()).await.unwrap();
            let event = json!({"who": who, "turn": 0, "told": null, "host": facts, "way": attack.way.name()});
            match party.ask(&event).await {
                Ok(said) if who == "attacker" => return Outcome::of(&said),
                Ok(_) => drop(party),
                Err(ended) => return Outcome::Contained(ended),
            }
            self.world.settle().await;
        }
        unreachable!("the attacker is the last")
    }

    /// Victim and attacker take turns; the attacker's last word counts.
    async fn handler(&self, attack: &Attack) -> Outcome {
        let mut source = attack.source;
        let mut from = None;
        if attack.who == Who::Careless {
            let (package, rest) = source.split_once("# ---").unwrap();
            source = rest;
            let packages = Some(self.world.package("careless", package));
            let spec = ZygoteSpec { packages, ..self.world.zygote(&["careless"]) };
            from = Some(self.zygote(spec).await);
        }
        let zygote = match attack.who {
            Who::Fresh => None,
            _ => Some(from.as_deref().unwrap_or(self.honest.as_ref())),
        };
        let mut spec = self.instance(source);
        if attack.pair() == Some(Defence::LimitCpu) {
            // Not for the others, which would only take longer.
            spec.limits.cpu.quota = Some(0.02.try_into().unwrap());
        }
        if attack.who == Who::Bundle {
            spec.packages = Some(linked(&self.world, self.bait));
        }
        let mut victim = match source.contains("def victim") {
            true => Some(Party::new(&self.world, zygote, spec.clone()).await.unwrap()),
            false => None,
        };
        let mut attacker = match Party::new(&self.world, zygote, spec).await {
            Ok(attacker) => attacker,
            Err(error) if error.to_string().ends_with(&format!("(os error {})", libc::ELOOP)) => {
                return Outcome::Contained("ELOOP".to_owned());
            }
            Err(error) => return Outcome::Contained(error.to_string()),
        };
        let mut said = Value::Null;
        for turn in 0..attack.turns {
            let facts = self.bait.facts();
            let mut told = Value::Null;
            if let Some(victim) = &mut victim {
                let event = json!({"who": "victim", "turn": turn, "host": facts});
                told = match victim.ask(&event).await {
                    Ok(told) => told,
                    Err(ended) => return Outcome::Contained(format!("victim: {ended}")),
                };
            }
            let event = json!({"who": "attacker", "turn": turn, "told": told, "host": facts, "way": attack.way.name()});
            said = match attacker.ask(&event).await {
                Ok(said) => said,
                Err(ended) => return Outcome::Contained(ended),
            };
            self.bait.poke();
        }
        Outcome::of(&said)
    }
}

/// Who takes part in an attack: its sandbox, and what it is told.
struct Party {
    talk: Conversation,
    _instance: Box<dyn Instance>,
}

impl Party {
    async fn new(
        world: &World,
        zygote: Option<&dyn Zygote>,
        spec: InstanceSpec,
    ) -> Result<Self, ProviderError> {
        let mut instance = match zygote {
            Some(zygote) => zygote.fork(spec).await?,
            None => world.containers.create_instance(spec).await?,
        };
        let talk = Conversation::load(instance.as_mut()).await;
        Ok(Self { talk, _instance: instance })
    }

    /// What it answers, or how it ended.
    async fn ask(&mut self, event: &Value) -> Result<Value, String> {
        match self.talk.call(&event.to_string()).await {
            Some(Ok(said)) => Ok(serde_json::from_str(&said).unwrap()),
            Some(Err(error)) => Err(error),
            None => Err("killed".to_owned()),
        }
    }
}

fn believed<T>(landed: Result<T, ProviderError>) -> Outcome {
    match landed {
        Ok(_) => Outcome::Succeeded("the worker believes it".to_owned()),
        Err(ProviderError::Impostor { .. }) => Outcome::Contained("impostor".to_owned()),
        Err(other) => Outcome::Contained(other.to_string()),
    }
}

/// A layer as no installer of ours makes it: open to everybody, with a device in it.
fn careless_packages(world: &World) -> Layer {
    let layer: Layer = "packages/test-careless".parse().unwrap();
    let dir = world.store.layer_path(&layer);
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    std::fs::create_dir_all(dir.join("open")).unwrap();
    open(&dir.join("open"), 0o777);
    std::fs::write(dir.join("open.txt"), "as it was installed").unwrap();
    open(&dir.join("open.txt"), 0o666);
    let device = dir.join("device");
    if !std::fs::symlink_metadata(&device).is_ok_and(|found| found.file_type().is_char_device()) {
        // What /dev/zero is.
        let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
        mknodat(rustix::fs::CWD, &device, kind, mode, makedev(1, 5)).unwrap();
        open(&device, 0o666);
    }
    layer
}

fn link() -> Layer {
    "packages/test-link".parse().unwrap()
}

/// A layer that is a link to the host's directory with the canary.
fn linked(world: &World, bait: &Bait) -> Layer {
    let layer = link();
    let path = world.store.layer_path(&layer);
    let _ = std::fs::remove_file(&path);
    std::os::unix::fs::symlink(bait.dir(), path).unwrap();
    layer
}
