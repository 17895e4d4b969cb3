//! What every store of tokens does.

use std::time::Duration;

use super::{Backend, MANY, ODD, at};
use crate::{HASH_BYTES, TokenRow};

/// A token of this name, with an id of its own.
pub(super) fn token(name: &str) -> TokenRow {
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

fn insert(backend: &impl Backend, names: impl IntoIterator<Item = impl AsRef<str>>) {
    let mut tokens = backend.tokens();
    for name in names {
        assert!(tokens.insert(&token(name.as_ref())).unwrap(), "{}", name.as_ref());
    }
}

/// What a store that is opened now lists.
pub(super) fn tokens(backend: &impl Backend) -> Vec<TokenRow> {
    backend.tokens().list().unwrap()
}

fn names(backend: &impl Backend) -> Vec<String> {
    tokens(backend).into_iter().map(|token| token.name).collect()
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
