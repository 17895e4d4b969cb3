//! Wheels that are made here: pure Python, for packages that nobody else has.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The version of all of them.
pub(crate) const VERSION: &str = "1.0";

/// Writes the wheel of a package with one module, which has the package's name. `requires` names other packages of this
/// version.
pub(crate) fn write(dir: &Path, module: &str, source: &str, requires: &[String]) -> Result<()> {
    let info = format!("{module}-{VERSION}.dist-info");
    let requires: String =
        requires.iter().map(|name| format!("Requires-Dist: {name}=={VERSION}\n")).collect();
    let metadata = format!("Metadata-Version: 2.1\nName: {module}\nVersion: {VERSION}\n{requires}");
    let tags = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let files = [
        (format!("{module}.py"), source.to_owned()),
        (format!("{info}/METADATA"), metadata),
        (format!("{info}/WHEEL"), tags.to_owned()),
    ];
    let rows = files.iter().map(|(path, _)| format!("{path},,\n"));
    let record: String = rows.chain([format!("{info}/RECORD,,\n")]).collect();
    let path = dir.join(format!("{module}-{VERSION}-py3-none-any.whl"));
    let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
    pack(file, files.iter().cloned().chain([(format!("{info}/RECORD"), record)]))
}

/// A ZIP archive of these files, by path.
pub(crate) fn pack(
    into: impl std::io::Write + std::io::Seek,
    files: impl IntoIterator<Item = (String, String)>,
) -> Result<()> {
    let mut archive = ZipWriter::new(into);
    for (path, text) in files {
        archive.start_file(path, SimpleFileOptions::default()).context("write an archive")?;
        archive.write_all(text.as_bytes()).context("write an archive")?;
    }
    archive.finish().context("write an archive")?;
    Ok(())
}
