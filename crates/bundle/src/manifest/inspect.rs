//! Finding the function in the entry file.
//!
//! It is parsed by a process that has no more of the machine than a compiler has ([`Allowance`]): what needs more is the
//! function's own fault, whether the process says so (MemoryError) or is ended for it.
//!
//! [`Allowance`]: layers::allowance::Allowance

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use layers::allowance::{ALLOWANCE, Allowance};
use layers::child::Unfinished;
use layers::{Interpreter, Patience, RunError};
use sandbox::wire::Convention;
use serde::Deserialize;

use super::ManifestError;
use super::entry::Entry;
use super::src_layout::{self, Missing};

/// What the script imports.
const MODULES: [(&str, &str); 3] = [
    ("bindings", include_str!("bindings.py")),
    ("files", include_str!("files.py")),
    ("variables", include_str!("variables.py")),
];

const SCRIPT: &str = include_str!("inspect.py");

/// How long a busy machine may take to give it the time that it may have.
const DEADLINE: Duration = Duration::from_secs(300);

/// Among the variables that a function sets: it may set any others.
pub(super) const ANY_VARIABLE: &str = "*";

/// Names that a function may have, in the order of preference.
const NAMES: [&str; 3] = ["handler", "lambda_handler", "f"];

#[derive(Debug, Default, Deserialize)]
struct Answer {
    #[serde(default)]
    functions: Vec<Defined>,
    /// How many functions there are beside these.
    #[serde(default)]
    more: u64,
    /// A name that may be bound although the source does not show it; none: all that is bound shows.
    #[serde(default)]
    dynamic: Option<String>,
    /// The environment variables that it sets.
    #[serde(default)]
    sets: Vec<String>,
    /// The file and line of what may set any other.
    #[serde(default)]
    unknown: Option<(String, u32)>,
    /// What is imported and not in the function's folder: by which file, in which line.
    #[serde(default)]
    missing: Vec<Missing>,
    /// Modules of Python itself.
    #[serde(default)]
    standard: BTreeSet<String>,
    error: Option<Syntax>,
    /// The process had too little memory, or calls were too many in each other.
    #[serde(default)]
    too_much: bool,
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
    /// The line of its first `yield`; 0 for what is no generator.
    yields: u32,
    /// Bound as a loop's variable is, or an attribute, and not by a definition, an import or an assignment.
    by_the_way: bool,
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
    /// The environment variables that its files set.
    pub(super) sets: Vec<String>,
    /// The file and line of what may set any other.
    pub(super) unknown: Option<(String, u32)>,
    /// Imports that the function's folder does not answer.
    pub(super) missing: Vec<Missing>,
    /// Modules of Python itself.
    pub(super) standard: BTreeSet<String>,
}

/// Finds it, with `python_path` being what its `PYTHONPATH` says.
pub(super) fn function(
    root: &Path,
    entry: &Entry,
    python_path: &str,
    interpreter: &Interpreter,
) -> Result<Found, ManifestError> {
    function_within(ALLOWANCE, root, entry, python_path, interpreter)
}

/// A script with what it imports. A map in JSON is one in Python, too.
fn whole(script: &str) -> String {
    let texts = MODULES.iter().map(|(name, text)| ((*name).to_owned(), (*text).into()));
    let texts = serde_json::Value::Object(texts.collect());
    format!("TEXTS = {texts}\n{}\n{script}", include_str!("modules.py"))
}

/// The environment variables that a function's files set, with [`ANY_VARIABLE`] where they may set any: as where its
/// entry file is no Python. `file` is the entry file.
///
/// # Errors
/// When no process could be started to parse it.
pub(super) fn variables(
    root: &Path,
    file: &str,
    python_path: &str,
    interpreter: &Interpreter,
) -> Result<Vec<String>, RunError> {
    match ask(ALLOWANCE, root, file, python_path, &[], interpreter) {
        Ok(Answer { error: None, too_much: false, unknown: None, sets, .. }) => Ok(sets),
        Err(error @ RunError::Unfinished(_)) => Err(error),
        _ => Ok(vec![ANY_VARIABLE.to_owned()]),
    }
}

