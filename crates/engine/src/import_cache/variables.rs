//! Environment variables that imports look up, and that handlers have values of their own for.
//!
//! A package that looks a variable up while it is imported has seen what that was in its zygote, where no function has
//! set it. Which zygotes there are just then must not decide what a function's own value comes to: it is forked from
//! none that has looked up what it sets.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use sandbox::LoadedFile;

use super::set::Set;
use crate::call::Handler;

/// What the guest sets for each handler by what that is. The others that it sets are the same for all of them.
const OF_EACH: [&str; 4] = [
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "_HANDLER",
];

/// Longest beginning of a name that is told apart.
const PREFIX_BYTES: usize = 64;

/// Who sets more variables than this is concerned by whatever is looked up.
const TOLD_APART: usize = 256;
const ANY: &str = "";

/// A variable by the hash of its name, so that no name need be remembered. Two of one hash are taken for one: a zygote
/// that would have served does not.
fn number(name: &str) -> u32 {
    let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(name);
    #[expect(clippy::cast_possible_truncation, reason = "it is a hash")]
    let short = hash as u32;
    short
}

/// Those whose values are the handler's own, and all that they begin with: `A_B`, `*`, `A*`, `A_*`, `A_B*`. `secrets` are
/// the names of its secrets.
pub(super) fn set_by(handler: &Handler, secrets: &[String]) -> Set {
    let own = || handler.environment.keys().chain(secrets);
    if own().count() > TOLD_APART {
        return [number(ANY)].into_iter().collect();
    }
    let beginnings = own().flat_map(|name| {
        let ends = (0..=name.len().min(PREFIX_BYTES)).filter(|end| name.is_char_boundary(*end));
        ends.map(|end| number(&format!("{}*", &name[..end])))
    });
    own().map(|name| number(name)).chain(beginnings).chain(OF_EACH.map(number)).collect()
}

/// Those that a module looked up while it was imported; `A_*`: all that begin with `A_`.
pub(super) fn looked_up(file: &LoadedFile) -> impl Iterator<Item = u32> {
    let told_apart = |name: &String| name.len() <= PREFIX_BYTES || !name.ends_with('*');
    let names = file.variables.iter();
    let numbers = names.map(move |name| number(if told_apart(name) { name } else { "*" }));
    let any = file.variables.first().map(|_| number(ANY));
    numbers.chain(any)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::call::tests::handler;

    fn reads(names: &[&str]) -> Set {
        let variables = names.iter().map(|name| (*name).to_owned()).collect();
        looked_up(&LoadedFile { variables, ..LoadedFile::default() }).collect()
    }

    #[test]
    fn what_a_handler_sets_its_secrets_and_its_own_name_are_its_own() {
        let mut handler = handler();
        let minds = |handler: &Handler, secrets: &[String], names: &[&str]| {
            set_by(handler, secrets).meets(&reads(names))
        };
        assert!(!minds(&handler, &[], &["MODE", "*", "PATH"]));
        assert!(minds(&handler, &[], &["AWS_LAMBDA_FUNCTION_NAME"]));
        let secret = ["KEY".to_owned()];
        assert!(minds(&handler, &secret, &["KEY"]) && !minds(&handler, &secret, &["MODE"]));
        assert!(minds(&handler, &secret, &["*"]));
        handler.environment.insert("MODE".to_owned(), "fast".to_owned());
        assert!(minds(&handler, &[], &["A", "MODE", "Z"]) && !minds(&handler, &[], &["KEY"]));
        for begins in ["*", "M*", "MODE*"] {
            assert!(minds(&handler, &[], &[begins]), "{begins}");
        }
        assert!(!minds(&handler, &[], &["MODE_*", "O*"]));
        handler.environment.insert("x".repeat(100), String::new());
        assert!(minds(&handler, &[], &[&format!("{}*", "x".repeat(99))]));
        assert!(minds(&handler, &[], &[&format!("{}*", "x".repeat(64))]));
        assert!(!minds(&handler, &[], &["Z"]));
        handler.environment.extend((0..300).map(|n| (format!("V{n}"), String::new())));
        assert!(minds(&handler, &[], &["Z"]) && !minds(&handler, &[], &[]));
        handler.environment = BTreeMap::new();
        handler.environment.insert("PATH".to_owned(), "/opt".to_owned());
        assert!(minds(&handler, &[], &["PATH"]));
    }
}
