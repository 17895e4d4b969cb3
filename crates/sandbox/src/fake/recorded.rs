//! What imports do: as recorded, or as their names say.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Imports, LoadedFile};

/// What importing one module was once seen to do. Its name is that of a distribution with its version, `numpy==2.1.0`,
/// since costs are recorded by that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Milliseconds, imports inside it apart.
    pub milliseconds: f64,
    /// Bytes that it leaves in memory.
    pub bytes: u64,
    /// Names of the distributions that it imports, each in whichever version can be seen. Without one it fails. Modules
    /// inside it, `numpy.linalg`, are always to be seen.
    pub needs: Vec<String>,
    /// Names of those that it imports as well where it can see them.
    pub likes: Vec<String>,
    /// Names of the environment variables that it looks up.
    pub variables: Vec<String>,
}

/// What a zygote's imports did, and the bytes that they left. Takes the time that they take.
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
    /// Whose imports have begun: there are circles.
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

    /// The error names what cannot be seen.
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
