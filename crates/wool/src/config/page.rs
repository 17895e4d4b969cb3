//! The settings as people read them: in `wool up --help`, and as the tables of `docs/user/configuration.md`.

use super::{Config, Setting};

/// Columns of the help up to what a setting means.
const COLUMN: usize = 40;

/// Columns of the help.
const WIDTH: usize = 110;

/// Bounds of the generated part of the page.
#[cfg(test)]
const BEGIN: &str = "<!-- generated from the settings' declarations: begin -->\n";
#[cfg(test)]
const END: &str = "<!-- generated: end -->";

/// What `wool up --help` says of settings.
#[must_use]
pub fn help() -> String {
    let mut text = String::from(
        "\
Settings come from a file, then from WOOL_* variables, then from flags; the later wins. The file is
--config FILE, else $XDG_CONFIG_HOME/lambswool/config.toml, else /etc/lambswool/config.toml. Unknown keys
are errors. A key `k` has the variable WOOL_K. A size is a number of bytes, or has a unit: KiB, MiB, GiB
or TiB; KB, MB, GB and TB are the same, powers of 1024. docs/user/configuration.md says more of each.",
    );
    for (group, settings) in groups(Config::DECLARED) {
        text.push_str(&format!("\n\n{group}:"));
        for setting in settings {
            let written = format!("  {} = {}", setting.key, setting.example);
            text.push_str(&format!("\n{written}"));
            let mut column = written.chars().count();
            for word in setting.summary().split_whitespace() {
                let length = word.chars().count();
                if column >= COLUMN && column + 1 + length > WIDTH {
                    text.push('\n');
                    column = 0;
                }
                let gap = COLUMN.saturating_sub(column).max(1);
                text.push_str(&format!("{:gap$}{word}", ""));
                column += gap + length;
            }
        }
    }
    text
}

/// The same as tables in Markdown, with all that there is to say.
#[must_use]
pub fn rows() -> String {
    let mut text = String::new();
    for (group, settings) in groups(Config::DECLARED) {
        text.push_str(&format!("\n### {group}\n\n"));
        text.push_str("| key | example | variable | what it means |\n");
        text.push_str("| --- | --- | --- | --- |\n");
        for setting in settings {
            let words = setting.words.split_whitespace().collect::<Vec<_>>().join(" ");
            let row = format!(
                "| `{}` | `{}` | `{}` | {} |\n",
                setting.key,
                setting.example,
                setting.variable(),
                words.replace('|', "\\|")
            );
            text.push_str(&row);
        }
    }
    text
}

fn groups(declared: &'static [Setting]) -> Vec<(&'static str, &'static [Setting])> {
    let parts = declared.chunk_by(|one, next| one.group == next.group);
    parts.map(|part| (part[0].group, part)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use toml::Table;

    use super::super::Internals;
    use super::*;

    #[test]
    fn every_setting_is_in_the_help_of_up() {
        let help = help();
        for setting in Config::DECLARED {
            let line = format!("\n  {} = {}", setting.key, setting.example);
            let first = setting.summary().split_whitespace().next().unwrap();
            assert!(help.contains(&line) && help.contains(first), "{setting:?}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= WIDTH), "{help}");
    }

    /// `UPDATE_DOCS=1 cargo test -p wool page` writes it anew.
    #[test]
    fn the_configuration_page_has_a_row_for_each_setting() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user/configuration.md");
        let text = fs::read_to_string(&page).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (there, after) = rest.split_once(END).unwrap();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&page, format!("{before}{BEGIN}{}{END}{after}", rows())).unwrap();
        } else {
            assert_eq!(there, rows(), "run `UPDATE_DOCS=1 cargo test -p wool page`");
        }
    }

    /// A default that is the same on every machine is the example that people see.
    #[test]
    fn an_example_is_a_value_and_the_default_unless_another_is_told() {
        for setting in Config::DECLARED {
            let text = format!("{} = {}", setting.key, setting.example);
            let read: Config = text.parse::<Table>().unwrap().try_into().expect(&text);
            let told = setting.words.contains("Default:") || setting.key.starts_with("tls_");
            // That of `state` is the user's.
            if setting.key != "state" {
                assert_eq!(read == Config::default(), !told, "{text}");
            }
        }
        for setting in Internals::DECLARED {
            let text = format!("{} = {}", setting.key, setting.example);
            let read: Internals = text.parse::<Table>().unwrap().try_into().expect(&text);
            let told = setting.words.contains("Default:") || setting.words.contains("Default,");
            assert_eq!(read == Internals::default(), !told, "{text}");
        }
    }
}
