//! Fault points: where `make soak` holds a task, so that what it breaks breaks exactly there.
//!
//! ```text
//!   soak                                     worker
//!   makes DIR/fork ────────────────────────► the first task at `fork` renames it to fork.held, waits
//!   sees fork.held, breaks something,
//!   removes fork.held ─────────────────────► goes on
//! ```
//! DIR is the value of `LAMBSWOOL_FAULTS`. Only builds with debug assertions have these points; a
//! release has none.

/// A point of this name; an ordinary call passes at once.
#[cfg(not(debug_assertions))]
#[inline]
pub async fn point(_: &str) {}

/// A point of this name; an ordinary call passes at once.
#[cfg(debug_assertions)]
pub async fn point(name: &str) {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::time::Duration;

    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(dir) = DIR.get_or_init(|| std::env::var_os("LAMBSWOOL_FAULTS").map(PathBuf::from))
    else {
        return;
    };
    let held = dir.join(name).with_extension("held");
    if std::fs::rename(dir.join(name), &held).is_ok() {
        while held.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
