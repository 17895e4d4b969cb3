//! What every store of secrets does.

use std::time::Duration;

use super::{Backend, MANY, ODD, at};
use crate::{NONCE_BYTES, Sealed, SecretRow, WholeName};

pub(super) fn owner(tenant: &str, function: &str) -> WholeName {
    WholeName::stored(tenant.to_owned(), function.to_owned())
}

pub(super) fn secret(owner: &WholeName, key: &str, text: &[u8]) -> SecretRow {
    let sealed = Sealed { nonce: [7; NONCE_BYTES], text: text.to_vec() };
    SecretRow { owner: owner.clone(), key: key.to_owned(), sealed, updated: at(1) }
}

fn put<'a>(backend: &impl Backend, secrets: impl IntoIterator<Item = &'a SecretRow>) {
    let mut store = backend.secrets();
    secrets.into_iter().for_each(|secret| store.put(secret).unwrap());
}

/// What a store that is opened now lists.
pub(super) fn secrets(backend: &impl Backend) -> Vec<SecretRow> {
    backend.secrets().list().unwrap()
}

/// A new store holds no secret, and what is not there can be removed.
pub fn a_new_store_holds_no_secret<B: Backend>() {
    let backend = B::default();
    assert_eq!(secrets(&backend), []);
    let owner = owner("default", "f");
    assert!(!backend.secrets().remove(&owner, "KEY").unwrap());
    backend.secrets().forget(&owner).unwrap();
    assert_eq!(secrets(&backend), []);
    assert_ne!(backend.secrets().location(), "");
}

/// Every byte of a secret is kept, and its time to the millisecond.
pub fn a_secret_comes_back_as_it_was_put<B: Backend>() {
    let backend = B::default();
    let mut nonce = [0; NONCE_BYTES];
    (0..).zip(&mut nonce).for_each(|(number, byte)| *byte = 255 - number);
    let text = (0..=255).cycle().take(40 << 10).collect();
    let large = SecretRow {
        owner: owner("acme", "f"),
        key: "KEY".to_owned(),
        sealed: Sealed { nonce, text },
        updated: at(123) + Duration::from_nanos(999_999),
    };
    let empty = secret(&owner("default", "f"), "KEY", b"");
    put(&backend, [&large, &empty]);
    let large = SecretRow { updated: at(123), ..large };
    assert_eq!(secrets(&backend), [large, empty]);
}

/// A secret has one value: the last that was put.
pub fn a_secret_that_is_put_again_is_replaced<B: Backend>() {
    let backend = B::default();
    let owner = owner("default", "f");
    let (first, other) = (secret(&owner, "KEY", b"first"), secret(&owner, "OTHER", b"other"));
    put(&backend, [&first, &other]);
    let sealed = Sealed { nonce: [8; NONCE_BYTES], text: b"a second, longer one".to_vec() };
    let second = SecretRow { sealed, updated: at(2), ..first };
    put(&backend, [&second]);
    assert_eq!(secrets(&backend), [second, other]);
}

/// Only the secret of that tenant, function and key is removed.
pub fn a_removed_secret_is_gone_and_the_others_stay<B: Backend>() {
    let backend = B::default();
    let ours = owner("default", "f");
    let gone = secret(&ours, "KEY", b"gone");
    let others = [
        secret(&owner("acme", "f"), "KEY", b"another tenant's"),
        secret(&ours, "KEY2", b"another key's"),
        secret(&owner("default", "g"), "KEY", b"another function's"),
    ];
    put(&backend, others.iter().chain([&gone]));
    let mut store = backend.secrets();
    assert!(store.remove(&ours, "KEY").unwrap());
    assert!(!store.remove(&ours, "KEY").unwrap());
    drop(store);
    assert_eq!(secrets(&backend), others);
    put(&backend, [&gone]);
    assert_eq!(secrets(&backend).len(), 4, "it can be put again");
}

