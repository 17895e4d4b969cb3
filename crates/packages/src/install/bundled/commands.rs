//! The commands of a distribution, from its `entry_points.txt`, as uv writes them and [`super::super::scripts`] leaves them.

use std::collections::BTreeMap;

use super::Reason;
use crate::install::scripts::INTERPRETER;

/// Commands by name, with their texts. A form that uv might read otherwise is refused.
pub(super) fn of(entry_points: &str) -> Result<BTreeMap<String, String>, Reason> {
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
        let (name, text) = command(plain).ok_or_else(refused)?;
        if commands.insert(name, text).is_some() {
            return Err(refused());
        }
    }
    Ok(commands)
}

/// A line `name = module:function`.
fn command(line: &str) -> Option<(String, String)> {
    let (name, target) = line.split_once('=')?;
    let (module, function) = target.trim().split_once(':')?;
    let name = name.trim_end();
    let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let named = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(known);
    (named && is_dotted(module) && is_dotted(function)).then(|| {
        let first = function.split('.').next().unwrap_or_default();
        (name.to_owned(), text(module, first, function))
    })
}

fn text(module: &str, first: &str, function: &str) -> String {
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
        let one = &commands["one"];
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
        ] {
            let refused = of(&format!("[console_scripts]\n{bad}\n"));
            assert!(matches!(refused, Err(Reason::EntryPoints(_))), "{bad}");
        }
    }
}
