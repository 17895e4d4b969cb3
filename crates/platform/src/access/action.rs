//! What callers ask for, and what each action takes: the one table of it.
//!
//! A row makes a variant of [`Action`], for a door that looks its routes up in a table, and a type in [`to`], for the
//! [`Permit`](super::Permit) that a use case takes: `Permit<to::Deploy>`.

use std::fmt::Debug;

use function::{WholeLayerName, WholeName};

use super::Scope;
use super::permit::Subject;

/// What a [`Permit`](super::Permit) is for.
pub trait Purpose: Debug + Send + Sync + 'static {
    /// The same as a value.
    const ACTION: Action;
    /// What the action is about: one function, or nothing beyond the tenant.
    type Subject: Subject;
}

macro_rules! actions {
    ($($(#[doc = $doc:literal])+ $name:ident($subject:ty): $scope:expr, $audited:expr;)+) => {
        /// One thing that a caller asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Action {
            /// Every variant, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The scope that its caller needs.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self {
                    $(Self::$name => $scope,)+
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
            use super::{Action, Purpose, WholeLayerName, WholeName};

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
    Invoke(WholeName): Scope::Invoke, None;

    /// List the tenant's functions.
    ListFunctions(()): Scope::Read, None;
    /// Show a function with its history.
    ShowFunction(WholeName): Scope::Read, None;
    /// Read what a function printed.
    ReadLogs(WholeName): Scope::Read, None;
    /// Deploy a function.
    Deploy(WholeName): Scope::Deploy, Some("deploy");
    /// Make an earlier version of a function current again.
    RollBack(WholeName): Scope::Deploy, Some("roll back");
    /// Give a function's current version a number.
    Publish(WholeName): Scope::Deploy, Some("publish version");
    /// Remove a published version.
    Unpublish(WholeName): Scope::Deploy, Some("remove version");
    /// Point an alias at a published version.
    SetAlias(WholeName): Scope::Deploy, Some("set alias");
    /// Remove an alias.
    RemoveAlias(WholeName): Scope::Deploy, Some("remove alias");
    /// Change what an API keeps beside a function, such as its tags.
    Configure(WholeName): Scope::Deploy, Some("configure");
    /// Remove a function with its log and its secrets.
    Remove(WholeName): Scope::Deploy, Some("remove");

    // A token that is for some functions is for layers whose names fit, too.
    /// Publish a version of a layer.
    PublishLayer(WholeLayerName): Scope::Deploy, Some("publish layer");
    /// Change the policy of a version of a layer.
    ConfigureLayer(WholeLayerName): Scope::Deploy, Some("configure layer");
    /// Remove a version of a layer.
    RemoveLayer(WholeLayerName): Scope::Deploy, Some("remove layer");
    /// Show a version of a layer, or run a function with it.
    ShowLayer(WholeLayerName): Scope::Read, None;
    /// List the tenant's layers.
    ListLayers(()): Scope::Read, None;

    // Code prints the secrets that it is given: a caller that may deploy a function can read them.
    /// List the names of a function's secrets.
    ListSecrets(WholeName): Scope::Deploy, None;
    /// Set a secret of a function.
    SetSecret(WholeName): Scope::Deploy, Some("set secret");
    /// Remove a secret of a function.
    RemoveSecret(WholeName): Scope::Deploy, Some("remove secret");

    /// Read the worker's metrics.
    ReadMetrics(()): Scope::Read, None;
    /// Read the worker's status.
    ReadStatus(()): Scope::Read, None;

    // Packages and zygotes are of all tenants.
    /// List the zygotes.
    ListZygotes(()): Scope::Admin, None;
    /// List the installed packages.
    ListPackages(()): Scope::Admin, None;
    /// Read every file of every package, and fetch again what is broken.
    VerifyPackages(()): Scope::Admin, Some("verify packages");
    /// Remove the packages that no function uses.
    PrunePackages(()): Scope::Admin, Some("prune packages");

    /// List the tokens.
    ListTokens(()): Scope::Admin, None;
    /// Make a new token.
    CreateToken(()): Scope::Admin, Some("create token");
    /// Remove a token.
    RemoveToken(()): Scope::Admin, Some("remove token");
    /// Read the audit log.
    ReadAudit(()): Scope::Admin, None;

    /// Stop the worker.
    Stop(()): Scope::Admin, Some("stop");
}
