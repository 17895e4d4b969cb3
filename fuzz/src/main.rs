//! The fuzzer of one target, which `FUZZ_TARGET` names; built by `run.sh`, with libFuzzer's `main` and options. Built in any
//! other way it runs a target on files, to look into what the fuzzer has found:
//!
//! ```text
//!   cargo run -p fuzz -- zip crash-0123…
//! ```
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod fuzzer {
    use std::sync::OnceLock;

    use fuzz::Target;
    use libfuzzer_sys::fuzz_target;

    fn chosen() -> Target {
        static CHOSEN: OnceLock<Target> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
            fuzz::target(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is no target"))
        })
    }

    fuzz_target!(|bytes: &[u8]| chosen()(bytes));
}

#[cfg(not(fuzzing))]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let known = fuzz::TARGETS.map(|(name, _)| name).join(", ");
    let target = fuzz::target(&name).unwrap_or_else(|| panic!("usage: fuzz TARGET FILE…; {known}"));
    for path in arguments {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        eprintln!("{path}");
        target(&bytes);
    }
}
