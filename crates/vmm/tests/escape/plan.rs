//! What the test has a monitor try.

use serde::{Deserialize, Serialize};
use vmm::monitor::jail::Wall;

/// Walls by their names in the table.
pub(crate) const WALLS: [(Wall, &str); 8] = [
    (Wall::Network, "network namespace"),
    (Wall::Ipc, "IPC namespace"),
    (Wall::HostName, "UTS namespace"),
    (Wall::EmptyRoot, "empty root"),
    (Wall::UserNamespace, "user namespace"),
    (Wall::Rights, "uid and capabilities"),
    (Wall::Landlock, "Landlock"),
    (Wall::Filter, "filter"),
];

/// An attack, and the jail that it is tried in.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The attack to try.
    pub(crate) attack: String,
    /// What it is after.
    pub(crate) argument: String,
    /// The walls that are missing, by name. Those that the warden builds are none of the program's.
    pub(crate) without: Vec<String>,
}

impl Plan {
    pub(crate) fn missing(&self) -> Vec<Wall> {
        let named = |(_, name): &&(Wall, &str)| self.without.iter().any(|one| one == name);
        WALLS.iter().filter(named).map(|(wall, _)| *wall).collect()
    }
}
