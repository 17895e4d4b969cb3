//! The commands of a distribution, from its `entry_points.txt`, as uv writes them and [`super::super::scripts`] leaves them.

use std::collections::BTreeMap;

use super::Reason;
use crate::install::scripts::INTERPRETER;

/// Most commands of all distributions of a bundle together: each is a file.
pub(super) const MAX_COMMANDS: usize = 1000;

/// Longest name of a command, and longest target, in bytes.
const MAX_NAME: usize = 100;
const MAX_TARGET: usize = 400;

/// What a command calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    module: String,
    function: String,
}

/// Commands by name. A form that uv might read otherwise is refused.
pub(super) fn of(entry_points: &str) -> Result<BTreeMap<String, Target>, Reason> {
    let mut commands = BTreeMap::new();
    let mut of_commands = false;
    for line in entry_points.lines() {
        let plain = line.trim_end();
        if plain.is_empty() || plain.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = plain.strip_prefix('[') {
            of_commands = matches!(section, "console_scripts]" | "gui_scripts]");
            continue;
        }
        if !of_commands {
            continue;
        }
        let refused = || Reason::EntryPoints(plain.chars().take(80).collect());
        let (name, target) = command(plain).ok_or_else(refused)?;
        if commands.insert(name, target).is_some() {
            return Err(refused());
        }
    }
    Ok(commands)
}

/// A line `name = module:function`.
fn command(line: &str) -> Option<(String, Target)> {
    let (name, target) = line.split_once('=')?;
    let (module, function) = target.trim().split_once(':')?;
    let name = name.trim_end();
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let named = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(known);
    let is_short = name.len() <= MAX_NAME && target.len() <= MAX_TARGET;
    (named && is_short && is_dotted(module) && is_dotted(function)).then(|| {
        (name.to_owned(), Target { module: module.to_owned(), function: function.to_owned() })
    })
}

impl Target {
    /// The command's file.
    pub(super) fn text(&self) -> String {
        let Self { module, function } = self;
        let first = function.split('.').next().unwrap_or_default();
        format!(
            "#!{INTERPRETER}\n\
             # -*- coding: utf-8 -*-\n\
             import sys\n\
             from {module} import {first}\n\
             if __name__ == \"__main__\":\n\
             \x20   if sys.argv[0].endswith(\"-script.pyw\"):\n\
             \x20       sys.argv[0] = sys.argv[0][:-11]\n\
             \x20   elif sys.argv[0].endswith(\".exe\"):\n\
             \x20       sys.argv[0] = sys.argv[0][:-4]\n\
             \x20   sys.exit({function}())\n"
        )
    }
}

fn is_dotted(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
            && part.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_both_kinds_are_made_and_other_entry_points_are_none() {
        let text = "# x\n[pytest11]\na = b\n\n[console_scripts]\none = p.q:main.run\n[gui_scripts]\ntwo-2=p:f\n";
        let commands = of(text).unwrap();
        assert_eq!(commands.keys().collect::<Vec<_>>(), ["one", "two-2"]);
        let one = commands["one"].text();
        assert!(one.starts_with("#!/usr/bin/python3\n# -*- coding: utf-8 -*-\nimport sys\n"));
        assert!(one.contains("from p.q import main\n") && one.ends_with("sys.exit(main.run())\n"));
    }

    #[test]
    fn a_command_that_is_not_plain_is_refused() {
        for bad in [
            "../x = p:f",
            "x = p",
            "x = p:f [extra]",
            "x = p:f\n  more",
            "x = p:f()",
            "x = p:f\nx = q:f",
            "x = p:\"",
            &format!("{} = p:f", "x".repeat(MAX_NAME + 1)),
            &format!("x = p:{}", "f".repeat(MAX_TARGET)),
        ] {
            let refused = of(&format!("[console_scripts]\n{bad}\n"));
            assert!(matches!(refused, Err(Reason::EntryPoints(_))), "{bad}");
        }
    }
}
