//! Which action each route is: what an action takes of its caller is `platform::access`'s to say.
//!
//! No caller is granted anything for a route that is not in here, and its handler gets no permit.

use axum::http::Method;

use platform::access::Action;

use Action::{
    CreateToken, Deploy, Invoke, ListFunctions, ListPackages, ListSecrets, ListTokens, ListZygotes,
    PrunePackages, Publish, ReadAudit, ReadLogs, ReadMetrics, ReadStatus, Remove, RemoveAlias,
    RemoveSecret, RemoveToken, RollBack, SetAlias, SetSecret, ShowFunction, Stop, Unpublish,
    VerifyPackages,
};

/// A route: its method, its path, and its action. None: the route is open to every caller, because its answer holds nothing
/// but what is in the program.
type Row = (&'static str, &'static str, Option<Action>);

#[rustfmt::skip]
const ACTIONS: &[Row] = &[
    ("GET",    "/healthz",                            None),
    ("GET",    "/openapi.json",                       None),

    ("POST",   "/run/{name}",                         Some(Invoke)),

    ("GET",    "/v1/functions",                       Some(ListFunctions)),
    ("GET",    "/v1/functions/{name}",                Some(ShowFunction)),
    ("GET",    "/v1/functions/{name}/logs",           Some(ReadLogs)),
    ("PUT",    "/v1/functions/{name}",                Some(Deploy)),
    ("DELETE", "/v1/functions/{name}",                Some(Remove)),

    ("POST",   "/v1/functions/{name}/versions",       Some(Publish)),
    ("DELETE", "/v1/functions/{name}/versions/{number}", Some(Unpublish)),
    ("PUT",    "/v1/functions/{name}/aliases/{alias}", Some(SetAlias)),
    ("DELETE", "/v1/functions/{name}/aliases/{alias}", Some(RemoveAlias)),
    ("POST",   "/v1/functions/{name}/rollback",       Some(RollBack)),

    ("GET",    "/v1/functions/{name}/secrets",        Some(ListSecrets)),
    ("PUT",    "/v1/functions/{name}/secrets/{key}",  Some(SetSecret)),
    ("DELETE", "/v1/functions/{name}/secrets/{key}",  Some(RemoveSecret)),

    ("GET",    "/metrics",                            Some(ReadMetrics)),
    ("GET",    "/v1/status",                          Some(ReadStatus)),

    ("GET",    "/v1/zygotes",                         Some(ListZygotes)),
    ("GET",    "/v1/packages",                        Some(ListPackages)),
    ("POST",   "/v1/packages/verify",                 Some(VerifyPackages)),
    ("POST",   "/v1/packages/prune",                  Some(PrunePackages)),

    ("GET",    "/v1/tokens",                          Some(ListTokens)),
    ("POST",   "/v1/tokens",                          Some(CreateToken)),
    ("DELETE", "/v1/tokens/{token}",                  Some(RemoveToken)),
    ("GET",    "/v1/audit",                           Some(ReadAudit)),

    // Served on the Unix socket alone.
    ("POST",   "/v1/stop",                            Some(Stop)),
];

/// The action of a route; none: it is open to every caller, or there is no such route.
pub(super) fn of(method: &Method, path: &str) -> Option<Action> {
    // A HEAD is a GET without the body.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let row = ACTIONS.iter().find(|(verb, route, _)| *verb == method.as_str() && *route == path);
    row.and_then(|(_, _, action)| *action)
}

/// The methods that a path takes.
pub(super) fn methods(path: &str) -> Vec<&'static str> {
    ACTIONS.iter().filter(|(_, route, _)| *route == path).map(|(method, ..)| *method).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
            ACTIONS.iter().map(|(m, path, _)| ((*m).to_owned(), (*path).to_owned())).collect();
        routes.sort();
        table.sort();
        assert_eq!(routes, table);
    }

    #[test]
    fn no_two_routes_are_one_action() {
        let actions: Vec<Action> = ACTIONS.iter().filter_map(|(.., action)| *action).collect();
        let distinct: HashSet<Action> = actions.iter().copied().collect();
        assert_eq!(distinct.len(), actions.len());
        let other = |action: &&Action| !distinct.contains(action);
        let others: Vec<&Action> = Action::ALL.iter().filter(other).collect();
        // AWS Lambda's API has them.
        let of_lambda = [
            &Action::Configure,
            &Action::PublishLayer,
            &Action::ConfigureLayer,
            &Action::RemoveLayer,
            &Action::ShowLayer,
            &Action::ListLayers,
        ];
        assert_eq!(others, of_lambda, "an action that no route is");
    }

    #[test]
    fn what_changes_something_has_a_name_in_the_audit_log() {
        for (method, path, action) in ACTIONS {
            let changes = *method != "GET" && *path != "/run/{name}";
            let name = action.and_then(Action::audited);
            assert_eq!(name.is_some(), changes, "{method} {path}");
        }
    }

    #[test]
    fn a_head_is_the_action_of_its_get() {
        assert_eq!(of(&Method::HEAD, "/v1/functions"), Some(ListFunctions));
        assert_eq!(of(&Method::GET, "/healthz"), None);
    }
}
