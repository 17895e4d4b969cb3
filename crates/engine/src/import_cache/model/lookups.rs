//! What imports look up: environment variables, and packages that may or may not exist.
//!
//! A package that looks up a variable during its import sees the value in the zygote, where no
//! function has set it. A package that checks whether another package is installed sees those of
//! the zygote, a part of what the function locked, and remembers that the other one is missing.
//! Which zygotes exist must not decide what a function's own variable or package comes to. So a
//! function is never forked from a zygote that looked up something the function has.
//!
//! A variable is stored by its name. Strings that no variable can be named stand for the rest:
//! `=import lxml`, `=distribution lxml`, and `=*` for all distributions.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use sandbox::Imports;

use crate::distribution::Distribution;
use crate::handler::Handler;
use crate::import_cache::model::set::Set;

/// Variables that the guest sets to a different value for each handler. The others that it sets are
/// the same for all.
const OF_EACH: [&str; 4] = [
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "_HANDLER",
];

/// Variables that the guest sets for functions that expect AWS's runtime, and for no others: no
/// zygote has them, or has them so. `aws.py` sets them.
const OF_LAMBDA: [&str; 10] = [
    "AWS_EXECUTION_ENV",
    "AWS_LAMBDA_INITIALIZATION_TYPE",
    "AWS_LAMBDA_LOG_FORMAT",
    "AWS_LAMBDA_LOG_GROUP_NAME",
    "AWS_LAMBDA_LOG_LEVEL",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "LAMBDA_RUNTIME_DIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "TZ",
];

/// Longest prefix of a name that is distinguished.
const PREFIX_BYTES: usize = 64;

/// A handler that sets more variables than this conflicts with every lookup; a zygote with more
/// lookups than the next constant conflicts with every handler that sets any variable.
const MAX_VARIABLES: usize = 64;
const MAX_LOOKUPS: usize = 4096;

/// In a handler's list: it may set any other variable, too.
const UNKNOWN: &str = "*";

/// Lookup of all variables, and of any variable.
const ALL: &str = "*";
const ANY: &str = "";

/// Lookup of all distributions: an additional one would have been seen.
const EACH: &str = "=*";

/// A variable by the hash of its name, so that names need not be stored. A collision only keeps a
/// usable zygote from being used.
fn number(name: &str) -> u32 {
    let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(name);
    #[expect(clippy::cast_possible_truncation, reason = "it is a hash")]
    let short = hash as u32;
    short
}

/// The lookups that match a variable: `A_B`, and, from that prefix length on, `*`, `A*`, `A_*`,
/// `A_B*`.
fn names_of(variable: &str, shortest: usize) -> impl Iterator<Item = u32> + '_ {
    let ends = shortest..=variable.len().min(PREFIX_BYTES);
    let ends = ends.filter(|end| variable.is_char_boundary(*end));
    ends.map(|end| number(&format!("{}*", &variable[..end]))).chain([number(variable)])
}

/// The variables that the handler sets and the modules in its own code, as lookups. `secrets` are
/// the names of its secrets.
pub(crate) fn set_by(handler: &Handler, secrets: &[String]) -> Set {
    let modules = handler.own.iter().map(|module| number(&format!("=import {module}")));
    let own = || handler.environment.keys().chain(&*handler.sets).chain(secrets);
    let unknown = handler.sets.iter().any(|name| name == UNKNOWN);
    if unknown || own().count() > MAX_VARIABLES {
        return modules.chain([number(ANY)]).collect();
    }
    // A lookup of all variables has not asked for these in particular.
    let of_lambda: &[&str] = if handler.lambda.is_some() { &OF_LAMBDA } else { &[] };
    let of_each = OF_EACH.iter().chain(of_lambda).flat_map(|name| names_of(name, 1));
    own().flat_map(|name| names_of(name, 0)).chain(of_each).chain(modules).collect()
}

/// The lookups that find a distribution: by its name, by its modules and by their namespaces.
pub(crate) fn found_as(distribution: &Distribution) -> Set {
    let modules = distribution.modules.iter().flat_map(|module| {
        let dots = module.match_indices('.').map(|(dot, _)| dot);
        dots.chain([module.len()]).map(|end| number(&format!("=import {}", &module[..end])))
    });
    modules.chain([number(&format!("=distribution {}", distribution.name))]).collect()
}

/// Whether all distributions were listed: the result is valid only for handlers with exactly these.
pub(crate) fn went_through_all(lookups: &Set) -> bool {
    lookups.contains(number(EACH))
}

/// The lookups of these names; `A_*` stands for all variables that begin with `A_`.
pub(crate) fn looked_up(names: &[String]) -> impl Iterator<Item = u32> + '_ {
    let told_apart = |name: &str| name.len() <= PREFIX_BYTES || !name.ends_with('*');
    let numbers = names.iter().map(move |name| number(if told_apart(name) { name } else { ALL }));
    numbers.chain(names.iter().find(|name| !name.starts_with('=')).map(|_| number(ANY)))
}

/// All lookups of a zygote's imports.
pub(crate) fn all_looked_up(imports: &Imports) -> Set {
    let of_files = imports.files.iter().flat_map(|file| looked_up(&file.variables));
    let of_others = imports.variables.iter().flat_map(|(_, names)| looked_up(names));
    bounded(of_files.chain(of_others).collect())
}

