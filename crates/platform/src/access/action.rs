//! What callers ask for, and what each action takes: the one table of it.
//!
//! A row makes a variant of [`Action`], for a door that looks its routes up in a table, and a type in [`to`], for the
//! [`Permit`](super::Permit) that a use case takes: `Permit<to::Deploy>`.

use std::fmt::Debug;

use function::WholeName;

use super::Scope;
use super::permit::Subject;

/// What an action takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// A caller with this scope.
    pub scope: Scope,
    /// The caller must be known, even while every user of the machine is let in without a token: what the action gives
    /// lasts longer than the open door.
    pub known: bool,
}

/// What a [`Permit`](super::Permit) is for.
pub trait Purpose: Debug + Send + Sync + 'static {
    /// The same as a value.
    const ACTION: Action;
    /// What the action is about: one function, or nothing beyond the tenant.
    type Subject: Subject;
}

const fn may(scope: Scope) -> Need {
    Need { scope, known: false }
}

const fn known(scope: Scope) -> Need {
    Need { scope, known: true }
}

macro_rules! actions {
    ($($(#[doc = $doc:literal])+ $name:ident($subject:ty): $need:expr, $audited:expr;)+) => {
        /// One thing that a caller asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Action {
            /// Every variant, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What the action takes.
            #[must_use]
            pub const fn need(self) -> Need {
                match self {
                    $(Self::$name => $need,)+
                }
            }

            /// The action's name in the audit log; none: it changes nothing.
            #[must_use]
            pub const fn audited(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => $audited,)+
                }
            }
        }

        /// Each action as a type.
        pub mod to {
            use super::{Action, Purpose, WholeName};

            $(
                $(#[doc = $doc])+
                #[derive(Clone, Copy, Debug)]
                pub struct $name;

                impl Purpose for $name {
                    const ACTION: Action = Action::$name;
                    type Subject = $subject;
                }
            )+
        }
    };
}

actions! {
    /// Call a function.
    Invoke(WholeName): may(Scope::Invoke), None;

    /// List the tenant's functions.
    ListFunctions(()): may(Scope::Read), None;
    /// Show a function with its history.
    ShowFunction(WholeName): may(Scope::Read), None;
    /// Read what a function printed.
    ReadLogs(WholeName): may(Scope::Read), None;
    /// Deploy a function.
    Deploy(WholeName): may(Scope::Deploy), Some("deploy");
    /// Make an earlier version of a function current again.
    RollBack(WholeName): may(Scope::Deploy), Some("roll back");
    /// Give a function's current version a number.
    Publish(WholeName): may(Scope::Deploy), Some("publish version");
    /// Remove a published version.
    Unpublish(WholeName): may(Scope::Deploy), Some("remove version");
    /// Point an alias at a published version.
    SetAlias(WholeName): may(Scope::Deploy), Some("set alias");
    /// Remove an alias.
    RemoveAlias(WholeName): may(Scope::Deploy), Some("remove alias");
    /// Remove a function with its log and its secrets.
    Remove(WholeName): may(Scope::Deploy), Some("remove");

    // Code prints the secrets that it is given: a caller that may deploy a function can read them.
    /// List the names of a function's secrets.
    ListSecrets(WholeName): known(Scope::Deploy), None;
    /// Set a secret of a function.
    SetSecret(WholeName): known(Scope::Deploy), Some("set secret");
    /// Remove a secret of a function.
    RemoveSecret(WholeName): known(Scope::Deploy), Some("remove secret");

    /// Read the worker's metrics.
    ReadMetrics(()): may(Scope::Read), None;
    /// Read the worker's status.
    ReadStatus(()): may(Scope::Read), None;

    // Packages and zygotes are of all tenants.
    /// List the zygotes.
    ListZygotes(()): may(Scope::Admin), None;
    /// List the installed packages.
    ListPackages(()): may(Scope::Admin), None;
    /// Read every file of every package, and fetch again what is broken.
    VerifyPackages(()): may(Scope::Admin), Some("verify packages");
    /// Remove the packages that no function uses.
    PrunePackages(()): may(Scope::Admin), Some("prune packages");

    /// List the tokens.
    ListTokens(()): known(Scope::Admin), None;
    /// Make a new token.
    CreateToken(()): known(Scope::Admin), Some("create token");
    /// Remove a token.
    RemoveToken(()): known(Scope::Admin), Some("remove token");
    /// Read the audit log.
    ReadAudit(()): known(Scope::Admin), None;

    /// Stop the worker.
    Stop(()): known(Scope::Admin), Some("stop");

    /// What a door has no row for. Only an administrator learns that it is not there; no use case takes this permit.
    Unlisted(()): may(Scope::Admin), None;
}