/// The modules that a Python has itself.
///
/// # Errors
/// When no process could be started to ask it.
pub(super) fn standard(interpreter: &Interpreter) -> Result<BTreeSet<String>, RunError> {
    let script = "import json, sys\nprint(json.dumps(sorted(sys.stdlib_module_names)))";
    interpreter.ask_within(&Patience::of(DEADLINE, || false), script, &[])
}

fn function_within(
    allowance: Allowance,
    root: &Path,
    entry: &Entry,
    python_path: &str,
    interpreter: &Interpreter,
) -> Result<Found, ManifestError> {
    let file = entry.file.clone();
    let answer = ask(allowance, root, &file, python_path, &wanted(entry), interpreter)?;
    if answer.too_much {
        return Err(ManifestError::TooMuch { file });
    }
    if let Some(Syntax { line, message, text }) = answer.error {
        return Err(ManifestError::Syntax { file, line, message, text });
    }
    choose(&answer, entry)
}

/// What the script says of an entry file, in which it looks for the names that are wanted.
fn ask(
    allowance: Allowance,
    root: &Path,
    file: &str,
    python_path: &str,
    wanted: &[&str],
    interpreter: &Interpreter,
) -> Result<Answer, RunError> {
    let path: Vec<&str> = python_path.split(':').filter_map(src_layout::within).collect();
    let path = path.join(":");
    let script = whole(SCRIPT);
    let ask = |alone: &'static str| {
        let mut arguments: Vec<&OsStr> =
            vec![root.as_os_str(), OsStr::new(file), OsStr::new(&path), OsStr::new(alone)];
        arguments.extend(wanted.iter().map(|name| OsStr::new(*name)));
        let patience = Patience::of(DEADLINE, || false);
        match interpreter.ask_held(&patience, |it| allowance.hold_one(it), &script, &arguments) {
            Err(error) if ended(&error) => Ok(Answer { too_much: true, ..Answer::default() }),
            other => other,
        }
    };
    let answer: Answer = ask("")?;
    // It may be another file than the function's own that takes so much.
    if answer.too_much && has_more(root) { ask("alone") } else { Ok(answer) }
}

/// Whether there is more in a folder than one file.
fn has_more(root: &Path) -> bool {
    std::fs::read_dir(root).is_ok_and(|entries| entries.count() > 1)
}

/// Whether the process was ended: by a limit, by what the parser does without memory, or by the deadline.
fn ended(error: &RunError) -> bool {
    match error {
        RunError::Failed { status, .. } => status.signal().is_some(),
        RunError::Unfinished(error) => matches!(error, Unfinished::TooLong { .. }),
        RunError::Answer { .. } => false,
    }
}

/// The names that the function may have, in the order of preference.
fn wanted(entry: &Entry) -> Vec<&str> {
    match &entry.function {
        Some(name) => vec![name],
        None => NAMES.to_vec(),
    }
}

fn choose(answer: &Answer, entry: &Entry) -> Result<Found, ManifestError> {
    let (defined, names) = (&answer.functions, wanted(entry));
    let Some(name) = called(answer, entry) else {
        let functions: Vec<&str> =
            defined.iter().filter(|f| f.least.is_some()).map(|f| f.name.as_str()).collect();
        return Err(ManifestError::NoFunction {
            file: entry.file.clone(),
            looked_for: names.join(", "),
            found: match (functions.is_empty(), answer.more) {
                (true, _) => "no function".to_owned(),
                (false, 0) => functions.join(", "),
                (false, more) => format!("{} and {more} more", functions.join(", ")),
            },
            example: example(names[0], &answer.functions),
        });
    };
    let all = || defined.iter().filter(|function| function.name == name);
    let good = all().filter(|function| function.yields == 0).find_map(convention);
    let convention = match (good, all().next_back()) {
        (Some(convention), _) => convention,
        // What is refused here fails whatever the module does when it is run. All else is left to that.
        (None, Some(found)) if answer.dynamic.is_none() => return Err(refused(found, entry)),
        _ => usual(name),
    };
    Ok(Found {
        name: name.to_owned(),
        convention,
        sets: answer.sets.clone(),
        unknown: answer.unknown.clone(),
        missing: answer.missing.clone(),
        standard: answer.standard.clone(),
    })
}

