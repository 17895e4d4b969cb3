//! The suite that every implementation passes.
//!
//! ```ignore
//! #[derive(Default)]
//! struct Directory(…);
//!
//! impl store::conformance::Backend for Directory { … }
//!
//! store::conformance!(Directory); // A test for each function of this page.
//! ```
//!
//! Each function makes a new backend, and opens its stores again before it looks: what was
//! acknowledged is what a later process finds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{HASH_BYTES, NONCE_BYTES, Sealed, SecretRow, Secrets, TokenRow, Tokens, WholeName};

/// What holds content while no store is open: a directory, or memory. `default` makes an empty one.
pub trait Backend: Default {
    /// Opens the tokens of this backend. No other store of its tokens is open.
    fn tokens(&self) -> Box<dyn Tokens>;

    /// Opens the secrets of this backend. No other store of its secrets is open.
    fn secrets(&self) -> Box<dyn Secrets>;
}

/// Makes a test of each function of [the suite](mod@crate::conformance) for a type that is a
/// [`Backend`](crate::conformance::Backend).
#[macro_export]
macro_rules! conformance {
    ($backend:ty) => {
        $crate::conformance! { $backend:
            a_new_store_holds_no_token
            a_token_comes_back_as_it_was_inserted
            a_tokens_times_are_kept_to_the_millisecond
            a_name_and_an_id_are_taken_once
            a_removed_token_is_gone_and_its_name_is_free
            that_there_was_a_token_outlives_its_removal
            tokens_are_listed_by_the_bytes_of_their_names
            a_token_may_have_any_name
            many_tokens_are_kept
            a_new_store_holds_no_secret
            a_secret_comes_back_as_it_was_put
            a_secret_that_is_put_again_is_replaced
            a_removed_secret_is_gone_and_the_others_stay
            a_forgotten_function_has_no_secret_and_the_others_keep_theirs
            the_first_witness_stays
            secrets_are_listed_by_tenant_function_and_key
            a_secret_may_have_any_name
            many_secrets_are_kept
            tokens_and_secrets_share_a_backend
        }
    };
    ($backend:ty: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::$name::<$backend>();
            }
        )*
    };
}

/// Names that an implementation might fold, escape, cut or take for syntax.
const ODD: [&str; 14] = [
    "Ci",
    "ci",
    " ci",
    "ci ",
    "ci'; DROP TABLE tokens; --",
    "\"ci\"",
    "%",
    "_",
    "*",
    "../ci/.",
    "line\nbreak",
    // One letter, written in two ways.
    "\u{e9}",
    "e\u{301}",
    "𝓬𝓲 🐑",
];

/// How many rows "many" are. Each is a write that waits for the disk.
const MANY: usize = 200;

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + millis)
}

/// A token of this name, with an id of its own.
fn token(name: &str) -> TokenRow {
    TokenRow {
        id: format!("id of {name}"),
        name: name.to_owned(),
        tenant: "default".to_owned(),
        hash: [7; HASH_BYTES],
        scopes: ["invoke".to_owned()].into(),
        functions: Vec::new(),
        created: at(1),
        expires: None,
    }
}

fn owner(tenant: &str, function: &str) -> WholeName {
    WholeName::stored(tenant.to_owned(), function.to_owned())
}

fn secret(owner: &WholeName, key: &str, text: &[u8]) -> SecretRow {
    let sealed = Sealed { nonce: [7; NONCE_BYTES], text: text.to_vec() };
    SecretRow { owner: owner.clone(), key: key.to_owned(), sealed, updated: at(1) }
}

fn insert(backend: &impl Backend, names: impl IntoIterator<Item = impl AsRef<str>>) {
    let mut tokens = backend.tokens();
    for name in names {
        assert!(tokens.insert(&token(name.as_ref())).unwrap(), "{}", name.as_ref());
    }
}

fn put<'a>(backend: &impl Backend, secrets: impl IntoIterator<Item = &'a SecretRow>) {
    let mut store = backend.secrets();
    secrets.into_iter().for_each(|secret| store.put(secret).unwrap());
}

/// What a store that is opened now lists.
fn tokens(backend: &impl Backend) -> Vec<TokenRow> {
    backend.tokens().list().unwrap()
}

fn names(backend: &impl Backend) -> Vec<String> {
    tokens(backend).into_iter().map(|token| token.name).collect()
}

/// What a store that is opened now lists.
fn secrets(backend: &impl Backend) -> Vec<SecretRow> {
    backend.secrets().list().unwrap()
}

/// A new store holds no token, and there never was one.
pub fn a_new_store_holds_no_token<B: Backend>() {
    let backend = B::default();
    assert_eq!(tokens(&backend), []);
    assert!(!backend.tokens().ever_inserted().unwrap());
    assert!(!backend.tokens().remove("ci").unwrap());
    assert!(!backend.tokens().ever_inserted().unwrap());
}

