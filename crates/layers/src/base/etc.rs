//! What stands in a base beside Python: directories, links and the few files of `/etc` that libraries read.
//!
//! There is no shell and no `env`: a function that wants to run a program brings it along. `subprocess` works for
//! programs that are there (`sys.executable`), `shell=True` does not.

use std::path::PathBuf;

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

const TEXTS: [(&str, &str); 7] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/sbin/nologin\n\
         sandbox:x:1000:1000:sandbox:/tmp:/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/hostname", "sandbox\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    // Where a sandbox that may reach names asks for them; covered by the host's own in the host's network.
    ("etc/resolv.conf", "nameserver 127.0.0.1\n"),
    ("etc/os-release", "NAME=Lambswool\nID=lambswool\nPRETTY_NAME=\"Lambswool sandbox\"\n"),
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
}
