//! The settings of a bundle: all that is told without parsing Python.

use std::collections::BTreeMap;
use std::path::Path;

use layers::python::PythonRequest;
use layers::{FileError, Interpreter};
use packages::requirements;
use packages::sources::Sources;
use sandbox::{Cpu, Kind, Reset};
use toml::{Table, Value};

use super::entry::{self, Entry};
use super::header::{self, Header};
use super::table::{self, Chosen};
use super::{Inspected, Manifest};
use super::{ManifestError, Overrides, encoding, inspect, pylock, src_layout, stray, variables};

const PROJECT: &str = "pyproject.toml";
const REQUIREMENTS: &str = "requirements.txt";
const PIPFILE: &str = "Pipfile";

/// Writes what uv has locked as what is read: neither a development group nor the project itself is installed.
const UV_EXPORT: &str =
    "uv export --no-dev --no-emit-project --format requirements-txt --output-file requirements.txt";

/// Locks of other tools, of what `pyproject.toml` lists, and how each is written as what is read.
const LOCKS: [(&str, &str); 3] = [
    ("uv.lock", UV_EXPORT),
    ("poetry.lock", "poetry export --output requirements.txt"),
    ("pdm.lock", "pdm export --prod --output requirements.txt"),
];

/// What else says what a program needs, and how that is written as what is read. Looked for where nothing that is read does.
const UNREAD: [(&str, &str); 4] = [
    ("requirements.in", "compile it with `uv pip compile requirements.in -o requirements.txt`"),
    ("environment.yml", "list its packages in requirements.txt"),
    ("environment.yaml", "list its packages in requirements.txt"),
    ("setup.py", "list what it installs in requirements.txt"),
];

/// What a bundle's header and project files say.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    entry: Entry,
    chosen: Chosen,
    requirements: Vec<String>,
    requires_python: Option<String>,
    sources: Sources,
    locked: bool,
    warnings: Vec<String>,
}

/// What a bundle needs, and where that comes from.
#[derive(Debug)]
struct Needs {
    requirements: Vec<String>,
    sources: Sources,
    /// Whether a tool has resolved them, and says so by the file's form.
    locked: bool,
    warning: Option<String>,
}

impl Settings {
    /// Reads the settings of the bundle in `root`, `over` which something may be said elsewhere.
    ///
    /// # Errors
    /// With what is wrong, where, and what to do.
    pub fn read(root: &Path, over: Overrides) -> Result<Self, ManifestError> {
        let project = match optional(root, PROJECT)? {
            Some(text) => parse(&text, 0, PROJECT)?,
            None => Table::new(),
        };
        let of_project = tool(&project, PROJECT, over)?;
        let entry = match of_project.as_ref().and_then(|chosen| chosen.handler.as_deref()) {
            Some(handler) => entry::named(root, handler, src_layout::is_installed(&project))?,
            None => entry::find(root)?,
        };
        let source = source_of(root, &entry.file)?;
        let script = match header::read(&source, &entry.file)? {
            Some(Header { text, above }) => parse(&text, above, &entry.file)?,
            None => Table::new(),
        };
        let mut warnings = stray::in_header(&script, &entry.file);
        warnings.extend(stray::in_project(&project, PROJECT));
        let of_script = tool(&script, &entry.file, over)?;
        one_place(&script, &entry.file, &project)?;
        // A header may name the function of its own file: `handler = "main.run"`.
        let entry = match of_script.as_ref().and_then(|chosen| chosen.handler.as_deref()) {
            Some(handler) => entry::named(root, handler, src_layout::is_installed(&project))?,
            None => entry,
        };
        let Needs { requirements, sources, locked, warning } =
            needs_of(root, &script, &project, &entry.file)?;
        let empty = Table::new();
        let section = project.get("project").and_then(Value::as_table).unwrap_or(&empty);
        let requires_python = match text(&script, "requires-python", &entry.file)? {
            Some(specifier) => Some(specifier),
            None => text(section, "requires-python", PROJECT)?,
        };
        let mut chosen = of_script.or(of_project).unwrap_or_else(|| Chosen::over(over));
        warnings.extend(src_layout::found(root, &project, &mut chosen));
        if chosen.reset == Reset::Always && chosen.kind != Kind::Microvm {
            return Err(ManifestError::Reset);
        }
        warnings.extend(chosen.environment.keys().filter_map(|name| variables::idle(name)));
        warnings.extend(warning);
        Ok(Self { entry, chosen, requirements, requires_python, sources, locked, warnings })
    }

