//! Control actions: what was changed, and who asked for it. One row for each.
//!
//! Rows are kept in groups: administrators, and each tenant. A new row makes room in its own group alone, so that no
//! tenant can push out what another or an administrator did. What was refused, failed or never begun is a group apart:
//! however often a caller tries, what was done stays.
//!
//! A row is written before the action's answer is on its way, and survives a kill of the worker. It holds nothing of a
//! body, a token or a secret's value. A caller with no token, or an unknown one, leaves no row: everyone who reaches the
//! port could otherwise fill the disk.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use store::{ActionRow, Actions, StoreError};
use utoipa::ToSchema;

use crate::access::{Caller, Permit, to};
use function::Label;

/// How many actions of one group are kept, and as many of what its callers were refused.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of administrators.
    pub administrators: usize,
    /// Of each tenant.
    pub tenant: usize,
}

/// About 80 MiB of administrators' actions, and 8 MiB of each tenant's.
pub const AUDIT: Bounds = Bounds { administrators: 100_000, tenant: 10_000 };

/// The result of an action that was not begun: its caller went away before.
pub const UNANSWERED: &str = "unanswered";

/// The result of an action that was begun and whose end is unknown: a fault of the worker, or its end.
pub const BROKE_OFF: &str = "broke-off";

/// The time as lines have it: fine enough to tell by it which of two came first.
pub fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// One control action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Action {
    /// When it ended, RFC 3339.
    pub time: String,
    /// Who asked for it.
    pub who: Who,
    /// From where: an address, or the process on the Unix socket.
    pub remote: String,
    /// Whose functions it was about.
    pub tenant: String,
    /// What was done: `deploy`, `remove`, `create token` and others.
    pub action: String,
    /// About which function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The version that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What else it was about: a token's name, or a secret's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How it ended: `ok`, the type of the error, `unanswered` (given up before it began), or `broke-off` (it may have been
    /// done).
    pub result: String,
}

/// Who asked for an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// A caller without a token: in rows of the time when control actions took none.
    Anyone,
    /// Who has the token of this name.
    Token(String),
    /// The user of this number, on the Unix socket or at the command line.
    Uid(u32),
}

impl From<&Caller> for Who {
    fn from(caller: &Caller) -> Self {
        match caller {
            Caller::Anyone => Self::Anyone,
            Caller::Token(token) => Self::Token(token.name.to_string()),
            Caller::User { uid } => Self::Uid(*uid),
        }
    }
}

/// The group of an action: it takes the room of older actions of this group alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Among {
    /// Administrators.
    Administrators,
    /// Holders of a token of this tenant.
    Tenant(Label),
}

impl Among {
    /// The group's name in the store.
    fn group(&self) -> String {
        match self {
            Self::Administrators => "administrators".to_owned(),
            Self::Tenant(tenant) => format!("tenant {tenant}"),
        }
    }
}

impl From<&Caller> for Among {
    fn from(caller: &Caller) -> Self {
        caller.tenant().map_or(Self::Administrators, Self::Tenant)
    }
}

/// The audit log of a worker.
#[derive(Debug)]
pub struct Audit {
    store: Mutex<Box<dyn Actions>>,
    bounds: Bounds,
}

impl Audit {
    /// An audit log that is kept in a store.
    #[must_use]
    pub fn new(store: Box<dyn Actions>, bounds: Bounds) -> Self {
        Self { store: Mutex::new(store), bounds }
    }

    /// Writes a row. When the store does not take it, the worker's log says so: refusing what is done already would help
    /// no caller. Blocks on disk.
    pub fn write(&self, among: &Among, action: &Action) {
        // Plain data: it always serializes.
        let line = serde_json::to_string(action).unwrap_or_default();
        // What broke off may have been done.
        let done = matches!(action.result.as_str(), "ok" | BROKE_OFF);
        let keep = match among {
            Among::Administrators => self.bounds.administrators,
            Among::Tenant(_) => self.bounds.tenant,
        };
        let row = ActionRow { group: among.group(), done, line };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = store.append(&row, keep) {
            let error = sandbox::chain(&error);
            tracing::error!(error, line = row.line, "the audit log cannot be written");
        }
    }

    /// Waits until all actions are on the disk. Blocks.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).sync()
    }

    /// The last actions of all groups, oldest first. None: the work broke off.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(
        self: &Arc<Self>,
        _: &Permit<to::ReadAudit>,
        most: usize,
    ) -> Option<Result<Vec<Action>, StoreError>> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.last(most)).await.ok()
    }

    /// The same. Blocks on disk.
    fn last(&self, most: usize) -> Result<Vec<Action>, StoreError> {
        let lines = self.store.lock().unwrap_or_else(PoisonError::into_inner).last(most)?;
        Ok(lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use store::memory::Memory;

    use super::*;

    /// One that keeps ten of administrators and five of each tenant.
    fn audit() -> Audit {
        Audit::new(Box::new(Memory::default()), Bounds { administrators: 10, tenant: 5 })
    }

    fn functions(audit: &Audit) -> Vec<String> {
        let read = audit.last(1000).unwrap();
        read.into_iter().map(|action| action.function.unwrap()).collect()
    }

    fn action(number: usize) -> Action {
        Action {
            time: "2026-11-22T00:00:00.000Z".to_owned(),
            who: Who::Token("ci".to_owned()),
            remote: "127.0.0.1:5".to_owned(),
            tenant: "default".to_owned(),
            action: "deploy".to_owned(),
            function: Some(format!("f{number:04}")),
            version: None,
            subject: None,
            result: "ok".to_owned(),
        }
    }

    #[test]
    fn however_often_somebody_is_refused_what_was_done_stays() {
        let (us, audit) = (Among::Tenant(Label::default_tenant()), audit());
        audit.write(&us, &action(7));
        for number in 1..100 {
            let result = ["wrong-scope", "bad-name", UNANSWERED][number % 3].to_owned();
            audit.write(&us, &Action { result, ..action(number) });
        }
        audit.write(&us, &Action { result: BROKE_OFF.to_owned(), ..action(8) });
        let read = audit.last(1000).unwrap();
        let [first, .., last] = &read[..] else { panic!("{read:?}") };
        assert_eq!((first.result.as_str(), last.result.as_str()), ("ok", BROKE_OFF));
        assert_eq!(read.len(), 2 + 5);
        assert_eq!(audit.last(1).unwrap().last(), Some(last));
    }

    #[test]
    fn whatever_a_tenant_does_however_often_every_line_of_others_stays() {
        let audit = audit();
        let tenant = |name: &str| Among::Tenant(name.parse().unwrap());
        audit.write(&Among::Administrators, &action(1));
        audit.write(&tenant("acme"), &action(2));
        // A tenant that is called as another group.
        audit.write(&tenant("administrators"), &action(3));
        (100..200).for_each(|number| audit.write(&tenant("emca"), &action(number)));
        let kept = ["f0001", "f0002", "f0003", "f0195", "f0196", "f0197", "f0198", "f0199"];
        assert_eq!(functions(&audit), kept);
        (200..300).for_each(|number| audit.write(&Among::Administrators, &action(number)));
        assert_eq!(functions(&audit).len(), kept.len() - 1 + 10);
    }

    #[test]
    fn a_disk_that_fails_ends_no_action() {
        let memory = Memory::default();
        let audit = Audit::new(Box::new(memory.clone()), AUDIT);
        memory.set_broken(true);
        audit.write(&Among::Administrators, &action(1));
        assert!(audit.last(1).is_err());
        memory.set_broken(false);
        audit.write(&Among::Administrators, &action(2));
        assert_eq!(functions(&audit), ["f0002"]);
    }
}
