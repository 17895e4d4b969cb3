//! Commands about versions of functions.

use clap::{Args, Subcommand};

/// The arguments of `wool versions`.
#[derive(Clone, Debug, Args)]
pub struct Versions {
    /// The function's name
    pub name: String,
}

/// The arguments of `wool publish`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example:\n  wool deploy report/\n  wool publish report --description 'for May'\n  wool invoke report:1 '{}'"
)]
pub struct Publish {
    /// The function's name
    pub name: String,
    /// What to remember about the version; one that has the newest number already keeps what it has
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
}

/// The arguments of `wool unpublish`.
#[derive(Clone, Debug, Args)]
pub struct Unpublish {
    /// The function's name
    pub name: String,
    /// The numbers of published versions
    #[arg(required = true)]
    pub numbers: Vec<u32>,
}

/// The arguments of `wool alias`.
#[derive(Clone, Debug, Subcommand)]
pub enum Alias {
    /// Point an alias at a published version
    #[command(
        after_help = "Examples:\n  wool alias set report live 1\n  wool alias set report live 1 --canary 2=0.1   one call in ten goes to version 2\n  wool invoke report:live '{}'"
    )]
    Set {
        /// The function's name
        name: String,
        /// The alias: letters, digits, `-` and `_`, not digits alone
        alias: String,
        /// The number of a published version
        number: u32,
        /// A second version, and its share of the calls
        #[arg(long, value_name = "NUMBER=SHARE", value_parser = canary)]
        canary: Option<(u32, f64)>,
        /// What to remember about the alias
        #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        description: String,
    },
    /// Remove an alias; its version stays
    Rm {
        /// The function's name
        name: String,
        /// The name of the alias
        alias: String,
    },
}

/// The arguments of `wool rollback`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool rollback report            the version that was first deployed before the current one\n  wool rollback report 3          a published version\n  wool rollback report 9f2c60d1   a version whose id begins so"
)]
pub struct RollBack {
    /// The function's name
    pub name: String,
    /// A published version's number, or at least the first 8 digits of a version's id [default: the version that was first
    /// deployed before the current one]
    pub version: Option<String>,
}

fn canary(text: &str) -> Result<(u32, f64), String> {
    let read = || {
        let (number, share) = text.split_once('=')?;
        Some((number.trim().parse().ok()?, share.trim().parse().ok()?))
    };
    read().ok_or_else(|| "give a version's number and a share, such as 2=0.1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_is_a_number_and_a_share() {
        assert_eq!(canary("2=0.1"), Ok((2, 0.1)));
        for bad in ["", "2", "=0.1", "2=", "two=0.1", "2=ten", "-1=0.1"] {
            assert!(canary(bad).is_err(), "{bad}");
        }
    }
}
