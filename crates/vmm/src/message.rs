//! Messages between the worker and a monitor: one JSON object a packet, with descriptors beside it.

use sandbox::{Death, Imports, Limits, LoadedFile};
use serde::{Deserialize, Serialize};

/// Bytes of a packet, on either side.
pub const MAX_PACKET: usize = 64 << 10;

/// Bytes of a reason that the worker keeps.
const MAX_REASON: usize = 1 << 10;

/// Bytes of a guest's last words.
pub const MAX_LAST_WORDS: usize = 4 << 10;

/// Path of packages in a guest.
pub const PACKAGES: &str = "/opt/python";
/// Path of a function's code in a guest.
pub const CODE: &str = "/var/task";
/// Path of Lambswool's own Python in a guest.
pub const GUEST: &str = "/opt/lambswool";

/// An order of the worker's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Order {
    /// After [`Event::Up`]: start the reference machine. With a descriptor for each layer. Answered
    /// by [`Event::Ready`].
    Refer {
        /// The interpreter's path in the base.
        interpreter: String,
        /// Path of each layer, the base first.
        layers: Vec<String>,
    },
    /// Instead of all these orders up to [`Order::Freeze`]: make the frozen reference machine from
    /// a snapshot. With the file's descriptor, at the snapshot's beginning, then one for each
    /// layer. Answered by [`Event::Frozen`].
    Restore {
        /// Path of each layer, as for the saved machine.
        layers: Vec<String>,
        /// As for [`Order::Freeze`].
        spares: usize,
    },
    /// Import modules in the reference machine. Answered by [`Event::Imported`].
    Import {
        /// Names of the modules.
        modules: Vec<String>,
        /// Directories before the standard library on `sys.path`.
        path: Vec<String>,
    },
    /// Freeze the reference machine. Answered by [`Event::Frozen`].
    Freeze {
        /// Number of clones to keep ready.
        spares: usize,
    },
    /// Write a snapshot of the frozen machine to a pipe. With the pipe's descriptor, which is
    /// closed at the end. Answered by [`Event::Saved`].
    Save {},
    /// Make a clone. With the channel's descriptor, then one for each layer. Answered by
    /// [`Event::Cloned`].
    Clone {
        /// The clone's number, which is never reused.
        number: u64,
        /// Layers beyond the reference machine's.
        layers: Vec<Place>,
        /// Limits of the clone.
        limits: Limits,
        /// Whether it is reset after each call to where its code had just been loaded.
        reset: bool,
    },
    /// A clone's call is over: unless it waits for its channel within a moment, it is held. Not
    /// answered.
    Rest {
        /// The clone's number.
        number: u64,
    },
    /// A resting clone will be called. Not answered.
    Go {
        /// The clone's number.
        number: u64,
    },
}

/// A layer of a clone's own, and its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The layer's name; equal names mean equal contents.
    pub layer: String,
    /// Path in the guest.
    pub at: String,
}

/// An event of a monitor's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Event {
    /// The first event, before any order: KVM can make machines here.
    Up {},
    /// Instead of [`Event::Up`]: KVM cannot, and this will not pass by itself. Nothing follows.
    Unusable {
        /// The reason, and what to do about it.
        reason: String,
    },
    /// The reference machine's interpreter is up.
    Ready {},
    /// Some of the files that an import has loaded, before [`Event::Imported`]; in as many packets
    /// as needed.
    Files {
        /// The files, in the order in which their imports ended.
        files: Vec<LoadedFile>,
    },
    /// The effects of an import, but for its files.
    Imported {
        /// See [`Imports`], without its files.
        imports: Imports,
    },
    /// The reference machine is frozen, and clones can be made.
    Frozen {
        /// Bytes of a clone's own when it waits for its code.
        clone_bytes: u64,
        /// Bytes that a clone shares from the start: it may come to own them beside its limit.
        given_bytes: u64,
    },
    /// The snapshot is complete, or was not written.
    Saved {
        /// Why it was not written.
        failed: Option<String>,
    },
    /// A clone waits for its code.
    Cloned {
        /// The clone's number.
        number: u64,
    },
    /// An order failed. Without a number the reference machine is lost, and nothing follows.
    Failed {
        /// Number of the clone that was not made.
        number: Option<u64>,
        /// The reason, with its causes.
        reason: String,
        /// Whether the host was out of something, so that a later try may succeed.
        exhausted: bool,
    },
    /// The memory of a clone.
    Weighs {
        /// The clone's number.
        number: u64,
        /// Bytes that it does not share.
        bytes: u64,
    },
    /// A clone's guest has ended; its channel is closed.
    Ended {
        /// The clone's number.
        number: u64,
        /// How the guest ended.
        death: Death,
        /// The end of its standard error that it did not send itself, at most [`MAX_LAST_WORDS`]
        /// bytes.
        said: String,
    },
    /// A clone's memory was given back. No event of it follows.
    Gone {
        /// The clone's number.
        number: u64,
    },
    /// A guest tried a system call that does not exist here; once for each number.
    Lacks {
        /// The call's number on x86-64.
        call: u64,
    },
}

impl Order {
    /// Whether the monitor answers the order with an event about its reference machine.
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
    /// The event with its reason cut to [`MAX_REASON`] bytes, because reasons stand in logs and
    /// answers to callers.
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
