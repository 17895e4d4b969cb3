//! The PEP 723 header of a script: TOML in comments.

use super::ManifestError;

/// The TOML of the `script` block, if there is one, each line at the number that it has in the file: errors name it.
pub(super) fn read(source: &str, file: &str) -> Result<Option<String>, ManifestError> {
    let error = |reason| ManifestError::Header { file: file.to_owned(), reason };
    let mut found = None;
    let mut lines = source.lines().enumerate();
    while let Some((before, line)) = lines.next() {
        if line.trim_end() != "# /// script" {
            continue;
        }
        if found.is_some() {
            return Err(error("two script blocks; only one is allowed"));
        }
        // The block ends at the last `# ///` before the first line that is no comment.
        let block: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line == "#" || line.starts_with("# "))
            .collect();
        let end = block.iter().rposition(|line| line.trim_end() == "# ///");
        let end =
            end.ok_or_else(|| error("the script block does not end; write `# ///` below it"))?;
        let text: Vec<&str> =
            block[..end].iter().map(|line| line.get(2..).unwrap_or_default()).collect();
        found = Some("\n".repeat(before + 1) + &text.join("\n"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_read_without_its_comment_signs() {
        let source = "#!/usr/bin/env python3\n# /// script\n# dependencies = [\n#   \"x\",\n# ]\n#\n# [tool.a]\n# ///\nimport x\n";
        assert_eq!(
            read(source, "a.py").unwrap().unwrap(),
            "\n\ndependencies = [\n  \"x\",\n]\n\n[tool.a]"
        );
        assert_eq!(read("x = '# /// script'\n", "a.py").unwrap(), None);
    }

    #[test]
    fn a_block_that_does_not_end_or_comes_twice_is_an_error() {
        assert!(read("# /// script\n# a = 1\nimport x\n", "a.py").is_err());
        assert!(read("# /// script\n# ///\n\n# /// script\n# ///\n", "a.py").is_err());
    }
}
