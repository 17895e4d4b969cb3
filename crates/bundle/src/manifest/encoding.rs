//! The encoding of a Python source, as its first lines name it (PEP 263).

/// Whether a Python source says what it is encoded in: in a comment, which is one of its first two
/// lines (PEP 263).
pub(super) fn is_named_in(source: &[u8]) -> bool {
    let mut lines = source.split(|byte| *byte == b'\n').take(2);
    let first = lines.next().unwrap_or_default();
    let is_comment = |line: &[u8]| line.trim_ascii_start().starts_with(b"#");
    let names = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let after = line.split_once("coding").map(|(_, after)| after.to_owned());
        after.is_some_and(|after| {
            let value = after.strip_prefix([':', '=']).unwrap_or_default().trim_start();
            value.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    };
    let blank = first.trim_ascii().is_empty();
    let second = (blank || is_comment(first)).then(|| lines.next()).flatten();
    [Some(first), second].into_iter().flatten().any(|line| is_comment(line) && names(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_name_its_encoding_in_its_first_two_lines() {
        for source in [
            "# -*- coding: latin-1 -*-",
            "#!x\n# vim: set fileencoding=cp1252 :",
            "\n  #coding:utf8",
        ] {
            assert!(is_named_in(source.as_bytes()), "{source}");
        }
        for source in [
            "x = 1\n# coding: latin-1",
            "# coding",
            "\n\n# coding: x",
            "coding: x",
            "# coding is = fun",
        ] {
            assert!(!is_named_in(source.as_bytes()), "{source}");
        }
    }
}
