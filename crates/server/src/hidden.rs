//! Which of the functions that `wool run` made give way.
//!
//! Each edit of a file is another function, and nobody removes them: they would fill their tenant's quota. So they last as
//! long as there is room for them, and the one that was deployed first goes first. Never one that is being called, nor one
//! that somebody has given secrets. Whoever runs its file again finds it missing and deploys it again, in milliseconds.

use std::sync::Arc;

use crate::name::WholeName;
use crate::registry::Function;

/// Most of one tenant, beside those that may not go.
pub(crate) const MOST: usize = 32;

/// Whether as many are there as there may be, when `coming` is one of them.
pub(crate) fn are_crowded(functions: &[Arc<Function>], coming: &WholeName) -> bool {
    beside(functions, coming).count() >= MOST
}

/// The one that is to go first so that `coming` may be deployed; `kept` are those that may not go.
pub(crate) fn first_to_go<'a>(
    functions: &'a [Arc<Function>],
    coming: &WholeName,
    kept: impl Fn(&Function) -> bool,
) -> Option<&'a Arc<Function>> {
    beside(functions, coming).filter(|one| !kept(one)).min_by_key(|one| one.updated)
}

fn beside<'a>(
    functions: &'a [Arc<Function>],
    coming: &WholeName,
) -> impl Iterator<Item = &'a Arc<Function>> {
    functions.iter().filter(move |one| {
        let name = one.whole_name();
        one.hidden && name.tenant() == coming.tenant() && name != *coming
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::registry::Version;

    fn function(tenant: &str, name: &str, hidden: bool, second: u64) -> Arc<Function> {
        let handler = serde_json::from_value(serde_json::json!({
            "id": name, "name": name, "tenant": tenant, "packages": null, "imports": [], "code": "code/c",
            "python": { "base": "base/b", "guest": "guest/g", "interpreter": "/usr/bin/python3" },
            "module": "m", "function": "f", "convention": "lambda", "binary": false, "environment": {},
            "limits": sandbox::Limits::default(), "network": "none",
            "timeout": { "secs": 1, "nanos": 0 }, "concurrency": 1,
        }));
        let updated = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let current = Version {
            handler: Arc::new(handler.unwrap()),
            created: updated,
            manifest: serde_json::Value::Null,
            lock: String::new(),
        };
        Arc::new(Function { current: Arc::new(current), hidden, updated })
    }

    #[test]
    fn the_first_of_the_tenants_own_goes_first_unless_it_is_called_or_comes_itself() {
        let functions = [
            function("acme", "deployed", false, 1),
            function("emca", "run-of-another", true, 2),
            function("acme", "run-3", true, 3),
            function("acme", "run-5", true, 5),
            function("acme", "run-4", true, 4),
        ];
        let first = |coming: &str| {
            let coming = function("acme", coming, true, 9).whole_name();
            let one = first_to_go(&functions, &coming, Function::is_called);
            one.map(|one| one.name().to_owned())
        };
        assert_eq!(first("run-9").as_deref(), Some("run-3"));
        assert_eq!(first("run-3").as_deref(), Some("run-4"));
        let [three, five, _four] =
            [2, 3, 4].map(|index: usize| Arc::clone(&functions[index].current.handler));
        assert_eq!(first("run-9"), None, "all are called");
        drop(five);
        assert_eq!(first("run-9").as_deref(), Some("run-5"));
        drop(three);
        assert_eq!(first("run-9").as_deref(), Some("run-3"));
    }

    #[test]
    fn there_are_so_many_of_a_tenant_and_what_is_deployed_does_not_count() {
        let mut functions: Vec<_> =
            (1..MOST as u64).map(|n| function("acme", &format!("run-{n}"), true, n)).collect();
        functions.push(function("acme", "deployed", false, 0));
        functions.push(function("emca", "run-1", true, 0));
        let crowded = |functions: &[_], coming: &str| {
            are_crowded(functions, &function("acme", coming, true, 0).whole_name())
        };
        assert!(!crowded(&functions, "run-new"));
        functions.push(function("acme", "run-last", true, 99));
        assert!(crowded(&functions, "run-new"));
        assert!(!crowded(&functions, "run-last"), "it is there already");
    }
}