/// Only the secrets of that tenant's function are removed.
pub fn a_forgotten_function_has_no_secret_and_the_others_keep_theirs<B: Backend>() {
    let backend = B::default();
    let ours = owner("default", "f");
    let gone = ["A", "B", "C"].map(|key| secret(&ours, key, b"gone"));
    let others = [
        secret(&owner("acme", "f"), "A", b"another tenant's"),
        secret(&owner("default", "f2"), "A", b"another function's"),
        secret(&owner("f", "default"), "A", b"a tenant named as the function"),
    ];
    put(&backend, gone.iter().chain(&others));
    backend.secrets().forget(&ours).unwrap();
    assert_eq!(secrets(&backend), others);
    backend.secrets().forget(&ours).unwrap();
    assert_eq!(secrets(&backend), others);
}

/// The first witness is kept, and no secret comes or goes with it.
pub fn the_first_witness_stays<B: Backend>() {
    let backend = B::default();
    let witness = |byte| Sealed { nonce: [byte; NONCE_BYTES], text: vec![byte; 60] };
    let owner = owner("default", "f");
    let mut store = backend.secrets();
    assert_eq!(store.witness(&witness(1)).unwrap(), witness(1));
    assert_eq!(store.witness(&witness(2)).unwrap(), witness(1));
    drop(store);
    assert_eq!(backend.secrets().witness(&witness(3)).unwrap(), witness(1));
    assert_eq!(secrets(&backend), [], "it is no secret of a function");
    put(&backend, [&secret(&owner, "KEY", b"value")]);
    backend.secrets().forget(&owner).unwrap();
    assert_eq!(backend.secrets().witness(&witness(4)).unwrap(), witness(1));
}

/// The order of a list is that of the names' bytes, and not that of the writes.
pub fn secrets_are_listed_by_tenant_function_and_key<B: Backend>() {
    let backend = B::default();
    let row = |tenant, function, key| secret(&owner(tenant, function), key, b"value");
    let sorted = [
        row("a", "f", "A"),
        row("a", "f", "B"),
        row("a", "f", "a"),
        row("a", "f-2", "A"),
        row("a", "f2", "A"),
        row("a-b", "a", "A"),
        row("b", "F", "A"),
        row("b", "f", "A"),
    ];
    put(&backend, [7, 0, 3, 5, 1, 6, 4, 2].map(|number| &sorted[number]));
    assert_eq!(secrets(&backend), sorted);
}

/// Tenants, functions and keys are any text, and never run into each other.
pub fn a_secret_may_have_any_name<B: Backend>() {
    let backend = B::default();
    let odd = ODD.iter().flat_map(|name| {
        [
            secret(&owner(name, "f"), "KEY", b"of a tenant"),
            secret(&owner("t", name), "KEY", b"of a function"),
            secret(&owner("t", "f"), name, b"of a key"),
        ]
    });
    let mut expected: Vec<SecretRow> = odd.collect();
    expected.push(secret(&owner("a", "bc"), "d", b"1"));
    expected.push(secret(&owner("ab", "c"), "d", b"2"));
    expected.push(secret(&owner("a", "b"), "cd", b"3"));
    put(&backend, &expected);
    expected.sort_by_key(|row| (row.owner.clone(), row.key.clone()));
    assert_eq!(secrets(&backend), expected);
    assert!(backend.secrets().remove(&owner("t", "%"), "KEY").unwrap());
    backend.secrets().forget(&owner("_", "f")).unwrap();
    expected.retain(|row| row.owner != owner("t", "%") && row.owner != owner("_", "f"));
    assert_eq!(secrets(&backend), expected);
}

/// Many secrets are kept, of many functions.
pub fn many_secrets_are_kept<B: Backend>() {
    let backend = B::default();
    let row = |number: usize| {
        let owner = owner(&format!("t{}", number / 40), &format!("f{}", number / 10 % 4));
        secret(&owner, &format!("KEY{}", number % 10), &number.to_le_bytes())
    };
    let all: Vec<SecretRow> = (0..MANY).map(row).collect();
    put(&backend, all.iter().rev());
    assert_eq!(secrets(&backend), all);
    backend.secrets().forget(&owner("t1", "f2")).unwrap();
    let (before, after) = (&all[..60], &all[70..]);
    assert_eq!(secrets(&backend), [before, after].concat());
}
