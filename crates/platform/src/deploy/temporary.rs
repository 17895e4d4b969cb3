//! Which of the functions that `wool run` made give way.
//!
//! Each edit of a file makes another function, and no command removes them: they would fill their tenant's quota. So they
//! last as long as there is room for them, and the one that was deployed first goes first. A function stays that is being
//! called, that has secrets, or that the deploying caller may not touch. The next `wool run` of a removed function's file
//! deploys it again, in milliseconds.

use std::sync::Arc;

use crate::deploy::DeployError;
use crate::functions::{Function, Registry, RegistryError};
use crate::logs::Logs;
use crate::secrets::Vault;
use function::WholeName;

/// Most of one tenant, beside those that may not go.
pub(crate) const MOST: usize = 32;

/// What is to be deployed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming<'a> {
    pub(crate) name: &'a WholeName,
    /// Whether `wool run` made it.
    pub(crate) hidden: bool,
}

/// Removes all of them, with what they left: what `wool run` made lasts no longer than the worker that ran it.
///
/// # Errors
/// When one could not be removed.
pub async fn forget_hidden(
    registry: &Registry,
    logs: &Logs,
    vault: &Vault,
) -> Result<(), DeployError> {
    for function in registry.list().into_iter().filter(|function| function.stored.hidden) {
        let name = function.whole_name();
        registry.remove(&name).map_err(RegistryError::from)?;
        logs.remove(&name).await;
        vault.forget(&name)?;
    }
    Ok(())
}

/// Those that go so that `coming` may be deployed, the first first, where its tenant may have `most`; `kept` are those that
/// may not go. None: there would still be no room, and none is to go in vain.
pub(crate) fn victims(
    functions: &[Arc<Function>],
    coming: Coming<'_>,
    most: usize,
    kept: impl Fn(&Function) -> bool,
) -> Option<Vec<Arc<Function>>> {
    let of_tenant =
        functions.iter().filter(|one| one.current().record.tenant == coming.name.tenant());
    let (itself, others): (Vec<_>, Vec<_>) =
        of_tenant.partition(|one| one.name() == coming.name.name());
    let hidden: Vec<_> = others.iter().copied().filter(|one| one.stored.hidden).collect();
    let mut may_go: Vec<_> = hidden.iter().copied().filter(|one| !kept(one)).cloned().collect();
    may_go.sort_by_key(|one| one.stored.updated);
    // As many as are above, once there is one more.
    let above = |count: usize, most: usize| (count + 1).saturating_sub(most);
    let must = if itself.is_empty() { above(others.len(), most) } else { 0 };
    let crowd = if coming.hidden { above(hidden.len(), MOST) } else { 0 };
    if may_go.len() < must {
        return None;
    }
    may_go.truncate(must.max(crowd));
    Some(may_go)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use engine::Handler;

    use store::{FunctionRow, Version};

    pub(crate) fn function(tenant: &str, name: &str, hidden: bool, second: u64) -> Arc<Function> {
        let handler = serde_json::from_value(serde_json::json!({
            "id": name, "name": name, "tenant": tenant, "packages": null, "imports": [], "code": "code/c",
            "python": { "base": "base/b", "guest": "guest/g", "interpreter": "/usr/bin/python3" },
            "module": "m", "function": "f", "convention": "lambda", "binary": false, "environment": {},
            "limits": sandbox::Limits::default(), "network": "none",
            "timeout": { "secs": 1, "nanos": 0 }, "concurrency": 1,
        }));
        let handler: Handler = handler.unwrap();
        let updated = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let id = handler.id.clone();
        let record = crate::functions::tests::record(tenant, name);
        let current = Version { id, record, created: updated, warnings: Vec::new() };
        let stored = FunctionRow { current: Arc::new(current), hidden, updated };
        Arc::new(Function { stored, handler: Some(Arc::new(handler)), number: None })
    }

    fn going(
        functions: &[Arc<Function>],
        coming: &str,
        hidden: bool,
        most: usize,
    ) -> Option<Vec<String>> {
        let name = &function("acme", coming, hidden, 9).whole_name();
        let victims = victims(functions, Coming { name, hidden }, most, Function::is_called);
        victims.map(|all| all.iter().map(|one| one.name().to_owned()).collect())
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
        let first = |coming| going(&functions, coming, false, 4).unwrap();
        assert_eq!(first("run-9"), ["run-3"]);
        assert_eq!(first("run-3"), [""; 0], "it is there, and takes no room");
        let called = functions[2].handler.clone();
        assert_eq!(first("run-9"), ["run-4"]);
        drop(called);
        assert_eq!(first("run-9"), ["run-3"]);
    }

    #[test]
    fn as_many_go_as_have_to_and_none_where_that_would_not_do() {
        let functions = [
            function("acme", "deployed", false, 1),
            function("acme", "another", false, 2),
            function("acme", "run-4", true, 4),
            function("acme", "run-3", true, 3),
            function("emca", "run-of-another", true, 2),
        ];
        let going = |most| going(&functions, "new", false, most);
        assert_eq!(going(usize::MAX).unwrap(), [""; 0]);
        assert_eq!(going(5).unwrap(), [""; 0]);
        assert_eq!(going(4).unwrap(), ["run-3"]);
        assert_eq!(going(3).unwrap(), ["run-3", "run-4"]);
        assert_eq!(going(2), None);
        assert_eq!(going(0), None);
        let _called = functions[3].handler.clone();
        assert_eq!(going(4).unwrap(), ["run-4"]);
        assert_eq!(going(3), None);
    }

    #[test]
    fn there_are_so_many_of_a_tenant_and_what_is_deployed_does_not_count() {
        let mut functions: Vec<_> =
            (1..MOST as u64).map(|n| function("acme", &format!("run-{n}"), true, n)).collect();
        functions.push(function("acme", "deployed", false, 0));
        functions.push(function("emca", "run-1", true, 0));
        let going =
            |functions: &[_], coming, hidden| going(functions, coming, hidden, usize::MAX).unwrap();
        assert_eq!(going(&functions, "run-new", true), [""; 0]);
        functions.push(function("acme", "run-last", true, 99));
        assert_eq!(going(&functions, "run-new", true), ["run-1"]);
        assert_eq!(going(&functions, "run-last", true), [""; 0], "it is there already");
        assert_eq!(going(&functions, "new", false), [""; 0], "it is not one of them");
        let _called: Vec<_> = functions.iter().map(|one| one.handler.clone()).collect();
        assert_eq!(going(&functions, "run-new", true), [""; 0], "one more, while all are called");
    }
}
