//! Why a distribution of a bundle stays code.

use thiserror::Error;

/// Why a distribution of a bundle stays code, as a clause.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// No complete `.dist-info`.
    #[error("it has no {0}")]
    Lacks(&'static str),
    /// A list that is not read.
    #[error("its {file} has more than {} MiB", most >> 20)]
    TooLong {
        /// The file's name.
        file: &'static str,
        /// Most bytes that are read of it.
        most: u64,
    },
    /// Too many rows, in it or together with those before it.
    #[error("the bundle's RECORDs have more than {0} rows")]
    TooManyRows(usize),
    /// Too many distributions.
    #[error("the bundle has more than {0} distributions")]
    TooMany(usize),
    /// A row that is no path with a hash and a size.
    #[error("line {0} of its RECORD is not understood")]
    Row(usize),
    /// A file without a hash that can be compared.
    #[error("its RECORD has no SHA-256 of {0:?}")]
    Unhashed(String),
    /// A path in two rows.
    #[error("its RECORD lists {0:?} twice")]
    Twice(String),
    /// A path that does not stay in the bundle, or is in another place than a module's.
    #[error("its RECORD lists {0:?}, which is outside of its modules")]
    Outside(String),
    /// A file that is not there, or is no regular file.
    #[error("{0:?} of its RECORD is no file of the bundle")]
    Missing(String),
    /// A file of another content.
    #[error("{0:?} is not what its RECORD says: it was changed or stripped")]
    Differs(String),
    /// A command that `entry_points.txt` does not tell.
    #[error("its command {0:?} is not made from entry points")]
    Command(String),
    /// Entry points of a form that is not read.
    #[error("its entry_points.txt is not understood: {0:?}")]
    EntryPoints(String),
    /// It does not say what it is.
    #[error("{0}")]
    Metadata(String),
    /// A file that another distribution lists, too: each of many could take all files of the bundle for its own.
    #[error("{path:?} is in the RECORD of {other} as well")]
    Claimed {
        /// The file that both list.
        path: String,
        /// The distribution that was looked at before.
        other: String,
    },
    /// Too many commands, in it or together with those before it.
    #[error("the bundle's entry points make more than {0} commands")]
    TooManyCommands(usize),
    /// Another distribution says that it has the same name.
    #[error("{0} calls itself the same")]
    SameName(String),
    /// It has the handler's module.
    #[error("it has the handler's module {0:?}")]
    Handler(String),
    /// Under a top-level name of its own lies a file that stays.
    #[error("{0:?}, which stays code, shares a name with it")]
    Shared(String),
}
