//! Identities of instances that are started from nothing: a kernel uid, and the user namespace in
//! which it is [`INNER`].
//!
//! ```text
//!   start ─► one made ahead, else one made during the start ─► the sandbox has it;
//!                ▲                                its uid is free when the sandbox is gone
//!   12 ms without a command ─► one more, up to [`MAX_AHEAD`]
//! ```
//! A namespace takes 0.3 ms to make. Each serves one instance: no process has ever been in it but
//! the helper that made it. The first is made at the first start: a worker whose instances are all
//! forked makes none. Back-to-back calls leave no time to make one ahead: `spawn` makes it while
//! the new process joins its cgroup and its root. When one cannot be made ahead, the next start
//! tries again and returns the error.

use std::io;

use sys::namespace::{IdMap, Parent, user_namespace};

use crate::defence::Defence;
use crate::isolation::Isolation;
use crate::outcome::CommandError;
use crate::process::spawn::UserNamespace;
use crate::uids::{INNER, Uids};

/// Maximum number of waiting identities. Each holds a descriptor and a uid.
pub(crate) const MAX_AHEAD: usize = 4;

/// A sandbox's ids.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) namespace: UserNamespace,
}

/// Identities that wait for a start.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    ready: Vec<Identity>,
    wanted: bool,
}

impl Identities {
    /// Whether one more is to be made.
    pub(crate) fn lacks(&self) -> bool {
        self.wanted && self.ready.len() < MAX_AHEAD
    }

    /// An identity for the instance that is started now.
    pub(crate) fn take(
        &mut self,
        uids: &mut Uids,
        isolation: Isolation,
    ) -> Result<Identity, CommandError> {
        self.wanted = true;
        if let Some(ready) = self.ready.pop() {
            return Ok(ready);
        }
        let uid = uids.take_one().ok_or(CommandError::Wrong("no kernel uid is free"))?;
        let apart = isolation.has(Defence::Capabilities);
        let namespace =
            if apart { UserNamespace::Awaited(map_of(uid)) } else { UserNamespace::Initial };
        Ok(Identity { uid, namespace })
    }

    /// Makes an identity for a later start.
    pub(crate) fn make_ahead(&mut self, uids: &mut Uids, isolation: Isolation) {
        let Some(uid) = uids.take_one() else { return self.wanted = false };
        match new_identity(uid, isolation) {
            Ok(made) => self.ready.push(made),
            Err(_) => {
                uids.return_one(uid);
                self.wanted = false;
            }
        }
    }
}

fn new_identity(uid: u32, isolation: Isolation) -> io::Result<Identity> {
    if !isolation.has(Defence::Capabilities) {
        return Ok(Identity { uid, namespace: UserNamespace::Initial });
    }
    let made = user_namespace(Parent::Initial, uid, map_of(uid))?;
    Ok(Identity { uid, namespace: UserNamespace::Ready(made) })
}

fn map_of(uid: u32) -> IdMap {
    IdMap { inside: INNER, outside: uid, count: 1 }
}
