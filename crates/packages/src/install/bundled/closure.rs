//! Which of the recognised distributions move together.
//!
//! A function looks for a top-level name in its code first, then in its packages. So a name is of one of both: all files
//! below it move, or none. A name is that of a directory, or of a file up to its first dot: `six/`, `six.py` and
//! `six.cpython-311-….so` are one, and Python chooses among them by their order in one directory.
//!
//! A distribution with a name that stays, stays with all its names, so this is repeated until nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use super::examine::Examined;
use super::{Brought, Distribution, Reason, Tree};

/// Sorts out what stays. `own` is the top-level name of the handler's module.
pub(super) fn over(tree: &Tree, own: &str, examined: Vec<Examined>) -> Brought {
    let (mut moving, mut refused) = (Vec::new(), BTreeMap::new());
    // Names of files that those which stay list, each with one of them.
    let mut staying: BTreeMap<String, String> = BTreeMap::new();
    for Examined { info, listed, outcome } in examined {
        match outcome {
            Ok(distribution) => moving.push(distribution),
            Err(reason) => {
                staying.extend(listed.into_iter().map(|path| (name(&path).to_owned(), path)));
                refused.insert(info, reason);
            }
        }
    }
    loop {
        let claimed: BTreeSet<&str> = moving.iter().flat_map(Distribution::claims).collect();
        let unclaimed = tree.paths().filter(|path| !claimed.contains(path));
        let of_code = unclaimed.map(|path| (name(path).to_owned(), path.to_owned()));
        staying.extend(of_code);
        let stays: BTreeMap<String, Reason> = moving
            .iter()
            .filter_map(|one| Some((one.info.clone(), why_it_stays(one, &moving, own, &staying)?)))
            .collect();
        if stays.is_empty() {
            break;
        }
        for one in moving.extract_if(.., |one| stays.contains_key(&one.info)) {
            staying.extend(one.claims().map(|path| (name(path).to_owned(), path.to_owned())));
        }
        refused.extend(stays);
    }
    Brought { distributions: moving, refused: refused.into_iter().collect() }
}

fn why_it_stays(
    one: &Distribution,
    all: &[Distribution],
    own: &str,
    staying: &BTreeMap<String, String>,
) -> Option<Reason> {
    if let Some(other) = all.iter().find(|it| it.name == one.name && it.info != one.info) {
        return Some(Reason::SameName(other.info.clone()));
    }
    if one.claims().map(name).any(|name| name == own) {
        return Some(Reason::Handler(own.to_owned()));
    }
    one.claims()
        .map(name)
        .find_map(|name| staying.get(name))
        .map(|path| Reason::Shared(path.clone()))
}

/// The top-level name of a file.
fn name(path: &str) -> &str {
    let in_directory = path.split_once('/').map(|(top, _)| top);
    in_directory.unwrap_or_else(|| path.split('.').next().unwrap_or_default())
}
