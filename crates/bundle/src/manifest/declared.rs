//! Settings that a deploy declares. The bundle is code then, and no file of it is read for settings.
//!
//! What AWS Lambda's deploys are like: a zip, and all that is to be known of it beside it. Its files are not judged: a module
//! that is missing or no Python, and a handler of another form than `module.function`, fail the first call.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use function::{AttachedLayer, Lambda, LogLevel, Told, lambda};
use layers::Interpreter;
use layers::python::PythonRequest;
use sandbox::wire::Convention;
use sandbox::{Destination, Kind, Limits, Network, Reset};

use super::in_variables::InVariables;
use super::{Inspected, Manifest, ManifestError, entry, inspect, src_layout, table, variables};

/// All settings of a version, from its deploy. Packages are what the bundle brings itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The function that is called, as AWS writes it: `module.function`, where `.` or `/` stands between the parts of the
    /// module's name. Any text is accepted.
    pub handler: String,
    /// The Python that it runs on: `3.12`; empty: any.
    pub python: String,
    /// What it runs in.
    pub kind: Kind,
    /// What a call finds of the one before. Only [`Kind::Microvm`] can be reset.
    pub reset: Reset,
    /// Limits of each instance.
    pub limits: Limits,
    /// What it may reach.
    pub network: Network,
    /// Where it may connect to when `network` is [`Network::Egress`].
    pub egress: Vec<Destination>,
    /// The longest that a call may take.
    pub timeout: Duration,
    /// Most instances at a time: 1 to 10000.
    pub concurrency: u32,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// What the deploy's API shows of it again.
    pub told: Option<Box<Told>>,
    /// The layers below `/opt`, the first at the bottom.
    pub layers: Vec<AttachedLayer>,
    /// AWS's runtime, when the function is called as that calls it; none: it is called as any other.
    pub runtime: Option<Runtime>,
}

/// AWS's runtime of a function, and the form of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its name, such as `python3.12`. The Python that runs may be another.
    pub name: String,
    /// Whether its log is of JSON objects, and from which level on; none: it is text.
    pub json_level: Option<LogLevel>,
}

impl Declared {
    /// Takes the settings that AWS Lambda's API has no member for from the environment, where they are variables such as
    /// `LAMBSWOOL_ISOLATION`. What no variable names has its default again.
    ///
    /// # Errors
    /// With the variable that is wrong, and what it must be.
    pub fn settled(self) -> Result<Self, ManifestError> {
        let InVariables { kind, reset, network, egress, cpu } =
            InVariables::read(&self.environment)?;
        let limits = Limits { cpu, ..self.limits };
        Ok(Self { kind, reset, network, egress, limits, ..self })
    }

