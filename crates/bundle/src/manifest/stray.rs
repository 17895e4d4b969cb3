//! What looks like a setting and stands where none is read.
//!
//! `[tool]` and the tables of a project belong to many tools: there, only a name that is nearly ours gives a warning. A
//! header has three keys (PEP 723), and another key in it was most likely meant for us. To pass over
//! `isolation = "microvm"` in silence would run in a container what was not to.

use toml::{Table, Value};

use super::table::KNOWN;

const OURS: &str = "lambswool";

/// What a header may have.
const HEADER: [&str; 3] = ["dependencies", "requires-python", "tool"];

/// Changes of one letter that are between our name and what is taken for it.
const SLIPS: usize = 2;

/// Most that are told of one file.
const MOST: usize = 8;

/// Longest key that is told whole, in characters.
const LONGEST: usize = 40;

/// What a header says that is not read.
pub(super) fn in_header(header: &Table, file: &str) -> Vec<String> {
    let foreign = header.keys().filter(|key| !HEADER.contains(&key.as_str()));
    let warned = foreign.map(|key| warning(key, file).unwrap_or_else(|| unknown(key, file)));
    warned.chain(in_tool(header, file)).take(MOST).collect()
}

/// What a project file says that was meant for us and is not read.
pub(super) fn in_project(project: &Table, file: &str) -> Vec<String> {
    let warned = project.keys().filter_map(|key| warning(key, file));
    warned.chain(in_tool(project, file)).take(MOST).collect()
}

/// What is told of a key beside `[tool]`, if it was meant for us.
fn warning(key: &str, file: &str) -> Option<String> {
    let whose = if is_near(key) {
        format!("[{key}] is not read")
    } else if KNOWN.contains(&key) {
        format!("{key} stands outside of [tool.{OURS}] and is not read")
    } else {
        return None;
    };
    Some(format!("{file}: {whose}: settings belong into [tool.{OURS}]"))
}

fn unknown(key: &str, file: &str) -> String {
    let shown: String = key.chars().take(LONGEST).collect();
    let likeness = |known: &str| strsim::jaro_winkler(known, &shown);
    let all = HEADER.iter().chain(&KNOWN);
    let nearest = all.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let near = nearest.filter(|known| likeness(known) > 0.75);
    let hint = near.map(|known| format!(" (did you mean {known:?}?)")).unwrap_or_default();
    format!(
        "{file}: {shown:?} is not read{hint}: a header has {}; settings belong into [tool.{OURS}]",
        HEADER.join(", ")
    )
}

fn in_tool(table: &Table, file: &str) -> impl Iterator<Item = String> {
    let tools = table.get("tool").and_then(Value::as_table).into_iter().flat_map(Table::keys);
    let near = tools.filter(|key| *key != OURS && is_near(key));
    near.map(move |key| format!("{file}: [tool.{key}] is not read: did you mean [tool.{OURS}]?"))
}

/// Whether a name is ours, or a slip of it.
fn is_near(key: &str) -> bool {
    // A name is compared letter by letter with ours: no longer one can be near it.
    if key.len() > OURS.len() + SLIPS {
        return false;
    }
    let key = key.to_ascii_lowercase();
    key == "wool" || strsim::osa_distance(&key, OURS) <= SLIPS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Vec<String> {
        in_header(&text.parse().unwrap(), "f.py")
    }

    fn project(text: &str) -> Vec<String> {
        in_project(&text.parse().unwrap(), "pyproject.toml")
    }

    #[test]
    fn a_table_that_is_nearly_ours_is_told_wherever_it_stands() {
        for name in ["lambswol", "lambwool", "Lambswool", "lambs-wool", "lambsowol", "wool"] {
            let text = format!("[tool.{name}]\nisolation = \"microvm\"");
            for told in [header(&text), project(&text)] {
                let [one] = &told[..] else { panic!("{name}: {told:?}") };
                assert!(
                    one.contains(name) && one.contains("did you mean [tool.lambswool]"),
                    "{one}"
                );
            }
        }
        for text in
            ["[lambswool]\nisolation = \"microvm\"", "[lambswol]", "isolation = \"microvm\""]
        {
            for told in [header(text), project(text)] {
                let [one] = &told[..] else { panic!("{text}: {told:?}") };
                assert!(one.contains("settings belong into [tool.lambswool]"), "{one}");
            }
        }
    }

    #[test]
    fn what_is_for_others_is_not_told() {
        let text = "[tool.uv]\n[tool.poetry]\n[tool.lambda]\n[tool.pyright]\n[tool.lambswool]\nmemory = \"1GB\"\n";
        assert_eq!(
            header(&format!("dependencies = []\nrequires-python = \">=3.11\"\n{text}")),
            [""; 0]
        );
        let others = format!(
            "[project]\nname = \"isolation\"\n[build-system]\n[dependency-groups]\n[x]\n{text}"
        );
        assert_eq!(project(&others), [""; 0]);
    }

    #[test]
    fn a_header_has_three_keys_and_another_is_told_with_the_nearest() {
        let told = header("dependancies = [\"pandas\"]");
        assert!(told[0].starts_with("f.py: ") && told[0].contains("did you mean \"dependencies\""));
        assert!(!header("zzz = 1")[0].contains("did you mean"));
        let many: String = (0..1000).map(|n| format!("{}{n} = 1\n", "x".repeat(200))).collect();
        let told = header(&many);
        assert!(told.len() == MOST && told.iter().all(|one| one.len() < 250), "{told:?}");
    }
}