/// The set itself, or "everything" if it is too large.
pub(crate) fn bounded(lookups: Set) -> Set {
    if lookups.len() <= MAX_LOOKUPS {
        lookups
    } else {
        [ALL, ANY, EACH].map(number).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use function::Lambda;

    use super::*;
    use crate::handler::tests::handler;

    fn lookups(names: &[&str]) -> Set {
        let variables = names.iter().map(|name| (*name).to_owned()).collect();
        let variables = vec![("a".to_owned(), variables)];
        all_looked_up(&Imports { variables, ..Imports::default() })
    }

    #[test]
    fn what_aws_sets_conflicts_with_imports_that_looked_it_up_and_with_no_others() {
        let guest = include_str!("../../../../../guest/python/src/lambswool_guest/aws.py");
        let lambda = Lambda {
            handler: "main.handler".to_owned(),
            runtime: "python3.12".to_owned(),
            json_level: None,
        };
        let native = Handler { environment: BTreeMap::new(), ..handler() };
        let aws = Handler { lambda: Some(Arc::new(lambda)), ..native.clone() };
        let [native, aws] = [native, aws].map(|handler| set_by(&handler, &[]));
        for name in OF_LAMBDA {
            assert!(guest.contains(&format!("\"{name}\"")), "{name}");
            assert!(aws.meets(&lookups(&[name])) && !native.meets(&lookups(&[name])), "{name}");
        }
        for name in ["PATH", "LAMBDA_TASK_ROOT", "_X_AMZN_TRACE_ID", "HOME", "*"] {
            assert!(!aws.meets(&lookups(&[name])), "{name}");
        }
    }

    #[test]
    fn a_distribution_is_found_by_its_name_its_modules_and_their_namespaces() {
        let distribution = Distribution {
            name: "google-auth".to_owned(),
            version: "1".to_owned(),
            wheel: "w".to_owned(),
            modules: vec!["google.auth".to_owned(), "google.oauth2".to_owned()],
        };
        let found = found_as(&distribution);
        for name in ["=import google", "=import google.auth", "=distribution google-auth"] {
            assert!(found.meets(&lookups(&[name])), "{name}");
        }
        for name in
            ["=import google.iam", "=import auth", "=distribution google", "google.auth", "=*", "*"]
        {
            assert!(!found.meets(&lookups(&[name])), "{name}");
        }
        assert!(
            went_through_all(&lookups(&["=*"])) && !went_through_all(&lookups(&["*", "=import *"]))
        );
        let many: Vec<String> = (0..5000).map(|n| format!("=import m{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(went_through_all(&lookups(&many)));
    }

    #[test]
    fn who_only_looks_for_packages_has_looked_up_no_variable() {
        let mut handler = handler();
        handler.environment.extend((0..300).map(|n| (format!("V{n}"), String::new())));
        assert!(!set_by(&handler, &[]).meets(&lookups(&["=import lxml", "=*"])));
        assert!(set_by(&handler, &[]).meets(&lookups(&["=import lxml", "MODE"])));
    }

    #[test]
    fn what_a_handler_sets_its_secrets_and_its_own_name_are_its_own() {
        let mut handler = handler();
        let conflicts_with = |handler: &Handler, secrets: &[String], names: &[&str]| {
            set_by(handler, secrets).meets(&lookups(names))
        };
        assert!(!conflicts_with(&handler, &[], &["MODE", "*", "PATH"]));
        assert!(conflicts_with(&handler, &[], &["AWS_LAMBDA_FUNCTION_NAME"]));
        assert!(conflicts_with(&handler, &[], &["AWS_LAMBDA_*"]));
        let secret = ["KEY".to_owned()];
        assert!(
            conflicts_with(&handler, &secret, &["KEY"])
                && !conflicts_with(&handler, &secret, &["MODE"])
        );
        assert!(conflicts_with(&handler, &secret, &["*"]));
        handler.environment.insert("MODE".to_owned(), "fast".to_owned());
        assert!(
            conflicts_with(&handler, &[], &["A", "MODE", "Z"])
                && !conflicts_with(&handler, &[], &["KEY"])
        );
        for begins in ["*", "M*", "MODE*"] {
            assert!(conflicts_with(&handler, &[], &[begins]), "{begins}");
        }
        assert!(!conflicts_with(&handler, &[], &["MODE_*", "O*"]));
        handler.sets = [String::from("MPLBACKEND")].into();
        assert!(
            conflicts_with(&handler, &[], &["MPLBACKEND"])
                && conflicts_with(&handler, &[], &["MPL*"])
        );
        handler.sets.push("*".to_owned());
        assert!(
            conflicts_with(&handler, &[], &["Z"])
                && !conflicts_with(&handler, &[], &["=import lxml", "=*"])
        );
        handler.sets.clear();
        handler.environment.insert("x".repeat(100), String::new());
        assert!(conflicts_with(&handler, &[], &[&format!("{}*", "x".repeat(99))]));
        assert!(conflicts_with(&handler, &[], &[&format!("{}*", "x".repeat(64))]));
        assert!(!conflicts_with(&handler, &[], &["Z"]));
        handler.environment.extend((0..300).map(|n| (format!("V{n}"), String::new())));
        assert!(conflicts_with(&handler, &[], &["Z"]) && !conflicts_with(&handler, &[], &[]));
        let many: Vec<String> = (0..5000).map(|n| format!("W{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(conflicts_with(&handler, &[], &many));
        handler.environment = BTreeMap::new();
        assert!(!conflicts_with(&handler, &[], &many), "who sets nothing shares all the same");
        handler.environment.insert("PATH".to_owned(), "/opt".to_owned());
        assert!(conflicts_with(&handler, &[], &["PATH"]));
    }
}