    /// Settings without effect, for the client that deploys it.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Which Python it needs.
    ///
    /// # Errors
    /// When it asks for what cannot be.
    pub fn python(&self) -> Result<PythonRequest, ManifestError> {
        let wrong = |source| ManifestError::Python { file: self.entry.file.clone(), source };
        let request = match &self.chosen.python {
            Some(version) => PythonRequest::version_of(version).map_err(wrong)?,
            None => PythonRequest::any(),
        };
        match &self.requires_python {
            Some(specifier) => request.requiring(specifier).map_err(wrong),
            None => Ok(request),
        }
    }

    /// Whether it lists no packages: those that it brings itself are all that it has.
    #[must_use]
    pub fn lists_none(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Its environment variables.
    #[must_use]
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.chosen.environment
    }

    /// The entry file, relative to the bundle.
    #[must_use]
    pub fn entry_file(&self) -> &str {
        &self.entry.file
    }

    /// What it asks for of the processors.
    #[must_use]
    pub fn cpu(&self) -> Cpu {
        self.chosen.limits.cpu
    }

    /// Where its packages come from, beside what the worker's environment says.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether what it needs is a lock of another tool's, to be kept as it is ([`packages::lock::keep`]), and not to be resolved.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Parses the entry file with the interpreter that will run it, and finds the function.
    ///
    /// # Errors
    /// When the file is not Python, or has no function to call.
    pub fn inspect(
        &self,
        root: &Path,
        interpreter: &Interpreter,
    ) -> Result<Inspected, ManifestError> {
        let path = self.chosen.environment.get(src_layout::VARIABLE).map_or("", String::as_str);
        let mut found = inspect::function(root, &self.entry, path, interpreter)?;
        let mut warnings = self.warnings.clone();
        if let Some((file, line)) = found.unknown {
            if self.chosen.import_cache && !self.requirements.is_empty() {
                warnings.push(format!(
                    "{file}:{line}: which environment variables this sets is known only when it runs: packages that look one up while they are imported are not imported ahead, and first calls take longer"
                ));
            }
            found.sets.push(inspect::ANY_VARIABLE.to_owned());
        }
        let manifest = Manifest {
            module: self.entry.module.clone(),
            function: found.name,
            convention: found.convention,
            requirements: self.requirements.clone(),
            requires_python: self.requires_python.clone(),
            python: self.chosen.python.clone(),
            kind: self.chosen.kind,
            reset: self.chosen.reset,
            limits: self.chosen.limits,
            network: self.chosen.network,
            egress: self.chosen.egress.clone(),
            timeout: self.chosen.timeout,
            concurrency: self.chosen.concurrency,
            environment: self.chosen.environment.clone(),
            sets: found.sets,
            import_cache: self.chosen.import_cache,
            binary: self.chosen.binary,
            declared: false,
            bundled: false,
            told: None,
            layers: Vec::new(),
            lambda: None,
        };
        let in_src = src_layout::in_vain(root, &found.missing, &found.standard);
        Ok(Inspected { manifest, warnings, in_src, standard: found.standard })
    }
}

/// What is needed and where it comes from: both of the header, or both of the folder's files.
fn needs_of(
    root: &Path,
    script: &Table,
    project: &Table,
    file: &str,
) -> Result<Needs, ManifestError> {
    if let Some(listed) = script.get("dependencies") {
        let (requirements, sources) = (checked(listed, file)?, sources(script, file)?);
        let lock = format!("{file}.lock");
        let warning = root.join(&lock).is_file().then(|| {
            format!("{lock} is not read, and versions are chosen anew: write those that it must be into the header")
        });
        return Ok(Needs { requirements, sources, locked: false, warning });
    }
    let mut sources = sources(project, PROJECT)?;
    if root.join(REQUIREMENTS).is_file() {
        let listed = requirements::read(root, REQUIREMENTS)?;
        sources.constrain(listed.constraints);
        let requirements = listed.requirements;
        return Ok(Needs { requirements, sources, locked: false, warning: None });
    }
    let locked = optional(root, pylock::FILE).and_then(|text| match text {
        Some(text) => pylock::requirements(&text).map(Some),
        None => Ok(None),
    });
    let locked = locked.map_err(|error| match error {
        ManifestError::TooLong { file } | ManifestError::LongTable { file } => {
            let place = "in more TOML than the worker parses";
            let instead = format!("write it as requirements.txt; uv does that with `{UV_EXPORT}`");
            ManifestError::Elsewhere { file, place, instead }
        }
        other => other,
    })?;
    if let Some(requirements) = locked {
        return Ok(Needs { requirements, sources, locked: true, warning: None });
    }
    let section = project.get("project").and_then(Value::as_table);
    let Some(listed) = section.and_then(|section| section.get("dependencies")) else {
        return match listed_elsewhere(root, project)? {
            Some(elsewhere) => Err(elsewhere),
            None => {
                let unread = UNREAD.iter().find(|(file, _)| root.join(file).is_file());
                let warning = unread.map(|(file, instead)| {
                    format!("{file} is not read, and the function gets no packages: {instead}")
                });
                Ok(Needs { requirements: Vec::new(), sources, locked: false, warning })
            }
        };
    };
    let requirements = checked(listed, PROJECT)?;
    let lock = LOCKS.iter().find(|(lock, _)| !requirements.is_empty() && root.join(lock).is_file());
    let warning = lock.map(|(lock, export)| {
        format!(
            "{lock} is not read, and versions are chosen anew; for those that it has run `{export}`"
        )
    });
    Ok(Needs { requirements, sources, locked: false, warning })
}

