//! A program: a library or a framework at work.

use std::fs;
use std::path::Path;

use e2e::Way;
use e2e::machine::manifest_dir;

/// A module beside each program: what a framework's asks its handler with.
pub(crate) const REQUEST: &str = include_str!("request.py");

/// What calls `work` in an instance: its answer tells whether modules of packages were there before the program.
const CHECK: &str = r#"

def check(event, context):
    import asyncio
    import inspect

    done = work(context) if inspect.signature(work).parameters else work()
    if inspect.iscoroutine(done):
        asyncio.run(done)
    return {"work": "right", "imported": IMPORTED}
"#;

/// Before the program's own first line: modules that are neither Python's nor the guest's nor the program.
const BEFORE: &str = "import sys as _sys\nIMPORTED = any(name.split('.')[0] not in \
    {*_sys.stdlib_module_names, '__main__', 'main'} and not name.startswith('lambswool') for name in _sys.modules)\n";

/// A program of one file.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its name, which is also a function's.
    pub(crate) name: String,
    /// `library` or `framework`.
    pub(crate) kind: &'static str,
    /// What it requires, as it pins it.
    pub(crate) requires: String,
    /// What its failure in a machine has in it, where machines cannot do what it needs.
    machines: Option<String>,
    /// The same of forks of a zygote.
    forks: Option<String>,
    text: String,
}

impl Program {
    /// All: libraries first.
    pub(crate) fn all() -> Vec<Self> {
        let (tests, own) = (manifest_dir(), manifest_dir().join("compatibility"));
        let mut all = in_folder(&tests.join("../bench/libraries"), "library");
        all.extend(in_folder(&own.join("libraries"), "library"));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.extend(in_folder(&own.join("frameworks"), "framework"));
        all
    }

    fn read(path: &Path, kind: &'static str) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().replace('_', "-");
        let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        let requires = after("# dependencies = ").expect("a program pins what it requires");
        let requires = requires.trim_matches(['[', ']']).replace('"', "");
        let machines = after("# machines: ").map(str::to_owned);
        let forks = after("# forks: ").map(str::to_owned);
        Self { name, kind, requires, machines, forks, text }
    }

    /// What its failure has in it that a documented limit of this way makes.
    pub(crate) fn limit(&self, way: Way) -> Option<&str> {
        match way {
            Way::Fresh => None,
            Way::Fork => self.forks.as_deref(),
            Way::Clone | Way::Reset => self.machines.as_deref(),
        }
    }

    /// The source of a function that does the work.
    pub(crate) fn function(&self) -> String {
        let setting = "# [tool.lambswool]\n# handler = \"main.check\"\n# memory = \"1GB\"\n# scratch = \"256MB\"\n# timeout = \"2min\"\n# ///";
        // The end of the block with what it requires.
        let text = self.text.replacen("\n# ///\n", &format!("\n{setting}\n"), 1);
        format!("{BEFORE}{text}{CHECK}")
    }

    /// The source of a script that does the work twice, for an interpreter of the host.
    pub(crate) fn script(&self) -> String {
        let main = "\n\nif __name__ == \"__main__\":\n    import types\n\n    \
            told = {\"function_name\": \"f\", \"memory_limit_in_mb\": 1024, \"aws_request_id\": \"r\"}\n    \
            told |= {\"invoked_function_arn\": \"arn:aws:lambda:::function:f\", \"function_version\": \"1\"}\n    \
            for _ in range(2):\n        check({}, types.SimpleNamespace(**told))\n";
        format!("{BEFORE}{}{CHECK}{main}", self.text)
    }
}

fn in_folder(folder: &Path, kind: &'static str) -> Vec<Program> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    paths.sort();
    paths.iter().map(|path| Program::read(path, kind)).collect()
}
