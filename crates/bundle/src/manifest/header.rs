//! The PEP 723 header of a script: TOML in comments.

use super::ManifestError;

/// The TOML of a `script` block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) text: String,
    /// Lines of the file above it: errors count these, too.
    pub(super) above: usize,
}

/// The `script` block, if there is one.
pub(super) fn read(source: &str, file: &str) -> Result<Option<Header>, ManifestError> {
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
        found = Some(Header { text: text.join("\n"), above: before + 1 });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_read_without_its_comment_signs() {
        let source = "#!/usr/bin/env python3\n# /// script\n# dependencies = [\n#   \"x\",\n# ]\n#\n# [tool.a]\n# ///\nimport x\n";
        let text = "dependencies = [\n  \"x\",\n]\n\n[tool.a]".to_owned();
        assert_eq!(read(source, "a.py").unwrap(), Some(Header { text, above: 2 }));
        assert_eq!(read("x = '# /// script'\n", "a.py").unwrap(), None);
    }

    #[test]
    fn a_block_far_down_is_no_longer_than_one_at_the_top() {
        let source = "\n".repeat(4_000_000) + "# /// script\n# x = 1\n# ///\n";
        let header = Header { text: "x = 1".to_owned(), above: 4_000_001 };
        assert_eq!(read(&source, "a.py").unwrap(), Some(header));
    }

    #[test]
    fn a_block_that_does_not_end_or_comes_twice_is_an_error() {
        assert!(read("# /// script\n# a = 1\nimport x\n", "a.py").is_err());
        assert!(read("# /// script\n# ///\n\n# /// script\n# ///\n", "a.py").is_err());
    }
}