/// Dependencies in a form of another tool's, which is not read: to pass over them would deploy what cannot be imported.
fn listed_elsewhere(root: &Path, project: &Table) -> Result<Option<ManifestError>, ManifestError> {
    let elsewhere = |file: &str, place, instead: &str| {
        let (file, instead) = (file.to_owned(), instead.to_owned());
        Ok(Some(ManifestError::Elsewhere { file, place, instead }))
    };
    let dynamic = project.get("project").and_then(|section| section.get("dynamic"));
    if dynamic.is_some_and(|keys| texts(keys).contains(&"dependencies")) {
        let instead = "list them under `dependencies`, or in requirements.txt";
        return elsewhere(PROJECT, "under `dynamic`, for a build to find out", instead);
    }
    let poetry = project.get("tool").and_then(|tool| tool.get("poetry"));
    if names(poetry.and_then(|poetry| poetry.get("dependencies"))).any(|name| name != "python") {
        let instead = "run `poetry export --output requirements.txt`";
        return elsewhere(PROJECT, "under [tool.poetry.dependencies]", instead);
    }
    let Some(pipfile) = optional(root, PIPFILE)? else { return Ok(None) };
    if names(parse(&pipfile, 0, PIPFILE)?.get("packages")).next().is_some() {
        return elsewhere(
            PIPFILE,
            "under [packages]",
            "run `pipenv requirements >requirements.txt`",
        );
    }
    Ok(None)
}

fn names(table: Option<&Value>) -> impl Iterator<Item = &str> {
    table.and_then(Value::as_table).into_iter().flat_map(Table::keys).map(String::as_str)
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn sources(table: &Table, file: &str) -> Result<Sources, ManifestError> {
    match table.get("tool").and_then(|tool| tool.get("uv")).and_then(Value::as_table) {
        Some(uv) => Ok(Sources::read(uv, file)?),
        None => Ok(Sources::default()),
    }
}

fn checked(listed: &Value, file: &str) -> Result<Vec<String>, ManifestError> {
    let wrong = || ManifestError::Value {
        file: file.to_owned(),
        key: "dependencies".to_owned(),
        value: listed.to_string(),
        reason: "write a list of texts: [\"pandas==2.2.3\"]".to_owned(),
    };
    let entries = listed.as_array().ok_or_else(wrong)?;
    if entries.len() > requirements::MOST_LINES {
        return Err(requirements::RequirementError::TooLong { file: file.to_owned() }.into());
    }
    let texts: Option<Vec<String>> =
        entries.iter().map(|entry| Some(entry.as_str()?.trim().to_owned())).collect();
    let texts = texts.ok_or_else(wrong)?;
    for requirement in &texts {
        requirements::check(file, requirement)?;
    }
    Ok(texts)
}

/// Refuses settings in both places: whichever of the two counted, what the other says of a function's isolation or network
/// would be left out unnoticed.
fn one_place(script: &Table, file: &str, project: &Table) -> Result<(), ManifestError> {
    match (ours(script), ours(project)) {
        (Some(header), Some(other)) if !is_empty(header) && !is_empty(other) && header != other => {
            Err(ManifestError::TwoPlaces { header: file.to_owned(), project: PROJECT.to_owned() })
        }
        _ => Ok(()),
    }
}

fn ours(table: &Table) -> Option<&Value> {
    table.get("tool").and_then(|tool| tool.get("lambswool"))
}

fn is_empty(value: &Value) -> bool {
    value.as_table().is_some_and(Table::is_empty)
}

/// The settings in one place; a table that says nothing is as none.
fn tool(table: &Table, file: &str, over: Overrides) -> Result<Option<Chosen>, ManifestError> {
    match ours(table).filter(|value| !is_empty(value)) {
        None => Ok(None),
        Some(Value::Table(ours)) => table::read(ours, file, over).map(Some),
        Some(value) => Err(ManifestError::Value {
            file: file.to_owned(),
            key: "tool.lambswool".to_owned(),
            value: value.to_string(),
            reason: "write a table: [tool.lambswool]".to_owned(),
        }),
    }
}

fn text(table: &Table, key: &str, file: &str) -> Result<Option<String>, ManifestError> {
    match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => Err(ManifestError::Value {
            file: file.to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            reason: "write a text in quotes".to_owned(),
        }),
    }
}

