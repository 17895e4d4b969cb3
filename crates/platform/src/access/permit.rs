//! Permits: what a use case takes from a door before it does anything.
//!
//! ```text
//!   Requester ── admit(action, function) ──► Grant ── permit() ──► Permit<to::Deploy> ──► Deployer::deploy
//!    caller,      │                          a value, for a door    a type, for the
//!    tenant       └► Denied                  that finds the action  use case
//!                                            in a table of routes
//!   Requester ── permit::<to::Deploy>(name) ──────────────────────►   a door that knows it beforehand: a queue, a command
//! ```
//!
//! A door says who asks; it never decides. Every use case that a door calls takes a [`Permit`] for exactly that action, and
//! nothing but [`Requester::admit`] and [`Requester::permit`] makes one, after checking scope, tenant and function. A door
//! that forgets to ask, or asks for another action, does not compile. The function is part of the permit, so that a door
//! cannot ask for one and name another.
//!
//! That holds because doors are given use cases and no stores: what finds and changes things without a permit
//! ([`Registry`](crate::functions::Registry), [`Vault`](crate::secrets::Vault), the engine) stays with the worker. Use cases
//! also have a few methods for the worker itself, such as `Deployer::stop` and `Logs::flush`: they act for no caller.

use std::fmt::Debug;
use std::future::pending;

use function::{FunctionName, Label, LayerName, NameError, WholeLayerName, WholeName};
use thiserror::Error;

use super::{Action, Caller, Purpose, Scope, Tokens};

/// A caller, and the tenant whose functions the caller means.
#[derive(Clone, Debug)]
pub struct Requester {
    /// The caller, as a door found out.
    pub caller: Caller,
    /// The tenant whose functions are meant.
    pub tenant: Label,
}

/// Why a caller may not do something.
#[derive(Clone, Debug, Error)]
pub enum Denied {
    /// The caller's token is for another tenant.
    #[error("{caller} is of the tenant {own}, and says nothing for {tenant}")]
    WrongTenant {
        /// The caller that was refused.
        caller: Caller,
        /// The token's tenant.
        own: Label,
        /// The tenant that was named.
        tenant: Label,
    },
    /// The caller's token does not allow this, or there is none.
    #[error(
        "{caller} may not do this: it takes the scope {scope}; make a token that has it with `wool token create NAME --scope {scope}`"
    )]
    WrongScope {
        /// The caller that was refused.
        caller: Caller,
        /// The scope that is missing.
        scope: Scope,
    },
    /// The caller's token is for other functions.
    #[error("{caller} is not for the function {function:?}: it was made with --functions")]
    WrongFunction {
        /// The caller that was refused.
        caller: Caller,
        /// The name of the function.
        function: String,
    },
}

/// Why a grant is no permit for a use case.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GrantError {
    /// The function's name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A route leads to another use case than its row says: a fault of the door.
    #[error("the route was asked for as {asked:?} and does {does:?}")]
    Action {
        /// What was granted.
        asked: Action,
        /// What the use case does.
        does: Action,
    },
}

/// What was granted, as a value: for a door that decides before it reads a body, and calls the use case later.
#[derive(Clone, Debug)]
pub struct Grant {
    requester: Requester,
    action: Action,
    function: Option<String>,
}

/// The right to one action, for one caller. Use cases take it; only the check makes it.
#[derive(Debug)]
pub struct Permit<P: Purpose> {
    requester: Requester,
    subject: P::Subject,
}

/// What an action is about.
pub trait Subject: Debug + Send + Sync + Sized {
    /// How a caller names it.
    type Name;

    /// The function's name, where it is a function; the layer's, where it is one.
    fn function(name: &Self::Name) -> Option<&str>;

    /// Reads the name.
    ///
    /// # Errors
    /// When it is none.
    fn read(function: Option<&str>) -> Result<Self::Name, NameError>;

    /// The tenant's, of that name.
    fn of(tenant: &Label, name: &Self::Name) -> Self;
}

impl Subject for () {
    type Name = ();

    fn function((): &()) -> Option<&str> {
        None
    }

