//! The documentation agrees with itself and with the source: links lead somewhere, errors exist, pages are listed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of prose.
const COLUMNS: usize = 100;

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let text = without_code(&text);
        for link in links(&text) {
            let (path, heading) = link.split_once('#').map_or((link, None), |(a, b)| (a, Some(b)));
            let target = page.parent().unwrap().join(path);
            let target = if path.is_empty() { page.clone() } else { target };
            let there = target.exists()
                && heading.is_none_or(|heading| headings(&target).contains(heading));
            if !there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_that_the_developers_guide_names_is_there() {
    let guide = fs::read_to_string(root().join("docs/developer/README.md")).unwrap();
    let spans = guide.split('`').skip(1).step_by(2);
    let named = spans.filter(|span| {
        let first = span.split('/').next().unwrap_or_default();
        let is_path = ["crates", "docs", "guest", "tests"].contains(&first) && span.contains('/');
        is_path && !span.contains("NAME")
    });
    let missing: Vec<&str> = named.filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_page_is_listed_among_the_pages() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in pages_below("docs/user") {
        let name = format!("](user/{})", page.file_name().unwrap().to_string_lossy());
        assert!(index.contains(&name), "{name} is not in docs/README.md");
    }
}

#[test]
fn no_line_of_a_user_page_is_longer_than_a_hundred_columns() {
    let listed =
        ["README.md", "CHANGELOG.md", "docs/developer/README.md"].map(|one| root().join(one));
    for page in pages_below("docs/user").into_iter().chain(listed) {
        let text = fs::read_to_string(&page).unwrap();
        // Rows of tables cannot be broken, nor lines of what is shown.
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.starts_with("```");
            let long = !fenced && !line.starts_with('|') && line.chars().count() > COLUMNS;
            assert!(!long, "{}:{}: {line}", page.display(), number + 1);
        }
    }
}

/// A page that tells of an error as it once was helps nobody.
#[test]
fn every_error_of_the_troubleshooting_page_is_in_the_source() {
    let page = fs::read_to_string(root().join("docs/user/troubleshooting.md")).unwrap();
    let mut sources = String::new();
    read_all(&root().join("crates"), &mut sources);
    // A text may be broken into lines where it stands in the source.
    let sources = sources.replace("\\\"", "\"");
    let entries = page.lines().filter_map(|line| line.strip_prefix("**`"));
    let mut count = 0;
    for entry in entries {
        let entry = entry.strip_suffix("`**").unwrap_or_else(|| panic!("{entry} does not end"));
        let entry = entry.trim_matches('`').trim();
        for part in entry.split('…').map(str::trim).filter(|part| !part.is_empty()) {
            let part = part.trim_matches(|c| c == '"');
            assert!(sources.contains(part), "no error says {part:?}");
        }
        count += 1;
    }
    assert!(count > 40, "only {count} errors are told");
}

#[test]
fn every_line_of_the_workers_log_on_the_operations_page_is_in_the_source() {
    let page = fs::read_to_string(root().join("docs/user/operations.md")).unwrap();
    let (_, table) = page.split_once("| line | what to do |\n| --- | --- |\n").unwrap();
    let mut sources = String::new();
    read_all(&root().join("crates"), &mut sources);
    let rows = table.lines().take_while(|line| line.starts_with("| `"));
    let lines: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).collect();
    assert!(lines.len() > 8, "{lines:?}");
    for line in lines {
        let words = line.trim_start_matches("| ").trim_matches('`').trim();
        assert!(sources.contains(words), "no line says {words:?}");
    }
}

#[test]
fn every_metric_is_on_the_operations_page_and_no_other() {
    let page = fs::read_to_string(root().join("docs/user/operations.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `lambswool_"));
    let told: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let mut sources = String::new();
    read_all(&root().join("crates"), &mut sources);
    let macros = ["counter!(\"", "gauge!(\"", "histogram!(\""];
    let found = macros.iter().flat_map(|name| sources.split(*name).skip(1));
    let found: BTreeSet<&str> = found
        .filter_map(|rest| rest.split('"').next())
        .filter_map(|name| name.strip_prefix("lambswool_"))
        .collect();
    assert_eq!(told, found);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Everything that is read as documentation; runs are records.
fn pages() -> Vec<PathBuf> {
    let mut pages = pages_below("docs");
    for name in ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "SPECIFICATION"] {
        pages.push(root().join(format!("{name}.md")));
    }
    pages.push(root().join("examples/README.md"));
    pages
}

fn pages_below(directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root().join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The text without fenced blocks and code spans, which hold brackets of their own.
fn without_code(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside = line.split('`').enumerate().filter(|(number, _)| number % 2 == 0);
            // A link's text may be code: what is left of it is its brackets.
            prose.extend(outside.map(|(_, part)| part));
            prose.push('\n');
        }
    }
    prose
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The names by which a page's headings are linked to.
fn headings(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| -> String {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

fn read_all(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
