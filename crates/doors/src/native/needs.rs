//! What each route asks of its caller: the one table of it.
//!
//! A route that is not in here is an administrator's (`tests/tests/access.rs` fails for it, too).

use axum::http::Method;

use platform::access::{Caller, Scope};

/// What a route asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: there is nothing in the answer that is not in the program.
    Nothing,
    /// A caller who may do this.
    May(Scope),
    /// The same, from a caller with a name: not even while nobody else needs one. What it gives lasts longer than the
    /// open door.
    Known(Scope),
}

use Need::{Known, May, Nothing};
use Scope::{Admin, Deploy, Invoke, Read};

/// A route: how it is asked, what it asks, and what the audit log calls it, if it changes something.
type Row = (&'static str, &'static str, Need, Option<&'static str>);

#[rustfmt::skip]
const NEEDS: &[Row] = &[
    ("GET",    "/healthz",                            Nothing,       None),
    ("GET",    "/openapi.json",                       Nothing,       None),

    ("POST",   "/run/{name}",                         May(Invoke),   None),

    ("GET",    "/v1/functions",                       May(Read),     None),
    ("GET",    "/v1/functions/{name}",                May(Read),     None),
    ("GET",    "/v1/functions/{name}/logs",           May(Read),     None),
    ("PUT",    "/v1/functions/{name}",                May(Deploy),   Some("deploy")),
    ("DELETE", "/v1/functions/{name}",                May(Deploy),   Some("remove")),

    // Whoever may deploy a function may have it tell its secrets.
    ("GET",    "/v1/functions/{name}/secrets",        Known(Deploy), None),
    ("PUT",    "/v1/functions/{name}/secrets/{key}",  Known(Deploy), Some("set secret")),
    ("DELETE", "/v1/functions/{name}/secrets/{key}",  Known(Deploy), Some("remove secret")),

    ("GET",    "/metrics",                            May(Read),     None),
    ("GET",    "/v1/status",                          May(Read),     None),

    // Packages and zygotes are of all tenants.
    ("GET",    "/v1/zygotes",                         May(Admin),    None),
    ("GET",    "/v1/packages",                        May(Admin),    None),
    ("POST",   "/v1/packages/verify",                 May(Admin),    Some("verify packages")),
    ("POST",   "/v1/packages/prune",                  May(Admin),    Some("prune packages")),

    ("GET",    "/v1/tokens",                          Known(Admin),  None),
    ("POST",   "/v1/tokens",                          Known(Admin),  Some("create token")),
    ("DELETE", "/v1/tokens/{token}",                  Known(Admin),  Some("remove token")),
    ("GET",    "/v1/audit",                           Known(Admin),  None),

    // Served on the Unix socket alone.
    ("POST",   "/v1/stop",                            Known(Admin),  Some("stop")),
];

/// What a route asks of its caller.
pub(super) fn of(method: &Method, path: &str) -> Need {
    row(method, path).map_or(May(Admin), |(_, _, need, _)| *need)
}

/// What the audit log calls what a route does; none: it changes nothing.
pub(super) fn action(method: &Method, path: &str) -> Option<&'static str> {
    row(method, path).and_then(|(_, _, _, action)| *action)
}

fn row(method: &Method, path: &str) -> Option<&'static Row> {
    // Whoever may GET may ask for the headers alone.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    NEEDS.iter().find(|(verb, route, ..)| *verb == method.as_str() && *route == path)
}

impl Need {
    /// The scope that it asks for.
    pub(super) fn scope(self) -> Option<Scope> {
        match self {
            Nothing => None,
            May(scope) | Known(scope) => Some(scope),
        }
    }

    /// Whether a caller fulfils it.
    pub(super) fn is_met_by(self, caller: &Caller) -> bool {
        match self {
            Nothing => true,
            May(scope) => caller.may(scope),
            Known(scope) => caller.is_known() && caller.may(scope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_route_is_in_the_table_and_the_table_has_no_other() {
        let described = serde_json::to_value(crate::native::openapi()).unwrap();
        let mut routes: Vec<(String, String)> = described["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(|m| (m.to_uppercase(), path.clone()))
            })
            .collect();
        // It describes the others, and not itself.
        routes.push(("GET".to_owned(), "/openapi.json".to_owned()));
        let mut table: Vec<(String, String)> =
            NEEDS.iter().map(|(m, path, ..)| ((*m).to_owned(), (*path).to_owned())).collect();
        routes.sort();
        table.sort();
        assert_eq!(routes, table);
    }

    #[test]
    fn what_changes_something_has_a_name_in_the_audit_log() {
        for (method, path, _, action) in NEEDS {
            let changes = *method != "GET" && *path != "/run/{name}";
            assert_eq!(action.is_some(), changes, "{method} {path}");
        }
    }

    #[test]
    fn a_route_that_nobody_thought_of_is_an_administrators() {
        assert_eq!(of(&Method::PATCH, "/v1/functions/{name}"), May(Admin));
        assert_eq!(of(&Method::HEAD, "/v1/functions"), May(Read));
    }
}
