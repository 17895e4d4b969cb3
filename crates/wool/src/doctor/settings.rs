//! What follows from the settings on this machine.

use container::{Isolation, RootMount};
use sys::probe::{Host, Kernel};

use super::Finding;
use super::host::DETACHED;
use crate::config::{Config, Listed};
use crate::worker::capacity;
use crate::worker::unenforced::{self, Enforcement};
use platform::limits::Capacity;
use platform::network_policy::Pattern;

/// Fewer sandboxes at once than this are soon taken by a zygote, what it keeps ready, and a few calls.
const FEW: usize = 64;

pub(super) fn all(host: &Host, config: &Config) -> [Finding; 4] {
    let isolation = isolation(host.kernel, config.internals.container_recipe);
    [isolation, limits(host, config), network(config), capacity(host, config)]
}

/// Which limits and lines of defence a worker with these settings would not enforce here.
fn limits(host: &Host, config: &Config) -> Finding {
    let what = "limits";
    let missing = Enforcement::probed(host, config.internals.container_recipe).unenforced();
    if missing.is_empty() {
        return Finding::ok(what, "all enforced");
    }
    let found = format!("not enforced: {}", unenforced::listed(&missing));
    match config.strict {
        true => Finding::missing(what, found, "put that right, or leave `strict` out"),
        false => Finding::degraded(what, found, "`strict = true` would refuse to start"),
    }
}

/// Which isolation is set, how it is done on this kernel, and what it costs.
fn isolation(kernel: Kernel, set: Isolation) -> Finding {
    let what = "isolation";
    let roots = match set.root {
        RootMount::Detached if kernel < DETACHED => "roots staged instead of detached",
        RootMount::Detached => "roots detached",
        RootMount::Staged => "roots staged",
        RootMount::Bind => "roots in the warden's mount table",
    };
    let found = format!("{set}: {roots}");
    if set == Isolation::LEAN {
        let Kernel(major, minor) = DETACHED;
        return match kernel < DETACHED {
            false => Finding::ok(what, found),
            true => Finding::degraded(
                what,
                found,
                format!(
                    "nothing has to be done: some microseconds more for each start, and no forks that wait for their code, before Linux {major}.{minor}"
                ),
            ),
        };
    }
    let mut costs = vec!["for measurements".to_owned()];
    costs.extend(set.weaker().into_iter().map(str::to_owned));
    if !set.forks() {
        costs.push("nothing is forked: each instance starts a fresh interpreter".to_owned());
    }
    Finding::degraded(
        what,
        found,
        format!(
            "{}: leave `internals.container_recipe` out for \"{}\"",
            costs.join("; "),
            Isolation::LEAN
        ),
    )
}

/// Which functions may reach something.
fn network(config: &Config) -> Finding {
    let what = "network";
    let names = |patterns: &Listed<Pattern>| {
        patterns.0.iter().cloned().map(String::from).collect::<Vec<_>>().join(", ")
    };
    if !config.host_network.0.is_empty() {
        return Finding::degraded(
            what,
            format!("functions in the host's own: {}", names(&config.host_network)),
            "they reach whatever this host reaches, the worker's API included: where a list of destinations would do, move them from `host_network` to `egress`",
        );
    }
    let program = crate::worker::wiring::proxy_program();
    if !config.egress.0.is_empty() && !program.as_ref().is_ok_and(|path| path.is_file()) {
        return Finding::missing(
            what,
            "no wool-egress beside this program",
            "install it there: functions with `network = \"egress\"` are served by it",
        );
    }
    match (config.egress.0.is_empty(), config.egress_allow.0.len()) {
        (true, _) => Finding::ok(what, "no function reaches anything"),
        (false, 0) => Finding::ok(
            what,
            format!("public addresses that they list: functions {}", names(&config.egress)),
        ),
        (false, more) => Finding::ok(
            what,
            format!(
                "public addresses that they list, and {more} entries of egress_allow: functions {}",
                names(&config.egress)
            ),
        ),
    }
}

/// How many sandboxes there may be at once.
fn capacity(host: &Host, config: &Config) -> Finding {
    let what = "sandboxes";
    // A worker that is started from here may have what we may have; its warden is root's.
    let means = capacity::Means::of(host, sys::descriptors::most(), None);
    let allowed = means.capacity();
    if let Some(set) = config.sandboxes.filter(|set| *set > allowed.sandboxes) {
        let Capacity { sandboxes, bound_by } = allowed;
        return Finding::degraded(
            what,
            format!("{set} are set, and {sandboxes} are allowed, bound by {bound_by}"),
            "raise what bounds them, or lower the setting `sandboxes`",
        );
    }
    let Capacity { sandboxes, bound_by } = capacity::chosen(allowed, config);
    let found = format!("at most {sandboxes} at once, bound by {bound_by}");
    if sandboxes < FEW {
        return Finding::degraded(what, found, "raise what bounds them, for more calls at a time");
    }
    Finding::ok(what, found)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_isolation_for_measurements_is_told_with_what_it_gives_up() {
        let judged = |text: &str| isolation(Kernel(6, 18), text.parse().unwrap());
        assert_eq!(judged("lean").level, Level::Ok);
        let sock = judged("sock");
        assert_eq!(sock.level, Level::Degraded);
        assert!(sock.found.starts_with("sock: roots in"), "{sock:?}");
        assert!(sock.advice.contains("hostile package"), "{sock:?}");
        assert!(judged("general").advice.contains("nothing is forked"));
    }

    #[test]
    fn who_reaches_something_is_told_and_the_hosts_network_with_a_warning() {
        let listed = |text: &str| Listed(vec![text.parse().unwrap()]);
        let none = network(&Config::default());
        assert_eq!((none.level, none.found.as_str()), (Level::Ok, "no function reaches anything"));
        let host = Config { host_network: listed("metrics"), ..Config::default() };
        let judged = network(&host);
        assert_eq!(judged.level, Level::Degraded);
        assert!(judged.found.contains("metrics") && judged.advice.contains("egress"), "{judged:?}");
        // The tests' own program has none beside it.
        let egress = Config { egress: listed("fetch-*"), ..Config::default() };
        assert_eq!(network(&egress).level, Level::Missing);
    }

    #[test]
    fn a_limit_that_would_not_be_enforced_is_told_and_is_an_error_to_who_is_strict() {
        let host = Host { cpu: false, ..Host::probe() };
        let judged = limits(&host, &Config::default());
        assert_eq!(judged.level, Level::Degraded);
        assert!(judged.found.contains("processors (no cgroup controller"), "{judged:?}");
        let strict = Config { strict: true, ..Config::default() };
        assert_eq!(limits(&host, &strict).level, Level::Missing);
    }

    #[test]
    fn an_older_kernel_stages_and_that_is_said() {
        let old = isolation(Kernel(6, 1), Isolation::LEAN);
        assert_eq!((old.level, old.found.contains("staged")), (Level::Degraded, true));
    }

    #[test]
    fn a_bound_that_leaves_few_sandboxes_is_told() {
        let few = Config { sandboxes: Some(3), ..Config::default() };
        let judged = capacity(&Host::probe(), &few);
        assert_eq!(judged.level, Level::Degraded);
        assert!(judged.found.contains("at most 3 at once"), "{judged:?}");
        let many = Config { sandboxes: Some(usize::MAX), ..Config::default() };
        let judged = capacity(&Host::probe(), &many);
        assert_eq!(judged.level, Level::Degraded);
        assert!(judged.found.contains("are allowed, bound by"), "{judged:?}");
    }
}
