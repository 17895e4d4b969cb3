//! Environment variables that imports look up, and that handlers have values of their own for.
//!
//! A package that looks a variable up while it is imported has seen what that was in its zygote, where no function has
//! set it. Which zygotes there are just then must not decide what a function's own value comes to: it is forked from
//! none that has looked up what it sets.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use sandbox::LoadedFile;

use super::set::Set;
use crate::call::Handler;

/// What the guest says of a module that went through the whole environment. It concerns who has set anything.
const ALL: &str = "*";
const ANY: u32 = 0;

/// What the guest sets for each handler by what that is. The others that it sets are the same for all of them.
const OF_EACH: [&str; 4] = [
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "_HANDLER",
];

/// A variable by the hash of its name, so that no name need be remembered. Two of one hash are taken for one: a zygote
/// that would have served does not.
fn number(name: &str) -> u32 {
    let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(name);
    #[expect(clippy::cast_possible_truncation, reason = "it is a hash")]
    let short = hash as u32;
    if name == ALL { ANY } else { short.max(ANY + 1) }
}

/// Those whose values are the handler's own; `secrets` are the names of its secrets.
pub(super) fn set_by(handler: &Handler, secrets: &[String]) -> Set {
    let own = || handler.environment.keys().chain(secrets).map(|name| number(name));
    let any = own().next().map(|_| ANY);
    own().chain(any).chain(OF_EACH.map(number)).collect()
}

/// Those that a module looked up while it was imported.
pub(super) fn looked_up(file: &LoadedFile) -> impl Iterator<Item = u32> {
    file.variables.iter().map(|name| number(name))
}

#[cfg(test)]
mod tests {
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
        assert!(minds(&handler, &[], &["*"]));
        handler.environment.insert("PATH".to_owned(), "/opt".to_owned());
        assert!(minds(&handler, &[], &["PATH"]));
    }
}
