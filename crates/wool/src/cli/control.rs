//! Commands about who may do what.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use function::Label;
use function::quantity::Span;
use platform::access::Scope;

const EXAMPLES: &str = "\
Examples:
  wool token create ci --scope deploy,read
  wool token create acme-ci --scope deploy,read --tenant acme
  wool token create shop --scope invoke --functions 'order-*' --expires 90d
  WOOL_TOKEN=wool_… wool --url http://127.0.0.1:8470 invoke hello

Over TCP everything takes a token but calls on a loopback address, and from the first token on these do, too. The state
directory's Unix socket takes none: it is for the worker's own user, root, and the members of the group `admin_group`.";

/// The arguments of `wool token`.
#[derive(Clone, Debug, Subcommand)]
pub enum Token {
    /// Make a token, and show it this once
    Create(TokenCreate),
    /// List the tokens, and what they allow
    Ls,
    /// Remove tokens; the worker refuses them from now on
    Rm {
        /// Names of the tokens
        #[arg(required = true)]
        names: Vec<Label>,
    },
}

/// `wool token create`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TokenCreate {
    /// The token's name
    pub name: Label,
    /// What it allows: deploy, invoke, read, or admin for everything
    #[arg(short, long = "scope", value_name = "SCOPE", value_delimiter = ',', required = true)]
    pub scopes: Vec<Scope>,
    /// Only functions with such names; `*` stands for anything [default: all]
    #[arg(short, long, value_name = "GLOB", value_delimiter = ',')]
    pub functions: Vec<String>,
    /// How long it is valid, as in 12h or 90d [default: until it is removed]
    #[arg(short, long, value_name = "TIME", value_parser = Span::with_unit)]
    pub expires: Option<Span>,
    /// Write it to a file that only its owner reads, instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The arguments of `wool tls`.
#[derive(Clone, Debug, Subcommand)]
pub enum Tls {
    /// Make a self-signed certificate and its key
    #[command(name = "self-signed", after_help = SELF_SIGNED)]
    SelfSigned {
        /// Host names and addresses by which the worker is reached
        #[arg(required = true)]
        names: Vec<String>,
        /// Where to put cert.pem and key.pem [default: tls in the state directory]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Replace what is there
        #[arg(long)]
        force: bool,
    },
}

const SELF_SIGNED: &str = "\
Give cert.pem, not key.pem, to those who call the worker; they name it with --ca.";

/// The arguments of `wool secret`.
#[derive(Clone, Debug, Subcommand)]
pub enum Secret {
    /// Set a secret; the function's next instances have it
    #[command(after_help = SECRET)]
    Set {
        /// The function's name
        name: String,
        /// The variable's name
        key: String,
        /// The value; `-`, or nothing, for stdin
        value: Option<String>,
    },
    /// List the names of a function's secrets
    Ls {
        /// The function's name
        name: String,
    },
    /// Remove secrets; the function's next instances do without them
    Rm {
        /// The function's name
        name: String,
        /// The variables' names
        #[arg(required = true)]
        keys: Vec<String>,
    },
}

const SECRET: &str = "\
Examples:
  wool secret set report DATABASE_URL < url.txt
  pass show mail | wool secret set mailer PASSWORD

A value on the command line stays in the shell's history, and other users see it while the command runs. One line's
end is left out where the value comes from stdin.";

/// The arguments of `wool audit`.
#[derive(Clone, Debug, Args)]
pub struct Audit {
    /// How many actions to go back, at most 100000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = super::lines)]
    pub lines: usize,
}
