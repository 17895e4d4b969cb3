//! What every store of the audit log does.

use super::Backend;
use crate::ActionRow;

/// More lines than a test writes.
const ALL: usize = 1000;

fn append(backend: &impl Backend, group: &str, done: bool, lines: &[&str], keep: usize) {
    let mut store = backend.actions();
    for line in lines {
        let (group, line) = (group.to_owned(), (*line).to_owned());
        store.append(&ActionRow { group, done, line }, keep).unwrap();
    }
}

fn last(backend: &impl Backend, most: usize) -> Vec<String> {
    backend.actions().last(most).unwrap()
}

/// Lines of all groups are one list, in the order in which they came.
pub fn actions_are_read_in_the_order_in_which_they_came<B: Backend>() {
    let backend = B::default();
    assert_eq!(last(&backend, ALL), [""; 0]);
    append(&backend, "acme", true, &["1", "2"], ALL);
    append(&backend, "b", false, &["3", "🐑\n"], ALL);
    append(&backend, "acme", true, &["5", "5"], ALL);
    assert_eq!(last(&backend, ALL), ["1", "2", "3", "🐑\n", "5", "5"]);
    assert_eq!(last(&backend, 3), ["🐑\n", "5", "5"]);
    assert_eq!(last(&backend, 0), [""; 0]);
}

/// A line makes room in its own group and outcome, and in no other.
pub fn an_action_makes_room_in_its_own_group_alone<B: Backend>() {
    let backend = B::default();
    append(&backend, "acme", true, &["done 1", "done 2", "done 3"], ALL);
    append(&backend, "acme", false, &["refused 1"], ALL);
    append(&backend, "Acme", true, &["other 1"], ALL);
    append(&backend, "acme", false, &["refused 2", "refused 3", "refused 4"], 2);
    let done = ["done 1", "done 2", "done 3"];
    assert_eq!(last(&backend, ALL), [&done[..], &["other 1", "refused 3", "refused 4"]].concat());
    append(&backend, "acme", true, &["done 4"], 2);
    backend.actions().sync().unwrap();
    assert_eq!(last(&backend, ALL), ["done 3", "other 1", "refused 3", "refused 4", "done 4"]);
}
