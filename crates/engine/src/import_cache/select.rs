//! Where a call's instance is made from, as a plain function.
//!
//! It cannot miss: a root zygote has imported nothing, so every handler may be forked from it; and where no zygote can
//! be had at all, a fresh interpreter serves. No call waits for the zygote of its package set: it goes on from the root
//! while that one is made beside it.

use sandbox::Imports;

use crate::config::ZygotePolicy;

/// How it stands with one zygote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is none.
    Absent,
    /// It is being made.
    Making,
    /// It can be forked.
    Ready,
    /// It cannot be made, or cannot be forked safely; not now, or never.
    Refused,
}

/// Where to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The zygote of exactly this package set.
    Exact,
    /// The root.
    Root,
    /// The root, which has to be made, or waited for, first.
    NewRoot,
    /// A fresh interpreter.
    Fresh,
}

/// What to do for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) from: From,
    /// Whether to have the set's own zygote made, off the call's path.
    pub(crate) build: bool,
}

/// `exact` is none for a handler whose package set asks for no import: the root is its own zygote.
pub(crate) fn select(policy: ZygotePolicy, exact: Option<Standing>, root: Standing) -> Plan {
    let exact = exact.filter(|_| policy == ZygotePolicy::PerLock);
    let from = match (policy, exact, root) {
        (ZygotePolicy::None, _, _) => From::Fresh,
        (_, Some(Standing::Ready), _) => From::Exact,
        (_, _, Standing::Ready) => From::Root,
        (_, _, Standing::Absent | Standing::Making) => From::NewRoot,
        (_, _, Standing::Refused) => From::Fresh,
    };
    Plan { from, build: exact == Some(Standing::Absent) }
}

/// Why a zygote must not be forked, if it must not.
///
/// Threads do not survive a fork, and the locks that they hold stay locked for ever. A file from outside its own
/// package set may hold anything: such a zygote would bring it to handlers that never asked for it (DESIGN §6).
pub(crate) fn unfit(imports: &Imports) -> Option<String> {
    if imports.threads > 0 {
        return Some(format!("its imports left {} threads running", imports.threads));
    }
    let trusted = ["/opt/python/", "/opt/lambswool/", "/usr/"];
    let sealed =
        |file: &str| trusted.iter().any(|place| file.starts_with(place)) && !file.contains("/../");
    let stray = imports.files.iter().find(|(_, file)| !sealed(file));
    stray.map(|(module, file)| {
        format!("module {module} was loaded from {file}, outside its package set")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn standings() -> impl Strategy<Value = Standing> {
        prop::sample::select(vec![
            Standing::Absent,
            Standing::Making,
            Standing::Ready,
            Standing::Refused,
        ])
    }

    fn policies() -> impl Strategy<Value = ZygotePolicy> {
        prop::sample::select(vec![ZygotePolicy::None, ZygotePolicy::Root, ZygotePolicy::PerLock])
    }

    proptest! {
        #[test]
        fn only_a_zygote_that_is_ready_is_forked_from(policy in policies(), exact in prop::option::of(standings()), root in standings()) {
            match select(policy, exact, root).from {
                From::Exact => prop_assert_eq!(exact, Some(Standing::Ready)),
                From::Root => prop_assert_eq!(root, Standing::Ready),
                From::NewRoot => prop_assert!(matches!(root, Standing::Absent | Standing::Making)),
                From::Fresh => prop_assert!(policy == ZygotePolicy::None || root == Standing::Refused),
            }
        }

        #[test]
        fn no_call_waits_for_its_own_sets_zygote(policy in policies(), exact in standings()) {
            let plan = select(policy, Some(exact), Standing::Ready);
            prop_assert_ne!(plan.from, From::NewRoot);
        }

        #[test]
        fn a_zygote_is_built_once_and_only_where_the_policy_has_one(policy in policies(), exact in prop::option::of(standings()), root in standings()) {
            let build = select(policy, exact, root).build;
            prop_assert_eq!(build, policy == ZygotePolicy::PerLock && exact == Some(Standing::Absent));
        }
    }

    #[test]
    fn a_zygote_with_threads_or_a_file_from_elsewhere_is_unfit() {
        let file = |path: &str| Imports {
            files: vec![("m".to_owned(), path.to_owned())],
            ..Imports::default()
        };
        assert_eq!(unfit(&Imports::default()), None);
        assert_eq!(unfit(&file("/opt/python/numpy/__init__.py")), None);
        assert_eq!(unfit(&file("/usr/lib/python3.12/json/__init__.py")), None);
        assert!(unfit(&file("/tmp/m.py")).is_some());
        assert!(unfit(&file("/var/task/m.py")).is_some());
        assert!(unfit(&file("/opt/python/../../tmp/m.py")).is_some());
        assert!(unfit(&file("m.py")).is_some());
        assert!(unfit(&Imports { threads: 1, ..Imports::default() }).is_some());
    }

    #[test]
    fn a_failed_import_does_not_make_a_zygote_unfit() {
        let failed = vec![("extra".to_owned(), "ImportError: libGL.so.1".to_owned())];
        assert_eq!(unfit(&Imports { failed, ..Imports::default() }), None);
    }
}
