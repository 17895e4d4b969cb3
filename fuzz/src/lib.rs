//! What each reader of strangers' bytes must do with any bytes: return, within its bounds.
//!
//! ```text
//!   frames        ─ a guest's stream, however it is cut          zip, tar ─ uploads
//!   conversation  ─ a guest's stream, heard by the engine        settings ─ header, pyproject.toml, requirements
//!   messages      ─ packets of worker, warden, monitor, zygote   wheel    ─ archives that a build made
//!   system_calls  ─ a program in a micro-VM                      lock     ─ what an installer printed
//!   unikernels    ─ a program of mutated ELF                     elf      ─ libraries, programs
//!   lambda        ─ requests to AWS Lambda's API, and names of functions and layers in them
//! ```
//! A target panics when a promise is broken; the fuzzer besides watches over time, memory and aborts. `make fuzz` runs
//! them under coverage; `cargo test` replays `corpus/`, in which every input that ever broke one stays.

mod bundles;
mod conversation;
mod elf;
mod frames;
mod kvm;
mod lambda;
mod lock;
mod messages;
mod scratch;
mod settings;
mod system_calls;
mod unikernels;
mod wheel;

/// Does something with any bytes.
pub type Target = fn(&[u8]);

/// All of them, by name: also that of the directory below `corpus/`.
pub const TARGETS: [(&str, Target); 12] = [
    ("frames", frames::fuzz),
    ("conversation", conversation::fuzz),
    ("messages", messages::fuzz),
    ("zip", bundles::zip),
    ("tar", bundles::tar),
    ("settings", settings::fuzz),
    ("wheel", wheel::fuzz),
    ("lock", lock::fuzz),
    ("elf", elf::fuzz),
    ("lambda", lambda::fuzz),
    ("unikernels", unikernels::fuzz),
    ("system_calls", system_calls::fuzz),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