/// A parsed table takes some hundred times its text, in the worker's own memory.
pub(super) const TABLE_BYTES: usize = 256 << 10;

/// Longest line that an error quotes, in bytes.
const QUOTED_BYTES: usize = 1024;

/// Parses what stands in a file below so many other lines.
fn parse(text: &str, above: usize, file: &str) -> Result<Table, ManifestError> {
    // Of all of it: to the parser a blank line is as much as any other.
    if text.len() > TABLE_BYTES {
        return Err(ManifestError::LongTable { file: file.to_owned() });
    }
    text.parse().map_err(|error: toml::de::Error| ManifestError::Toml {
        file: file.to_owned(),
        message: located(&error, text, above),
    })
}

/// What the parser says, with the line as the file counts it: the parser's own text would count from where it began.
fn located(error: &toml::de::Error, text: &str, above: usize) -> String {
    let said = error.message();
    let Some(start) = error.span().map(|span| span.start) else { return said.to_owned() };
    // What ends too early ends in its last line.
    let before = text.get(..start).unwrap_or(text);
    let before = if start == text.len() { before.trim_end_matches('\n') } else { before };
    let begins = before.rfind('\n').map_or(0, |end| end + 1);
    let line = above + before.matches('\n').count() + 1;
    let left = before[begins..].chars().count();
    let place = format!("TOML parse error at line {line}, column {}", left + 1);
    let quoted = text[begins..].lines().next().unwrap_or_default();
    if quoted.len() > QUOTED_BYTES {
        return format!("{place}\n{said}");
    }
    let margin = " ".repeat(line.to_string().len());
    format!("{place}\n{margin} |\n{line} | {quoted}\n{margin} | {}^\n{said}", " ".repeat(left))
}

fn optional(root: &Path, file: &str) -> Result<Option<String>, ManifestError> {
    let not_text = |is| ManifestError::NotText { file: file.to_owned(), is };
    bytes_of(root, file)?.map(|bytes| layers::text::decoded(bytes).map_err(not_text)).transpose()
}

/// A Python source, for its header. What is no UTF-8 and says so (PEP 263) is Python's to decode: a header is of plain ASCII.
fn source_of(root: &Path, file: &str) -> Result<String, ManifestError> {
    let bytes = bytes_of(root, file)?.unwrap_or_default();
    if encoding::is_named_in(&bytes) {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    let not_text = |is| ManifestError::NotText { file: file.to_owned(), is };
    layers::text::decoded(bytes).map_err(not_text)
}

fn bytes_of(root: &Path, file: &str) -> Result<Option<Vec<u8>>, ManifestError> {
    let path = root.join(file);
    let bytes = match layers::text::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(FileError::at("read", &path))?,
    };
    bytes.map(Some).ok_or_else(|| ManifestError::TooLong { file: file.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_that_is_told_elsewhere_is_refused_of_what_is_or_may_be_a_container() {
        let falls_back = "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n# fallback = \"container\"\n# ///\n";
        for (source, kind, refused) in [
            ("", None, true),
            ("", Some(Kind::Container), true),
            (falls_back, None, true),
            ("", Some(Kind::Microvm), false),
            (falls_back, Some(Kind::Microvm), false),
        ] {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join("main.py"), source).unwrap();
            let settings =
                Settings::read(root.path(), Overrides { kind, reset: Some(Reset::Always) });
            assert_eq!(matches!(settings, Err(ManifestError::Reset)), refused, "{kind:?} {source}");
            assert_eq!(settings.is_ok(), !refused, "{kind:?} {source}");
        }
    }
}