    fn read(_: Option<&str>) -> Result<(), NameError> {
        Ok(())
    }

    fn of(_: &Label, (): &()) {}
}

impl Subject for WholeName {
    type Name = FunctionName;

    fn function(name: &FunctionName) -> Option<&str> {
        Some(name.as_str())
    }

    fn read(function: Option<&str>) -> Result<FunctionName, NameError> {
        // None: it was not UTF-8. The refusal says what a name is.
        function.unwrap_or("\u{fffd}").parse()
    }

    fn of(tenant: &Label, name: &FunctionName) -> Self {
        Self::new(tenant, name)
    }
}

impl Subject for WholeLayerName {
    type Name = LayerName;

    fn function(name: &LayerName) -> Option<&str> {
        Some(name.as_str())
    }

    fn read(layer: Option<&str>) -> Result<LayerName, NameError> {
        layer.unwrap_or_default().parse()
    }

    fn of(tenant: &Label, name: &LayerName) -> Self {
        Self::new(tenant, name)
    }
}

impl Requester {
    /// The caller's own tenant, when another's functions are meant.
    #[must_use]
    pub fn stranger_to(&self) -> Option<Label> {
        self.caller.tenant().filter(|own| *own != self.tenant)
    }

    /// Grants an action, about a function as the caller wrote its name. None: it is about no function, or the name cannot
    /// be read, and then no [`Permit`] comes of the grant.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn admit(self, action: Action, function: Option<String>) -> Result<Grant, Denied> {
        self.check(action, function.as_deref())?;
        Ok(Grant { requester: self, action, function })
    }

    /// Permits an action that the door knows beforehand.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn permit<P: Purpose>(
        self,
        name: &<P::Subject as Subject>::Name,
    ) -> Result<Permit<P>, Denied> {
        self.check(P::ACTION, P::Subject::function(name))?;
        let subject = P::Subject::of(&self.tenant, name);
        Ok(Permit { requester: self, subject })
    }

    /// In this order: a caller of another tenant learns nothing of scopes, and one without the scope nothing of patterns.
    fn check(&self, action: Action, function: Option<&str>) -> Result<(), Denied> {
        let (caller, scope) = (&self.caller, action.scope());
        if let Some(own) = self.stranger_to() {
            let tenant = self.tenant.clone();
            return Err(Denied::WrongTenant { caller: caller.clone(), own, tenant });
        }
        if !caller.may(scope) {
            return Err(Denied::WrongScope { caller: caller.clone(), scope });
        }
        match function.filter(|function| !caller.may_touch(function)) {
            None => Ok(()),
            Some(function) => {
                let function = function.to_owned();
                Err(Denied::WrongFunction { caller: caller.clone(), function })
            }
        }
    }
}

impl Grant {
    /// Who asked, and whose functions are meant.
    #[must_use]
    pub fn requester(&self) -> &Requester {
        &self.requester
    }

    /// The permit for a use case.
    ///
    /// # Errors
    /// When another action was granted, or the function's name is none.
    pub fn permit<P: Purpose>(self) -> Result<Permit<P>, GrantError> {
        let Self { requester, action, function } = self;
        if action != P::ACTION {
            return Err(GrantError::Action { asked: action, does: P::ACTION });
        }
        let name = P::Subject::read(function.as_deref())?;
        let subject = P::Subject::of(&requester.tenant, &name);
        Ok(Permit { requester, subject })
    }
}

impl<P: Purpose> Permit<P> {
    /// The caller that was granted it.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.requester.caller
    }

    /// The tenant whose functions are meant.
    #[must_use]
    pub fn tenant(&self) -> &Label {
        &self.requester.tenant
    }

    /// Returns when the caller's token was removed or has expired.
    pub async fn lapsed(&self, tokens: &Tokens) {
        let Caller::Token(token) = self.caller() else { return pending().await };
        tokens.until(|now| !tokens.is_good(token, now)).await;
    }
}

impl<P: Purpose<Subject = WholeName>> Permit<P> {
    /// The function that it is for.
    #[must_use]
    pub fn function(&self) -> &WholeName {
        &self.subject
    }
}

