//! What HyperFork's figures 4 and 5 share: a benchmark of Pillow in a guest that was frozen ever later.
//!
//! The paper's guest boots a kernel first; here there is none, so its "after boot" is a machine with the interpreter
//! loaded and nothing executed.

use anyhow::Result;
use microvm::machine::Hypervisor;

use super::{on_kvm, take_turns};
use crate::guests::{Frozen, Guest, Point, Way, python};
use crate::libraries;
use crate::load::Target;
use crate::run::Run;
use crate::stage::Stage;

/// Never: each run has a machine from nothing.
pub(super) const NONE: &str = "none";
/// The paper's "after boot".
pub(super) const LOADED: &str = "loaded";
/// The interpreter has started.
pub(super) const INTERPRETER: &str = "interpreter";
/// Pillow is imported.
pub(super) const PACKAGES: &str = "packages";
/// As [`PACKAGES`], and the benchmark has run once: the worker's clones are made of such machines.
pub(super) const REHEARSED: &str = "rehearsed";

/// In their order.
pub(super) const POINTS: [&str; 5] = [NONE, LOADED, INTERPRETER, PACKAGES, REHEARSED];

/// After pillow-perf's scaling: an image of 2560 × 1600 to several sizes by several filters. Shorter than the paper's.
const SCRIPT: &str = "
ready()
from PIL import Image
ready()
def scale():
    image = Image.linear_gradient('L').resize((2560, 1600)).convert('RGB')
    for size in (16, 10), (320, 200), (2048, 1280):
        for by in Image.BILINEAR, Image.BICUBIC, Image.LANCZOS:
            image.resize(size, by)
answer(scale)
";
/// `ready` twice, and once in `answer`.
const WAITS: usize = 3;

/// Runs the benchmark in rounds, from each point; says how.
pub(super) async fn measure(stage: &Stage, run: &mut Run, rounds: u32, runs: usize) -> Result<()> {
    on_kvm(run);
    run.method = vec![
        format!("each run scales an image by Pillow in a guest of its own, one at a time; `{NONE}`: from nothing; `{LOADED}`: cloned with the interpreter loaded and nothing executed (the paper's \"after boot\", but no kernel boots here); `{INTERPRETER}`, `{PACKAGES}`: cloned when the interpreter had started, when Pillow was imported; `{REHEARSED}`: when the benchmark had run once"),
        "clones have at once what a first clone touched".to_owned(),
        "in the load generator's own process, without jail, HTTP or worker: its processor time is that of monitor and guest".to_owned(),
    ];
    let wheels = libraries::wheels(stage.work(), &stage.rootfs).await?;
    let packages = libraries::site(&wheels, &stage.rootfs, &["pillow"]).await?;
    let program = python(&stage.rootfs, &packages, SCRIPT, WAITS);
    let clone =
        |point| -> Result<Way> { Ok(Way::Clone(Frozen::make(&program, point)?.learned()?)) };
    let none = Way::Start(Box::new(Hypervisor::open()?), program.clone(), 0);
    let arms = [
        Guest::new(NONE, none),
        Guest::new(LOADED, clone(Point::Loaded)?),
        Guest::new(INTERPRETER, clone(Point::Waiting(1))?),
        Guest::new(PACKAGES, clone(Point::Waiting(2))?),
        Guest::new(REHEARSED, clone(Point::Rehearsed)?),
    ];
    stage.rest(run).await?;
    let arms = arms.each_ref().map(|arm| (arm as &dyn Target, runs));
    take_turns(run, &arms, rounds).await
}