/// The name of the function that will be called; none: it is bound nowhere.
fn called<'a>(answer: &'a Answer, entry: &'a Entry) -> Option<&'a str> {
    let names = wanted(entry);
    let is_bound = |name: &str, by_the_way: bool| {
        let mut bound = answer.functions.iter().filter(|function| function.name == name);
        bound.any(|function| function.by_the_way == by_the_way)
    };
    // Beside `def lambda_handler(event, context)`, `handler` may be an import or a log's handler.
    let is_lambdas = |function: &Defined| {
        function.name == NAMES[1] && function.yields == 0 && convention(function).is_some()
    };
    let only_named = |name: &str| {
        let mut bound = answer.functions.iter().filter(|function| function.name == name);
        bound.all(|function| function.least.is_none())
    };
    let lambdas = answer.functions.iter().any(|it| it.least.is_some() && is_lambdas(it));
    if entry.function.is_none() && lambdas && only_named(NAMES[0]) {
        return Some(NAMES[1]);
    }
    let defined = names.iter().find(|name| is_bound(name, false));
    // `with open(path) as f` makes no handler of `f`: a setting has to name it.
    let likely = |name: &&&str| entry.function.is_some() || **name != "f";
    let otherwise = || names.iter().filter(likely).find(|name| is_bound(name, true));
    defined.or_else(otherwise).copied().or(answer.dynamic.as_deref())
}

/// Why a function cannot be called, which is a generator or takes something else than an event.
fn refused(function: &Defined, entry: &Entry) -> ManifestError {
    let (file, name) = (entry.file.clone(), function.name.clone());
    if function.yields > 0 {
        return ManifestError::Generator { file, line: function.yields, function: name };
    }
    ManifestError::Arguments {
        file,
        line: function.line,
        function: name,
        arguments: told(function),
    }
}

/// Three lines to begin with. A function that takes nothing is what a script calls last: `main`.
fn example(name: &str, defined: &[Defined]) -> String {
    let main = defined.iter().find(|function| {
        function.name == "main" && function.least == Some(0) && function.required == 0
    });
    let (comment, result) = match main {
        Some(_) => ("what came in is in `event`, as JSON has it", "main()"),
        None => ("the script's lines go here, indented", "\"done\""),
    };
    format!("def {name}(event, context):\n        # {comment}\n        return {result}")
}