impl<P: Purpose<Subject = WholeLayerName>> Permit<P> {
    /// The layer that it is for.
    #[must_use]
    pub fn layer(&self) -> &WholeLayerName {
        &self.subject
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::super::{Patterns, Token, to};
    use super::*;

    fn token(tenant: &str, scopes: &[Scope], functions: &[&str]) -> Caller {
        let functions: Vec<String> = functions.iter().map(|one| (*one).to_owned()).collect();
        Caller::Token(Arc::new(Token {
            id: "4f1c09a2b7d3".to_owned(),
            name: "ci".parse().unwrap(),
            tenant: tenant.parse().unwrap(),
            scopes: scopes.iter().copied().collect(),
            functions: Patterns::try_from(functions).unwrap(),
            created: UNIX_EPOCH,
            expires: None,
        }))
    }

    fn requester(caller: Caller, tenant: &str) -> Requester {
        Requester { caller, tenant: tenant.parse().unwrap() }
    }

    /// What comes of it, in one word.
    fn word(asked: Result<Grant, Denied>) -> &'static str {
        match asked {
            Ok(_) => "granted",
            Err(Denied::WrongTenant { .. }) => "tenant",
            Err(Denied::WrongScope { .. }) => "scope",
            Err(Denied::WrongFunction { .. }) => "function",
        }
    }

    /// Written out, not taken from the table that it checks: a changed row has to be changed here, too.
    #[rustfmt::skip]
    const TABLE: &[(Action, Scope, bool)] = &[
        // action                 scope            about a function
        (Action::Invoke,          Scope::Invoke,   true),
        (Action::ListFunctions,   Scope::Read,     false),
        (Action::ShowFunction,    Scope::Read,     true),
        (Action::ReadLogs,        Scope::Read,     true),
        (Action::Deploy,          Scope::Deploy,   true),
        (Action::RollBack,          Scope::Deploy,   true),
        (Action::Publish,           Scope::Deploy,   true),
        (Action::Unpublish,         Scope::Deploy,   true),
        (Action::SetAlias,          Scope::Deploy,   true),
        (Action::RemoveAlias,       Scope::Deploy,   true),
        (Action::Configure,         Scope::Deploy,   true),
        (Action::Remove,          Scope::Deploy,   true),
        (Action::PublishLayer,    Scope::Deploy,   true),
        (Action::ConfigureLayer,  Scope::Deploy,   true),
        (Action::RemoveLayer,     Scope::Deploy,   true),
        (Action::ShowLayer,       Scope::Read,     true),
        (Action::ListLayers,      Scope::Read,     false),
        (Action::ListSecrets,     Scope::Deploy,   true),
        (Action::SetSecret,       Scope::Deploy,   true),
        (Action::RemoveSecret,    Scope::Deploy,   true),
        (Action::ReadMetrics,     Scope::Read,     false),
        (Action::ReadStatus,      Scope::Read,     false),
        (Action::ListZygotes,     Scope::Admin,    false),
        (Action::ListPackages,    Scope::Admin,    false),
        (Action::VerifyPackages,  Scope::Admin,    false),
        (Action::PrunePackages,   Scope::Admin,    false),
        (Action::ListTokens,      Scope::Admin,    false),
        (Action::CreateToken,     Scope::Admin,    false),
        (Action::RemoveToken,     Scope::Admin,    false),
        (Action::ReadAudit,       Scope::Admin,    false),
        (Action::Stop,            Scope::Admin,    false),
    ];

