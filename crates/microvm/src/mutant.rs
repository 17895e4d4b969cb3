//! Mutants of a reset: each leaves out one step, so that a test shows that it would notice.
//!
//! Only builds with debug assertions have them: a release leaves nothing out.

/// The step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Floating point and vectors are not put back.
    NoXsave,
    /// Ranges whose rights have changed are not flushed.
    NoFlush,
    /// Pages are looked for in memory and not in swap.
    OnlyInMemory,
    /// A walk over the page tables that stopped early is taken for a whole one.
    WalkEndIgnored,
}

#[cfg(debug_assertions)]
std::thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Runs `something` on this thread as the mutant.
#[cfg(debug_assertions)]
pub fn with<T>(mutant: Mutant, something: impl FnOnce() -> T) -> T {
    ACTIVE.set(Some(mutant));
    let done = something();
    ACTIVE.set(None);
    done
}

/// Whether the current mutant leaves this step out.
#[cfg(debug_assertions)]
pub(crate) fn leaves_out(step: Mutant) -> bool {
    ACTIVE.get() == Some(step)
}

/// Never, in a release.
#[cfg(not(debug_assertions))]
pub(crate) const fn leaves_out(_: Mutant) -> bool {
    false
}
