//! Finding the function in the entry file.

use std::path::Path;

use sandbox::wire::Convention;
use serde::Deserialize;

use super::ManifestError;
use super::entry::Entry;
use crate::Interpreter;

const SCRIPT: &str = include_str!("inspect.py");

/// Names that a function may have, in the order of preference.
const NAMES: [&str; 3] = ["handler", "lambda_handler", "f"];

#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    functions: Vec<Defined>,
    error: Option<Syntax>,
}

#[derive(Clone, Debug, Deserialize)]
struct Defined {
    name: String,
    /// Positional arguments that must be given; none where only the name is known (an import, an assignment).
    least: Option<u32>,
    /// Positional arguments that can be given; none for any number.
    most: Option<u32>,
    line: u32,
    /// Keyword-only arguments without a default.
    required: u32,
}

#[derive(Debug, Deserialize)]
struct Syntax {
    line: u32,
    message: String,
    text: String,
}

/// The function that will be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) convention: Convention,
}

pub(super) fn function(
    root: &Path,
    entry: &Entry,
    interpreter: &Interpreter,
) -> Result<Found, ManifestError> {
    let path = root.join(&entry.file);
    let answer: Answer = interpreter.ask(SCRIPT, &[path.as_os_str()])?;
    if let Some(Syntax { line, message, text }) = answer.error {
        return Err(ManifestError::Syntax { file: entry.file.clone(), line, message, text });
    }
    choose(&answer.functions, entry)
}

fn choose(defined: &[Defined], entry: &Entry) -> Result<Found, ManifestError> {
    let names: Vec<&str> = match &entry.function {
        Some(name) => vec![name],
        None => NAMES.to_vec(),
    };
    // The last definition of a name is the one that counts when the module has been run.
    let found =
        names.iter().find_map(|name| defined.iter().rfind(|function| function.name == *name));
    let Some(found) = found else {
        let functions: Vec<&str> =
            defined.iter().filter(|f| f.least.is_some()).map(|f| f.name.as_str()).collect();
        return Err(ManifestError::NoFunction {
            file: entry.file.clone(),
            looked_for: names.join(", "),
            found: if functions.is_empty() {
                "no function".to_owned()
            } else {
                functions.join(", ")
            },
        });
    };
    match convention(found) {
        Some(convention) => Ok(Found { name: found.name.clone(), convention }),
        None => Err(ManifestError::Arguments {
            file: entry.file.clone(),
            line: found.line,
            function: found.name.clone(),
            arguments: told(found),
        }),
    }
}

fn convention(function: &Defined) -> Option<Convention> {
    let Some(least) = function.least else {
        // Only the name is known: `f` is OpenLambda's name, the others are Lambda's.
        return Some(if function.name == "f" {
            Convention::OpenLambda
        } else {
            Convention::Lambda
        });
    };
    let fits = |count| {
        least <= count && function.most.is_none_or(|most| count <= most) && function.required == 0
    };
    if fits(2) {
        Some(Convention::Lambda)
    } else if fits(1) {
        Some(Convention::OpenLambda)
    } else {
        None
    }
}

fn told(function: &Defined) -> String {
    if function.required > 0 {
        return "keyword-only arguments without a default".to_owned();
    }
    match (function.least.unwrap_or_default(), function.most) {
        (0, Some(0)) => "no argument".to_owned(),
        (least, _) => format!("{least} arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, least: Option<u32>, most: Option<u32>) -> Defined {
        Defined { name: name.to_owned(), least, most, line: 3, required: 0 }
    }

    fn entry(function: Option<&str>) -> Entry {
        Entry {
            file: "main.py".to_owned(),
            module: "main".to_owned(),
            function: function.map(str::to_owned),
        }
    }

    #[test]
    fn two_arguments_are_lambdas_and_one_is_openlambdas() {
        let convention_of = |least, most| convention(&of("handler", least, most));
        assert_eq!(convention_of(Some(2), Some(2)), Some(Convention::Lambda));
        assert_eq!(convention_of(Some(1), Some(2)), Some(Convention::Lambda));
        assert_eq!(convention_of(Some(0), None), Some(Convention::Lambda));
        assert_eq!(convention_of(Some(1), Some(1)), Some(Convention::OpenLambda));
        assert_eq!(convention_of(Some(0), Some(0)), None);
        assert_eq!(convention_of(Some(3), Some(3)), None);
        assert_eq!(convention(&of("f", None, None)), Some(Convention::OpenLambda));
    }

    #[test]
    fn handler_comes_before_lambda_handler_and_f() {
        let defined = [
            of("f", Some(1), Some(1)),
            of("lambda_handler", Some(2), Some(2)),
            of("help", Some(1), Some(1)),
        ];
        assert_eq!(choose(&defined, &entry(None)).unwrap().name, "lambda_handler");
        assert_eq!(choose(&defined, &entry(Some("help"))).unwrap().name, "help");
    }

    #[test]
    fn a_file_without_a_handler_is_answered_with_what_it_defines() {
        let error = choose(&[of("main", Some(0), Some(0)), of("os", None, None)], &entry(None))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "no handler in main.py: looked for handler, lambda_handler, f; it defines main"
        );
    }
}