/// Every field of a token is kept.
pub fn a_token_comes_back_as_it_was_inserted<B: Backend>() {
    let backend = B::default();
    let mut hash = [0; HASH_BYTES];
    (0..).zip(&mut hash).for_each(|(number, byte)| *byte = 255 - number);
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let rich = TokenRow {
        id: "4f1c09a2b7d3".to_owned(),
        name: "ci".to_owned(),
        tenant: "acme".to_owned(),
        hash,
        scopes: ["deploy", "invoke", "read"].map(str::to_owned).into(),
        // In this order, and twice.
        functions: words(&["report-*", "a,b", "[\"x\"]", "\u{e9}🐑", "report-*"]),
        created: at(123),
        expires: Some(at(456)),
    };
    let poor = TokenRow { scopes: [].into(), ..token("plain") };
    let mut store = backend.tokens();
    assert!(store.insert(&rich).unwrap() && store.insert(&poor).unwrap());
    assert_eq!(store.list().unwrap(), [rich.clone(), poor.clone()], "before it is opened again");
    drop(store);
    assert_eq!(tokens(&backend), [rich, poor]);
}

/// Finer parts of a time are cut off.
pub fn a_tokens_times_are_kept_to_the_millisecond<B: Backend>() {
    let backend = B::default();
    let finer = Duration::from_nanos(999_999);
    let exact = TokenRow { expires: Some(at(1)), ..token("exact") };
    let fine = TokenRow { created: at(1) + finer, expires: Some(at(1) + finer), ..token("fine") };
    let mut store = backend.tokens();
    assert!(store.insert(&exact).unwrap() && store.insert(&fine).unwrap());
    let expected = TokenRow { created: at(1), expires: Some(at(1)), ..fine };
    assert_eq!(store.list().unwrap(), [exact.clone(), expected.clone()]);
    drop(store);
    assert_eq!(tokens(&backend), [exact, expected]);
}

/// A second token of a name or an id is refused, for another tenant too, and changes nothing.
pub fn a_name_and_an_id_are_taken_once<B: Backend>() {
    let backend = B::default();
    insert(&backend, ["ci"]);
    let mut store = backend.tokens();
    let same_name = TokenRow { id: "other".to_owned(), ..token("ci") };
    assert!(!store.insert(&same_name).unwrap());
    let of_another = TokenRow { tenant: "acme".to_owned(), ..same_name };
    assert!(!store.insert(&of_another).unwrap());
    let same_id = TokenRow { name: "other".to_owned(), ..token("ci") };
    assert!(!store.insert(&same_id).unwrap());
    drop(store);
    assert_eq!(tokens(&backend), [token("ci")]);
}

/// Removing a token spares the others, and its name and its id can be taken again.
pub fn a_removed_token_is_gone_and_its_name_is_free<B: Backend>() {
    let backend = B::default();
    insert(&backend, ["a", "b"]);
    let mut store = backend.tokens();
    assert!(store.remove("a").unwrap());
    assert!(!store.remove("a").unwrap());
    drop(store);
    assert_eq!(tokens(&backend), [token("b")]);
    let again = TokenRow { tenant: "acme".to_owned(), ..token("a") };
    assert!(backend.tokens().insert(&again).unwrap());
    assert_eq!(tokens(&backend), [again, token("b")]);
}

/// A store remembers that it held a token once.
pub fn that_there_was_a_token_outlives_its_removal<B: Backend>() {
    let backend = B::default();
    let mut store = backend.tokens();
    assert!(store.insert(&token("ci")).unwrap());
    assert!(store.ever_inserted().unwrap());
    drop(store);
    assert!(backend.tokens().ever_inserted().unwrap());
    assert!(backend.tokens().remove("ci").unwrap());
    assert!(backend.tokens().ever_inserted().unwrap());
}

/// The order of a list is that of the names' bytes, and not that of the writes.
pub fn tokens_are_listed_by_the_bytes_of_their_names<B: Backend>() {
    let backend = B::default();
    insert(&backend, ["b", "é", "a-b", "B", "a", "10", "ab", "9", "z"]);
    assert_eq!(names(&backend), ["10", "9", "B", "a", "a-b", "ab", "b", "z", "é"]);
}

/// A name is any text: nothing in it is folded, cut or taken for syntax.
pub fn a_token_may_have_any_name<B: Backend>() {
    let backend = B::default();
    insert(&backend, ODD);
    let mut expected = ODD.to_vec();
    expected.sort_unstable();
    assert_eq!(names(&backend), expected);
    assert!(backend.tokens().remove("%").unwrap());
    expected.retain(|&name| name != "%");
    assert_eq!(names(&backend), expected);
}

/// Many tokens are kept, whatever the order of insertions and removals.
pub fn many_tokens_are_kept<B: Backend>() {
    let backend = B::default();
    let name = |number: usize| format!("t{number:04}");
    insert(&backend, (0..MANY).rev().map(name));
    assert_eq!(names(&backend), (0..MANY).map(name).collect::<Vec<_>>());
    let mut store = backend.tokens();
    for number in (0..MANY).step_by(2) {
        assert!(store.remove(&name(number)).unwrap());
    }
    drop(store);
    assert_eq!(names(&backend), (1..MANY).step_by(2).map(name).collect::<Vec<_>>());
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

/// Both stores of a backend can be open, and neither sees what the other holds.
pub fn tokens_and_secrets_share_a_backend<B: Backend>() {
    let backend = B::default();
    let (mut own_tokens, mut own_secrets) = (backend.tokens(), backend.secrets());
    let row = secret(&owner("default", "ci"), "ci", b"value");
    assert!(own_tokens.insert(&token("ci")).unwrap());
    own_secrets.put(&row).unwrap();
    assert!(own_tokens.remove("ci").unwrap());
    drop((own_tokens, own_secrets));
    assert_eq!((tokens(&backend), secrets(&backend)), (vec![], vec![row]));
}