    /// Refuses what no function can have, whatever its files are.
    ///
    /// # Errors
    /// With the setting that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), ManifestError> {
        let wrong = |setting| move |reason| ManifestError::Declared { setting, reason };
        if self.reset == Reset::Always && self.kind != Kind::Microvm {
            return Err(ManifestError::Reset);
        }
        table::memory_fits(self.limits.memory_bytes, self.kind).map_err(wrong("memory"))?;
        if self.network == Network::Egress {
            table::egress_fits(&self.egress).map_err(wrong("egress"))?;
        }
        table::number_fits(self.concurrency).map_err(wrong("concurrency"))?;
        table::number_fits(self.limits.pids).map_err(wrong("pids"))?;
        for (name, value) in &self.environment {
            variables::check(name, value).map_err(wrong("environment"))?;
        }
        self.python().map(drop)
    }

    /// Which Python it needs.
    ///
    /// # Errors
    /// When it asks for what cannot be.
    pub fn python(&self) -> Result<PythonRequest, ManifestError> {
        if self.python.is_empty() {
            return Ok(PythonRequest::default());
        }
        PythonRequest::version_of(&self.python).map_err(|error| ManifestError::Declared {
            setting: "python",
            reason: error.to_string(),
        })
    }

    /// Makes the manifest of a bundle in `root`. Its Python is parsed for the environment variables that it sets; where it
    /// cannot be, it may set any.
    ///
    /// # Errors
    /// As [`Declared::check`], and when no process could be started to parse it.
    pub fn inspect(
        &self,
        root: &Path,
        interpreter: &Interpreter,
    ) -> Result<Inspected, ManifestError> {
        self.check()?;
        let (module, function) = self.handler.rsplit_once('.').unwrap_or((&self.handler, ""));
        let module = module.replace('/', ".");
        let path = self.environment.get(src_layout::VARIABLE).map_or("", String::as_str);
        let is_program = self.runtime.as_ref().is_some_and(|it| lambda::is_program(&it.name));
        let sets = match entry::source_of(root, &module) {
            Some(file) if !is_program => inspect::variables(root, &file, path, interpreter)?,
            _ => vec![inspect::ANY_VARIABLE.to_owned()],
        };
        let network = match self.network {
            // It is given its events there.
            Network::None if is_program => Network::Loopback,
            asked => asked,
        };
        let manifest = Manifest {
            module,
            function: function.to_owned(),
            convention: Convention::Lambda,
            requirements: Vec::new(),
            requires_python: None,
            python: Some(self.python.clone()).filter(|python| !python.is_empty()),
            kind: self.kind,
            reset: self.reset,
            limits: self.limits,
            network,
            egress: self.egress.clone(),
            timeout: self.timeout,
            concurrency: self.concurrency,
            environment: self.environment.clone(),
            sets,
            import_cache: !is_program,
            binary: false,
            declared: true,
            bundled: false,
            told: self.told.clone(),
            layers: self.layers.clone(),
            lambda: self.runtime.as_ref().map(|runtime| Lambda {
                handler: self.handler.clone(),
                runtime: runtime.name.clone(),
                json_level: runtime.json_level,
            }),
        };
        let warnings = self.environment.keys().filter_map(|name| variables::idle(name)).collect();
        // Of use only beside packages from elsewhere.
        let (in_src, standard) = Default::default();
        Ok(Inspected { manifest, warnings, in_src, standard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(handler: &str) -> Declared {
        Declared {
            handler: handler.to_owned(),
            python: "3.12".to_owned(),
            kind: Kind::Container,
            reset: Reset::Never,
            limits: Limits::default(),
            network: Network::None,
            egress: Vec::new(),
            timeout: Duration::from_secs(3),
            concurrency: 10,
            environment: BTreeMap::new(),
            told: None,
            layers: Vec::new(),
            runtime: None,
        }
    }

    fn inspected(handler: &str, files: &[(&str, &str)]) -> Manifest {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let python = layers::python::discover().next().unwrap();
        let interpreter = Interpreter::at(python.executable);
        declared(handler).inspect(root.path(), &interpreter).unwrap().manifest
    }

    #[test]
    fn the_last_dot_of_a_handler_divides_and_slashes_are_dots() {
        for (handler, module, function) in [
            ("lambda_function.lambda_handler", "lambda_function", "lambda_handler"),
            ("src/app.handler", "src.app", "handler"),
            ("src.app.handler", "src.app", "handler"),
            ("nodot", "nodot", ""),
            ("a.", "a", ""),
            ("../x.handler", "...x", "handler"),
        ] {
            let manifest = inspected(handler, &[]);
            assert_eq!((&*manifest.module, &*manifest.function), (module, function), "{handler}");
            assert_eq!(manifest.convention, Convention::Lambda);
            assert!(manifest.declared);
        }
    }

    #[test]
    fn no_file_of_a_bundle_says_anything_of_what_was_declared() {
        let header = "# /// script\n# dependencies = [\"numpy\"]\n# [tool.lambswool]\n# timeout = \"9s\"\n# ///\n";
        let manifest = inspected(
            "main.handler",
            &[
                ("main.py", &format!("{header}def handler(event, context): ...\n")),
                ("requirements.txt", "numpy\n"),
                ("pyproject.toml", "[project]\ndependencies = [\"numpy\"]\n[tool.lambswool]\n"),
                (".python-version", "3.9\n"),
                ("src/shop/__init__.py", ""),
            ],
        );
        assert_eq!(manifest.requirements, [""; 0]);
        assert_eq!(manifest.timeout, Duration::from_secs(3));
        assert_eq!(manifest.python.as_deref(), Some("3.12"));
        assert!(manifest.environment.is_empty() && manifest.sets.is_empty());
    }

    #[test]
    fn a_bundle_is_not_judged_and_what_cannot_be_parsed_may_set_any_variable() {
        let sets = |files: &[(&str, &str)]| inspected("pkg/web.handler", files).sets;
        let sets_one = "import os\nos.environ['A'] = '1'\n";
        assert_eq!(sets(&[("pkg/web.py", sets_one)]), ["A"]);
        assert_eq!(sets(&[("pkg/web/__init__.py", sets_one)]), ["A"]);
        // Another file than the handler's that is no Python fails where it is imported.
        assert_eq!(sets(&[("pkg/web.py", sets_one), ("bad.py", "os.environ[(\n")]), ["A"]);
        assert_eq!(sets(&[("pkg/web.py", "def handler(event, context\n")]), ["*"]);
        assert_eq!(sets(&[("pkg/web.py", "\0")]), ["*"]);
        assert_eq!(sets(&[("pkg/web.py", &"(".repeat(100_000))]), ["*"]);
        assert_eq!(sets(&[("other.py", "")]), ["*"]);
        assert_eq!(inspected("../etc/passwd.x", &[]).sets, ["*"]);
    }

    #[test]
    fn what_no_function_can_have_is_refused_by_its_setting() {
        type Change = fn(&mut Declared);
        let changes: [(&str, Change); 9] = [
            ("memory", |it| it.limits.memory_bytes = 1 << 20),
            ("memory", |it| {
                (it.kind, it.limits.memory_bytes) = (Kind::Microvm, 3 << 30);
            }),
            ("egress", |it| it.network = Network::Egress),
            ("concurrency", |it| it.concurrency = 0),
            ("environment", |it| drop(it.environment.insert("A B".to_owned(), String::new()))),
            ("environment", |it| drop(it.environment.insert("A".to_owned(), "\0".to_owned()))),
            ("python: Python 3.8 is too old", |it| "3.8".clone_into(&mut it.python)),
            ("python", |it| "/usr/bin/python3".clone_into(&mut it.python)),
            ("reset always", |it| it.reset = Reset::Always),
        ];
        declared("a.b").check().unwrap();
        for (setting, change) in changes {
            let mut wrong = declared("a.b");
            change(&mut wrong);
            let refused = wrong.check().unwrap_err().to_string();
            assert!(refused.starts_with(setting), "{refused}");
        }
    }
}