    #[test]
    fn each_action_is_granted_to_the_callers_of_its_row_alone() {
        let actions: Vec<Action> = TABLE.iter().map(|(action, ..)| *action).collect();
        assert_eq!(actions, Action::ALL);
        for (action, scope, about_function) in TABLE.iter().copied() {
            let ask = |caller: Caller, tenant: &str, function: &str| {
                let function = about_function.then(|| function.to_owned());
                word(requester(caller, tenant).admit(action, function))
            };
            let anyone = if action == Action::Invoke { "granted" } else { "scope" };
            assert_eq!(ask(Caller::Anyone, "acme", "f"), anyone, "{action:?}");
            assert_eq!(ask(Caller::User { uid: 7 }, "acme", "f"), "granted", "{action:?}");
            let administrator = || token("default", &[Scope::Admin], &[]);
            assert_eq!(ask(administrator(), "acme", "f"), "granted", "{action:?}");
            for held in Scope::ALL {
                let has = held == scope || held == Scope::Admin;
                let expected = if has { "granted" } else { "scope" };
                assert_eq!(ask(token("acme", &[held], &[]), "acme", "f"), expected, "{action:?}");
            }
            if scope == Scope::Admin {
                continue;
            }
            let some = || token("acme", &[scope], &["report-*"]);
            assert_eq!(ask(some(), "acme", "report-1"), "granted", "{action:?}");
            let expected = if about_function { "function" } else { "granted" };
            assert_eq!(ask(some(), "acme", "f"), expected, "{action:?}");
            assert_eq!(ask(some(), "emca", "report-1"), "tenant", "{action:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_first_thing_that_is_wrong() {
        let ask = |caller, tenant: &str, function: &str| {
            let asked = requester(caller, tenant).admit(Action::Deploy, Some(function.to_owned()));
            asked.unwrap_err().to_string()
        };
        let reader = || token("acme", &[Scope::Read], &["a"]);
        assert_eq!(
            ask(reader(), "emca", "b"),
            "token ci is of the tenant acme, and says nothing for emca"
        );
        assert_eq!(
            ask(reader(), "acme", "b"),
            "token ci may not do this: it takes the scope deploy; make a token that has it with `wool token create NAME --scope deploy`"
        );
        assert_eq!(
            ask(token("acme", &[Scope::Deploy], &["a"]), "acme", "b"),
            "token ci is not for the function \"b\": it was made with --functions"
        );
        let anyone = requester(Caller::Anyone, "acme").admit(Action::CreateToken, None);
        assert_eq!(
            anyone.unwrap_err().to_string(),
            "a caller without a token may not do this: it takes the scope admin; make a token that has it with `wool token create NAME --scope admin`"
        );
    }

    #[test]
    fn a_grant_is_a_permit_for_its_own_action_and_function_alone() {
        let grant = |function: Option<&str>| {
            let asked = requester(Caller::User { uid: 7 }, "acme");
            asked.admit(Action::Invoke, function.map(str::to_owned)).unwrap()
        };
        let permit = grant(Some("f")).permit::<to::Invoke>().unwrap();
        assert_eq!(permit.function().to_string(), "acme/f");
        let other = GrantError::Action { asked: Action::Invoke, does: Action::Deploy };
        assert_eq!(grant(Some("f")).permit::<to::Deploy>().unwrap_err(), other);
        assert!(matches!(grant(Some("a/b")).permit::<to::Invoke>(), Err(GrantError::Name(_))));
        assert!(matches!(grant(None).permit::<to::Invoke>(), Err(GrantError::Name(_))));
    }

    #[test]
    fn a_door_that_knows_the_action_is_checked_in_the_same_way() {
        let caller = || token("acme", &[Scope::Invoke], &["a"]);
        let ask =
            |name: &str| requester(caller(), "acme").permit::<to::Invoke>(&name.parse().unwrap());
        assert_eq!(ask("a").unwrap().function().name(), "a");
        assert!(matches!(ask("b"), Err(Denied::WrongFunction { .. })));
        let tokens = requester(caller(), "acme").permit::<to::CreateToken>(&());
        assert!(matches!(tokens, Err(Denied::WrongScope { scope: Scope::Admin, .. })));
        let open = requester(Caller::Anyone, "acme").permit::<to::ReadAudit>(&());
        assert!(matches!(open, Err(Denied::WrongScope { scope: Scope::Admin, .. })));
    }

    #[test]
    fn what_changes_something_has_a_name_in_the_audit_log() {
        let quiet = ["List", "Show", "Read", "Invoke"];
        for action in Action::ALL {
            let reads = quiet.iter().any(|word| format!("{action:?}").starts_with(word));
            assert_eq!(action.audited().is_none(), reads, "{action:?}");
        }
    }
}
