//! What a worker's zygotes were, for its next start.
//!
//! ```text
//!   start ─► read ─► plant what functions locked ─► prepare what was deployed last ─► every few minutes: write
//!                                                                                     stop: write
//! ```
//!
//! Nothing is written before the tree of the last run has been made again: a worker that is stopped at once would forget it. Nor
//! when the warden was lost: the zygotes were lost with it. Where `zygote_seed` names a tree, that one is made instead. Only
//! `zygotes = "utility"` learns; each of the others makes what its own rule says, and nothing besides.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, ZygotePolicy, ZygoteTree};
use sys::files::write_whole;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval_at};

use crate::config::Config;
use crate::state_directory::State;
use doors::native as api;

/// How often it is written.
const EVERY: Duration = Duration::from_secs(300);

/// Where the tree is kept.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// None: nothing is learnt.
    file: Option<PathBuf>,
}

impl Learnt {
    pub(crate) fn of(config: &Config, state: &State) -> Self {
        let learns = config.zygotes() == ZygotePolicy::Utility;
        Self { file: learns.then(|| state.root().join("zygotes.json")) }
    }

    /// The tree of the last run. One that cannot be read is as good as none.
    pub(crate) fn read(&self) -> Option<ZygoteTree> {
        let file = self.file.as_deref()?;
        let read = fs::read(file).and_then(|text| Ok(api::read_tree(&text)?));
        match read {
            Ok(tree) => Some(tree),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let file = file.display();
                tracing::warn!(%file, %error, "the zygotes of the last run are not known");
                None
            }
        }
    }

    /// Writes down which zygotes there are.
    pub(crate) fn write(&self, engine: &Engine) {
        let Some(file) = &self.file else { return };
        let tree = engine.zygote_tree();
        let written = serde_json::to_vec_pretty(&tree).map_err(io::Error::from);
        let new = file.with_extension("new");
        if let Err(error) = written.and_then(|text| write_whole(file, &new, &text, 0o600)) {
            let file = file.display();
            tracing::warn!(%file, %error, "the zygotes cannot be written down for the next start");
        }
    }

    /// Does so every few minutes.
    pub(crate) async fn keep(self: &Arc<Self>, engine: &Arc<Engine>) {
        let mut every = interval_at(Instant::now() + EVERY, EVERY);
        loop {
            every.tick().await;
            let (learnt, engine) = (Arc::clone(self), Arc::clone(engine));
            drop(spawn_blocking(move || learnt.write(&engine)).await);
        }
    }
}