fn convention(function: &Defined) -> Option<Convention> {
    let Some(least) = function.least else {
        return Some(usual(&function.name));
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

/// Of what only the name is known: `f` is OpenLambda's name, the others are Lambda's.
fn usual(name: &str) -> Convention {
    if name == "f" { Convention::OpenLambda } else { Convention::Lambda }
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
        Defined {
            name: name.to_owned(),
            least,
            most,
            line: 3,
            required: 0,
            yields: 0,
            by_the_way: false,
        }
    }

    fn entry(function: Option<&str>) -> Entry {
        Entry {
            file: "main.py".to_owned(),
            module: "main".to_owned(),
            function: function.map(str::to_owned),
        }
    }

    fn chosen(functions: &[Defined], function: Option<&str>) -> Result<Found, ManifestError> {
        let answer = Answer { functions: functions.to_vec(), ..Answer::default() };
        choose(&answer, &entry(function))
    }

    fn inspected(source: &str, allowance: Allowance) -> Result<Found, ManifestError> {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("main.py"), source).unwrap();
        let python = layers::python::discover().next().unwrap();
        function_within(
            allowance,
            root.path(),
            &entry(None),
            "",
            &Interpreter::at(python.executable),
        )
    }

    #[test]
    fn variables_that_a_source_sets_are_found_where_their_names_stand() {
        let source = include_str!("testdata/sets_variables.py");
        let mut sets = inspected(source, ALLOWANCE).unwrap().sets;
        let of = |sign: &str| {
            let lines = source.lines().filter_map(|line| line.split_once(sign));
            let names = lines.flat_map(|(_, names)| names.split_whitespace());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let (mut expected, others) = (of("  # sets "), of("  # not "));
        sets.sort();
        expected.sort();
        expected.dedup();
        assert_eq!(sets, expected);
        assert!(others.len() > 5 && others.iter().all(|other| !sets.contains(other)));
    }

    /// What the sources of one test file set, each with what its first line expects.
    fn each_sets(sources: &str) -> Vec<(String, String)> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("sources");
        std::fs::write(&path, sources).unwrap();
        let python = layers::python::discover().next().unwrap();
        let script = whole(include_str!("testdata/each_sets.py"));
        Interpreter::at(python.executable)
            .ask_within(&Patience::endless(), &script, &[path.as_os_str()])
            .unwrap()
    }

    #[test]
    fn where_a_name_cannot_be_worked_out_any_variable_may_be_set() {
        let found = each_sets(include_str!("testdata/environments.py"));
        assert!(found.len() > 290, "{}", found.len());
        for (expected, sets) in found {
            let source = expected.split_once('\n').unwrap_or_default().1;
            assert_eq!(sets, expected.lines().next().unwrap_or_default(), "{source}");
        }
    }

    #[test]
    fn own_files_set_variables_as_the_entry_file_does() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let python = Interpreter::at(layers::python::discover().next().unwrap().executable);
        let sets = |source: &str, path: &str| {
            write("main.py", format!("{source}\ndef handler(event, context): ...\n").as_bytes());
            let found = function_within(ALLOWANCE, root.path(), &entry(None), path, &python);
            let mut found = found.unwrap();
            found.sets.sort();
            (found.sets.join(" "), found.unknown.map(|(file, line)| format!("{file}:{line}")))
        };
        let none = |names: &str| (names.to_owned(), None);
        let unknown = |place: &str| Some(place.to_owned());
        write("config.py", b"import os\nos.environ['A'] = '1'\nenv = os.environ\nKEY = 'K'\n");
        write("names.py", b"from os import putenv as put\n");
        write("pkg/inner.py", b"import os\nos.environ['P'] = '1'\n");
        // Whatever imports them, and however.
        assert_eq!(sets("import os", ""), none("A P"));
        assert_eq!(sets("import config as c\nc.env['B'] = '1'", ""), none("A B P"));
        assert_eq!(sets("from config import (\n  env)\nenv['B'] = '1'", ""), none("A B P"));
        assert_eq!(sets("from names import put\nput('B', '1')", ""), none("A B P"));
        // Another file may give the name another text.
        assert_eq!(sets("from config import env, KEY\nenv[KEY] = '1'", "").1, unknown("main.py:2"));
        write("other.py", b"import main\nmain.NAME = input()\n");
        assert_eq!(
            sets("import os\nNAME = 'N'\nos.environ[NAME] = '1'", "").1,
            unknown("main.py:3")
        );
        write("unused.py", b"import os\nos.environ.update(read())\n");
        assert_eq!(sets("import os", "").1, unknown("unused.py:2"));
        write("unused.py", b"");
        write("compiled.so", b"...setenv...");
        assert_eq!(sets("import os", "").1, unknown("compiled.so:1"));
        write("compiled.so", b"...getenv...");
        assert_eq!(sets("import os", "").1, None);
        write("more.zip", b"");
        assert_eq!(sets("import os", "").1, None);
        assert_eq!(sets("import os", "more.zip").1, unknown("more.zip:1"));
        let appended = "import sys\nsys.path.append('more.zip')";
        assert_eq!(sets(appended, "").1, unknown("more.zip:1"));
        // A file that takes too much is no reason to refuse the function.
        write("large.py", "environ\n".repeat(1 << 20).as_bytes());
        assert_eq!(sets("import large", "").1, unknown("large.py:1"));
        write("large.py", "(".repeat(100_000).as_bytes());
        assert_eq!(sets("import large", "").1, None);
    }

    /// Neither a name that no JSON has nor a form that its author never saw is a reason to refuse a function.
    #[test]
    fn a_name_that_cannot_be_told_counts_as_any() {
        for source in [
            "import os\nos.environ['\\udc80'] = '1'\n",
            "import os\nos.environb[b'\\xff'] = b'1'\n",
            "import os\nclass A:\n    d = {}\n    d['environ']: int = 1\n",
        ] {
            let found = inspected(&format!("{source}def handler(e, c): 1\n"), ALLOWANCE).unwrap();
            assert!(found.unknown.is_some() || found.sets.is_empty(), "{source}");
        }
    }

    /// Each line is looked at once, however long a function is.
    #[test]
    fn a_long_function_is_inspected_as_fast_as_it_is_parsed() {
        let lines: String =
            (0..20_000).map(|n| format!("    x{n} = f(a, {n}, key='v')\n")).collect();
        let source = format!("import os\nos.environ['A'] = '1'\ndef handler(a, b):\n{lines}");
        let found = inspected(&source, ALLOWANCE).unwrap();
        assert_eq!((found.sets, found.unknown), (vec!["A".to_owned()], None));
    }

    #[test]
    fn a_generator_is_refused_with_the_line_of_its_first_yield() {
        let told = |source: &str| inspected(source, ALLOWANCE).map_err(|error| error.to_string());
        for source in [
            "def handler(event, context):\n    if event:\n        yield 1\n",
            "async def handler(event, context):\n    x = 1\n    yield x\n",
            "def handler(event):\n    print()\n    return (yield from event)\n",
            "def first(e): ...\n\nhandler = lambda event, context: (yield)\n",
        ] {
            let error = told(source).unwrap_err();
            assert!(error.starts_with("main.py:3: handler is a generator"), "{error}");
        }
        for source in [
            "def handler(event, context):\n    def inner(): yield 1\n    return list(inner())\n",
            "def handler(event, context):\n    return sum(x for x in (lambda: (yield))())\n",
            "import x\n@x.stream\ndef handler(event, context):\n    yield 1\n",
            "def handler(event): yield 1\ndef handler(event): return 1\n",
        ] {
            assert_eq!(told(source).unwrap().name, "handler", "{source}");
        }
    }

    #[test]
    fn only_what_surely_fails_at_its_load_is_refused() {
        let name = |source: &str| inspected(source, ALLOWANCE).map(|found| found.name);
        // In each a run may bind the name to what can be called.
        for source in include_str!("testdata/handlers.py").split("\n# ----\n") {
            assert_eq!(name(source).unwrap(), "handler", "{source}");
        }
        let idiom =
            "import logging\nfor handler in logging.root.handlers: pass\ndef f(event): ...\n";
        assert_eq!(name(idiom).unwrap(), "f");
        for source in include_str!("testdata/no_handlers.py").split("\n# ----\n") {
            assert!(name(source).is_err(), "{source}");
        }
    }

    #[test]
    fn a_source_that_takes_too_much_to_parse_is_the_functions_own_fault() {
        // Four megabytes, for which a parser takes 3.5 GB.
        let many = "x\n".repeat(2 << 20);
        let hours = Allowance { memory: 8 << 30, seconds: 0, ..ALLOWANCE };
        for allowance in [ALLOWANCE, hours] {
            let error = inspected(&many, allowance).unwrap_err();
            assert!(
                matches!(&error, ManifestError::TooMuch { file } if file == "main.py"),
                "{error}"
            );
        }
        let branches = "elif x: pass\n".repeat(20_000);
        let nested =
            ["(".repeat(100_000), "-".repeat(1_000_000), format!("if x: pass\n{branches}")];
        for source in nested {
            let error = inspected(&source, ALLOWANCE).unwrap_err();
            let told =
                matches!(error, ManifestError::TooMuch { .. } | ManifestError::Syntax { .. });
            assert!(told, "{error}");
        }
        let text = format!("text = {:?}\ndef handler(event, context): ...\n", "x".repeat(3 << 20));
        assert_eq!(inspected(&text, ALLOWANCE).unwrap().name, "handler");
    }

    #[test]
    fn of_very_many_functions_the_one_that_is_called_is_found_and_few_are_told() {
        let many: String = (0..50_000).map(|n| format!("def f{n}(): 0\n")).collect();
        let error = inspected(&many, ALLOWANCE).unwrap_err().to_string();
        assert!(error.contains("f0, f1, ") && error.contains(" and 49980 more\n"), "{error}");
        let found =
            inspected(&format!("{many}handler = 1\ndef handler(e): 0\n"), ALLOWANCE).unwrap();
        assert_eq!(found.convention, Convention::OpenLambda);
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
        assert_eq!(chosen(&defined, None).unwrap().name, "lambda_handler");
        assert_eq!(chosen(&defined, Some("help")).unwrap().name, "help");
    }

    #[test]
    fn a_def_of_lambda_handler_comes_before_a_handler_that_is_only_named() {
        let lambdas = "def lambda_handler(event, context): ...\n";
        let name = |source: &str| inspected(source, ALLOWANCE).map(|found| found.name).unwrap();
        for other in [
            "handler = logging.StreamHandler()\n",
            "handler = None\n",
            "import handler\n",
            "from app import handler\n",
            "if x: handler = logging.NullHandler()\n",
        ] {
            assert_eq!(name(&format!("{other}{lambdas}")), "lambda_handler", "{other}");
            assert_eq!(name(&format!("{lambdas}{other}")), "lambda_handler", "{other}");
            // A helper is often called `f`.
            assert_eq!(name(&format!("{other}def f(event): ...\n")), "handler", "{other}");
        }
        for other in ["def handler(event): ...\n", "handler = lambda event, context: 1\n"] {
            assert_eq!(name(&format!("{other}{lambdas}")), "handler", "{other}");
        }
        for not_one in ["def lambda_handler(a, b, c): ...\n", "from app import lambda_handler\n"] {
            assert_eq!(name(&format!("handler = make()\n{not_one}")), "handler", "{not_one}");
        }
    }

    #[test]
    fn a_file_without_a_handler_is_answered_with_what_it_defines() {
        let error =
            chosen(&[of("main", Some(0), Some(0)), of("os", None, None)], None).unwrap_err();
        let told = error.to_string();
        assert!(
            told.starts_with(
                "no handler in main.py: looked for handler, lambda_handler, f; it defines main\n"
            ),
            "{told}"
        );
        assert!(told.ends_with("        return main()"), "{told}");
    }

    #[test]
    fn a_script_is_answered_with_the_lines_that_make_a_function_of_it() {
        let told = inspected("import sys\nprint(sys.argv)\n", ALLOWANCE).unwrap_err().to_string();
        let (_, shown) = told.split_once("its result is the answer:\n").unwrap();
        let lines: Vec<&str> = shown.lines().map(|line| &line[4..]).collect();
        let [first, comment, result] = lines[..] else { panic!("{told}") };
        assert_eq!(first, "def handler(event, context):");
        assert!(comment.starts_with("    # ") && result == "    return \"done\"", "{told}");
        assert_eq!(inspected(&lines.join("\n"), ALLOWANCE).unwrap().name, "handler");
        let told = chosen(&[], Some("run")).unwrap_err().to_string();
        assert!(told.contains("def run(event, context):"), "{told}");
    }
}
