//! What the worker and a monitor say to each other: one JSON object a packet, descriptors beside it.

use sandbox::{Death, Imports, Limits, LoadedFile};
use serde::{Deserialize, Serialize};

/// Longest packet either side accepts, in bytes.
pub const MAX_PACKET: usize = 64 << 10;

/// Longest reason that is listened to, in bytes.
const MAX_REASON: usize = 1 << 10;

/// What is told of a machine's last words at most, in bytes.
pub const MAX_LAST_WORDS: usize = 4 << 10;

/// Where packages go.
pub const PACKAGES: &str = "/opt/python";
/// Where code goes.
pub const CODE: &str = "/var/task";
/// Where Lambswool's own Python goes.
pub const GUEST: &str = "/opt/lambswool";

/// From the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Order {
    /// After [`Event::Up`]: start the reference machine. A descriptor for each layer comes along. Answered by
    /// [`Event::Ready`].
    Refer {
        /// The interpreter's path in the base.
        interpreter: String,
        /// Where each layer goes, the base first.
        layers: Vec<String>,
    },
    /// Instead of all of these until [`Order::Freeze`]: make the frozen reference machine of a snapshot. The file's
    /// descriptor comes along, at the snapshot's beginning, then one for each layer. Answered by [`Event::Frozen`].
    Restore {
        /// Where each layer goes, as for the machine that was saved.
        layers: Vec<String>,
        /// As for [`Order::Freeze`].
        spares: usize,
    },
    /// Import these modules in it. Answered by [`Event::Imported`].
    Import {
        /// Which.
        modules: Vec<String>,
        /// What stands before the standard library on `sys.path`.
        path: Vec<String>,
    },
    /// Freeze it. Answered by [`Event::Frozen`].
    Freeze {
        /// Clones to keep ready, for those that are ordered.
        spares: usize,
    },
    /// Write a snapshot of the frozen one. A pipe's descriptor comes along, which is closed at the end. Answered by
    /// [`Event::Saved`].
    Save {},
    /// Make a clone. The channel's descriptor comes along, then one for each layer. Answered by [`Event::Cloned`].
    Clone {
        /// Its name; never reused.
        number: u64,
        /// Layers beyond the reference machine's.
        layers: Vec<Place>,
        /// Its limits.
        limits: Limits,
        /// Whether it goes back, after each call, to where its code had just been loaded.
        reset: bool,
    },
    /// A clone's call is over: unless it waits for its channel within a moment it runs no further. Not answered.
    Rest {
        /// Which.
        number: u64,
    },
    /// A clone that was told to rest will be called. Not answered.
    Go {
        /// Which.
        number: u64,
    },
}

/// A layer of a clone's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The layer's name; equal names mean equal contents.
    pub layer: String,
    /// Where it goes.
    pub at: String,
}

/// From a monitor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Event {
    /// First of all, before any order: KVM makes machines here.
    Up {},
    /// Instead of [`Event::Up`]: it makes none, and this will not pass by itself. Nothing follows.
    Unusable {
        /// Why, and what to do about it.
        reason: String,
    },
    /// The reference machine's interpreter is up.
    Ready {},
    /// Some of the files that an import has loaded: before [`Event::Imported`], as many packets as it takes.
    Files {
        /// In the order in which their imports ended.
        files: Vec<LoadedFile>,
    },
    /// What an import did, the files apart.
    Imported {
        /// See [`Imports`].
        imports: Imports,
    },
    /// Clones can be made.
    Frozen {
        /// Bytes that a clone has of its own once it waits for its code.
        clone_bytes: u64,
        /// Bytes that a clone has mapped from the start: beside its limit, what it can come to have of its own.
        given_bytes: u64,
    },
    /// What was written to the pipe is a whole snapshot; or it is none, for this reason.
    Saved {
        /// Why not.
        failed: Option<String>,
    },
    /// A clone waits for its code.
    Cloned {
        /// Which.
        number: u64,
    },
    /// An order was not carried out. Without a number: the reference machine is lost, and nothing follows.
    Failed {
        /// Which clone there is not.
        number: Option<u64>,
        /// Why.
        reason: String,
        /// The host is out of something: try later.
        exhausted: bool,
    },
    /// What a clone weighs.
    Weighs {
        /// Which.
        number: u64,
        /// Bytes that are its own.
        bytes: u64,
    },
    /// A clone's guest has ended; its channel is closed.
    Ended {
        /// Which.
        number: u64,
        /// How.
        death: Death,
        /// The end of what it wrote to its standard error and did not say itself, at most [`MAX_LAST_WORDS`] bytes.
        said: String,
    },
    /// A clone's memory was given back, however it came to that. Nothing more is told of it.
    Gone {
        /// Which.
        number: u64,
    },
    /// A guest tried a system call that does not exist here; once for each kind.
    Lacks {
        /// Its number.
        call: u64,
    },
}

impl Order {
    /// Whether the monitor answers it with what concerns its reference machine.
    pub(crate) fn is_answered(&self) -> bool {
        match self {
            Self::Refer { .. }
            | Self::Restore { .. }
            | Self::Import { .. }
            | Self::Freeze { .. }
            | Self::Save {} => true,
            Self::Clone { .. } | Self::Rest { .. } | Self::Go { .. } => false,
        }
    }
}

impl Event {
    /// With a reason that is no longer than reasons are: it stands in logs, and in what callers are told.
    pub(crate) fn shortened(mut self) -> Self {
        if let Self::Failed { reason, .. }
        | Self::Unusable { reason }
        | Self::Saved { failed: Some(reason) } = &mut self
        {
            reason.truncate(reason.floor_char_boundary(MAX_REASON));
        }
        if let Self::Ended { said, .. } = &mut self {
            said.truncate(said.floor_char_boundary(MAX_LAST_WORDS));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_where_no_reason_is_that_long() {
        let failed = |reason: &str| {
            let (number, reason) = (None, reason.to_owned());
            Event::Failed { number, reason, exhausted: false }
        };
        assert_eq!(failed("no memory").shortened(), failed("no memory"));
        let long = "ä".repeat(MAX_REASON);
        assert_eq!(failed(&long).shortened(), failed(&long[..MAX_REASON]));
        let (long, odd) = (format!("a{long}"), MAX_REASON - 1);
        let saved = |reason: &str| Event::Saved { failed: Some(reason.to_owned()) };
        assert_eq!(saved(&long).shortened(), saved(&long[..odd]));
    }
}
