//! What stands in a base beside Python: directories, links and the few files of `/etc` that libraries read.
//!
//! There is no shell and no `env`: a function that wants to run a program brings it along. `subprocess` works for
//! programs that are there (`sys.executable`), `shell=True` does not.

use std::fs;
use std::path::{Path, PathBuf};

use super::plan::{Item, Plan};

/// Mount points, and directories that programs expect.
const DIRECTORIES: [&str; 11] = [
    "proc",
    "sys",
    "dev",
    "tmp",
    "run",
    "home",
    "root",
    "var/task",
    "opt/python",
    "opt/lambswool",
    "usr/bin",
];

/// The merged layout: what a program asks for at the root is below `/usr`.
const LINKS: [(&str, &str); 6] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("var/tmp", "../tmp"),
    ("var/run", "../run"),
];

const TEXTS: [(&str, &str); 8] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/sbin/nologin\n\
         sandbox:x:1000:1000:sandbox:/tmp:/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    // Its own name, in a container and in a micro-VM, each at an address of its own, so that an address leads back to it.
    (
        "etc/hosts",
        "127.0.0.1 localhost\n127.0.1.1 sandbox\n127.0.1.2 microvm\n::1 localhost ip6-localhost ip6-loopback\n",
    ),
    ("etc/hostname", "sandbox\n"),
    ("etc/host.conf", "multi on\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\n\
         services: files\nethers: files\nrpc: files\n",
    ),
    // Where a sandbox that may reach names asks for them; covered by the host's own in the host's network.
    ("etc/resolv.conf", "nameserver 127.0.0.1\n"),
    ("etc/os-release", "NAME=Lambswool\nID=lambswool\nPRETTY_NAME=\"Lambswool sandbox\"\n"),
];

/// Tables by names: a copy of the host's, or the short ones here where the host has none. Only lines
/// of two words: a media type without an ending answers no question, and reading it takes time.
const TABLES: [(&str, &str); 3] = [
    ("etc/services", include_str!("etc/services")),
    ("etc/protocols", include_str!("etc/protocols")),
    ("etc/mime.types", include_str!("etc/mime.types")),
];

/// Adds all of it.
pub(super) fn put(plan: &mut Plan) {
    for directory in DIRECTORIES {
        plan.put(directory, Item::Directory);
    }
    for directory in ["usr/lib", "usr/lib64"] {
        plan.put(directory, Item::Directory);
    }
    for (path, target) in LINKS {
        plan.put(path, Item::Link(PathBuf::from(target)));
    }
    for (path, text) in TEXTS {
        plan.put(path, Item::Text(text.to_owned()));
    }
    for (path, ours) in TABLES {
        let host = fs::read_to_string(Path::new("/").join(path)).unwrap_or_default();
        let entries = entries(&host);
        let text = if entries.is_empty() { ours.to_owned() } else { entries };
        plan.put(path, Item::Text(text));
    }
}

/// The lines of a table that have two words at least, without comments.
fn entries(table: &str) -> String {
    let lines = table.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end());
    lines
        .filter(|line| line.split_whitespace().nth(1).is_some())
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_host_is_kept_without_what_is_no_entry() {
        let host = "# IANA\n\nhttps 443/tcp # web\napplication/x-nothing\nimage/png\tpng\n";
        assert_eq!(entries(host), "https 443/tcp\nimage/png\tpng\n");
    }

    #[test]
    fn tables_of_our_own_have_entries_alone_and_each_name_once() {
        for (path, ours) in TABLES {
            let (comment, table) = ours.split_once('\n').unwrap();
            assert!(comment.starts_with("# ") && entries(ours) == table, "{path}");
            let key = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let protocol = words[1].rsplit_once('/').map_or("", |(_, protocol)| protocol);
                format!("{} {protocol}", words[0])
            };
            let mut keys: Vec<String> = table.lines().map(key).collect();
            keys.sort();
            assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{path}: {keys:?}");
        }
    }
}
