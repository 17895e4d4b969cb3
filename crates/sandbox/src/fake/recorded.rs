//! Imports of a fake zygote: as recorded, or as the modules' names say.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Imports, LoadedFile};

/// The recorded cost of importing one module. Costs are recorded per distribution and version, so
/// the module's name is of the form `numpy==2.1.0`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Milliseconds, without those of the imports inside it.
    pub milliseconds: f64,
    /// Bytes that the import leaves in memory.
    pub bytes: u64,
    /// Names of the distributions that it imports, in any version that is installed. Without one of
    /// them the import fails. Submodules of itself, such as `numpy.linalg`, are always found.
    pub needs: Vec<String>,
    /// Names of the distributions that it imports if they are installed.
    pub likes: Vec<String>,
    /// Names of the environment variables that the import looks up.
    pub variables: Vec<String>,
}

/// Runs the imports, in their recorded time. Returns their effects, and the bytes that they left.
pub(super) async fn import(
    modules: &[String],
    had: &[String],
    recorded: &HashMap<String, Recorded>,
) -> (Imports, u64) {
    let mut run =
        Run { modules, had, recorded, imports: Imports::default(), bytes: 0, begun: Vec::new() };
    for module in modules {
        match module.split_once(':') {
            Some(("slow", text)) => {
                run.imports.milliseconds += f64::from(text.parse::<u32>().unwrap_or(0));
            }
            _ if module == "threads" => {
                run.imports.threads += 1;
                run.imports.left_by.push(module.clone());
            }
            _ if module == "shares" => {
                run.imports.shared += 1;
                run.imports.left_by.push(module.clone());
            }
            _ if module == "missing" => run.fail(module, "missing"),
            _ if module == "stray" => run.loaded(module, "/tmp/stray.py".to_owned(), 0.0, ""),
            _ if recorded.contains_key(module) => {
                if let Err(missing) = run.replay(module, "") {
                    run.fail(module, &missing);
                }
            }
            _ => run.loaded(module, format!("/opt/python/{module}/__init__.py"), 0.0, ""),
        }
    }
    let Run { imports, bytes, .. } = run;
    if imports.milliseconds > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(imports.milliseconds / 1e3)).await;
    }
    (imports, bytes)
}

struct Run<'a> {
    modules: &'a [String],
    had: &'a [String],
    recorded: &'a HashMap<String, Recorded>,
    imports: Imports,
    bytes: u64,
    /// Modules whose imports have begun: imports can be circular.
    begun: Vec<String>,
}

impl Run<'_> {
    fn loaded(&mut self, module: &str, path: String, milliseconds: f64, importer: &str) {
        let (module, importer) = (module.to_owned(), importer.to_owned());
        let cost = self.recorded.get(&module);
        let variables = cost.map_or_else(Vec::new, |cost| cost.variables.clone());
        self.imports.files.push(LoadedFile { module, path, milliseconds, importer, variables });
    }

    fn fail(&mut self, module: &str, missing: &str) {
        self.imports.failed.push((module.to_owned(), format!("ModuleNotFoundError: {missing}")));
    }

    fn visible(&self, name: &str, importer: &str) -> Option<String> {
        if name.strip_prefix(importer).is_some_and(|inner| inner.starts_with('.')) {
            return Some(name.to_owned());
        }
        let mut all = self.had.iter().chain(self.modules);
        all.find(|seen| seen.split("==").next() == Some(name)).cloned()
    }

    /// Imports a recorded module and its needs. The error is the name that was not found.
    fn replay(&mut self, module: &str, importer: &str) -> Result<(), String> {
        if [self.had, &self.begun].into_iter().flatten().any(|other| other == module) {
            return Ok(());
        }
        self.begun.push(module.to_owned());
        let Some(cost) = self.recorded.get(module) else { return Ok(()) };
        for need in &cost.needs {
            let seen = self.visible(need, module).ok_or_else(|| need.clone())?;
            self.replay(&seen, module)?;
        }
        for liked in &cost.likes {
            if let Some(seen) = self.visible(liked, module) {
                self.replay(&seen, module)?;
            }
        }
        let path = format!("/opt/python/{module}/__init__.py");
        self.loaded(module, path, cost.milliseconds, importer);
        self.imports.milliseconds += cost.milliseconds;
        self.bytes += cost.bytes;
        Ok(())
    }
}
