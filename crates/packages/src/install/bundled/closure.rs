//! Which of the recognised distributions move together.
//!
//! A function looks for a top-level name in its code first, then in its packages. So a name is of one of both: all files
//! below it move, or none. A name is that of a directory, or of a file up to its first dot: `six/`, `six.py` and
//! `six.cpython-311-….so` are one, and Python chooses among them by their order in one directory.
//!
//! A distribution with a name that stays, stays with all its names, which then stay as well.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::examine::Examined;
use super::{Brought, Distribution, Reason, Tree};

/// Sorts out what stays. `own` is the top-level name of the handler's module.
pub(super) fn over(tree: &Tree, own: &str, examined: Vec<Examined>) -> Brought {
    let (mut moving, mut refused) = (Vec::new(), BTreeMap::new());
    // Top-level names that stay, each with one of its files, which are still to be looked at.
    let mut staying = Staying::default();
    for Examined { info, listed, outcome } in examined {
        match outcome {
            Ok(distribution) => moving.push(Some(distribution)),
            Err(reason) => {
                staying.add(listed.iter().map(|path| &**path));
                refused.insert(info, reason);
            }
        }
    }
    let first = refused_at_once(&moving, own);
    let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
    let mut claimed = HashSet::new();
    for (at, one) in moving.iter().enumerate() {
        let names: BTreeSet<&str> = one.iter().flat_map(Distribution::claims).map(name).collect();
        names.into_iter().for_each(|name| by_name.entry(name.to_owned()).or_default().push(at));
        claimed.extend(one.iter().flat_map(Distribution::claims).map(str::to_owned));
    }
    staying.add(tree.paths().filter(|path| !claimed.contains(*path)));
    let mut stay = |at: usize, reason: Reason, staying: &mut Staying| {
        if let Some(one) = moving[at].take() {
            staying.add(one.claims());
            refused.insert(one.info, reason);
        }
    };
    first.into_iter().for_each(|(at, reason)| stay(at, reason, &mut staying));
    while let Some((name, path)) = staying.ahead.pop_front() {
        for at in by_name.remove(&name).unwrap_or_default() {
            stay(at, Reason::Shared(path.clone()), &mut staying);
        }
    }
    let distributions = moving.into_iter().flatten().collect();
    Brought { distributions, refused: refused.into_iter().collect() }
}

/// Top-level names that stay.
#[derive(Default)]
struct Staying {
    seen: HashSet<String>,
    /// Those whose other files are still to be found, each with one that stays.
    ahead: VecDeque<(String, String)>,
}

impl Staying {
    fn add<'a>(&mut self, paths: impl Iterator<Item = &'a str>) {
        for path in paths {
            if self.seen.insert(name(path).to_owned()) {
                self.ahead.push_back((name(path).to_owned(), path.to_owned()));
            }
        }
    }
}

/// What stays whatever its names are: one of several that call themselves the same, and the function itself.
fn refused_at_once(all: &[Option<Distribution>], own: &str) -> Vec<(usize, Reason)> {
    let mut called: HashMap<&str, Vec<&str>> = HashMap::new();
    for one in all.iter().flatten() {
        called.entry(&one.name).or_default().push(&one.info);
    }
    let reason = |one: &Distribution| {
        let mut others = called[&*one.name].iter().filter(|info| **info != one.info);
        if let Some(other) = others.next() {
            return Some(Reason::SameName((*other).to_owned()));
        }
        let is_function = one.claims().map(name).any(|name| name == own);
        is_function.then(|| Reason::Handler(own.to_owned()))
    };
    let each = all.iter().enumerate();
    each.filter_map(|(at, one)| Some((at, reason(one.as_ref()?)?))).collect()
}

/// The top-level name of a file.
fn name(path: &str) -> &str {
    let in_directory = path.split_once('/').map(|(top, _)| top);
    in_directory.unwrap_or_else(|| path.split('.').next().unwrap_or_default())
}
