//! A tree in a snapshot on disk: a hash of its read-only part, and the empty files of its scratch.

use std::os::unix::ffi::OsStrExt as _;

use blake3::Hasher;

use serde::{Deserialize, Serialize};

use super::super::node::SCRATCH;
use super::{Node, NodeId, Tree};
use crate::vfs::{Contents, DirectoryEntry, Kind, Times};

/// Scratch of a machine that can be saved: empty files without a name, which collect its standard
/// streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SavedScratch(Vec<Option<NamelessFile>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamelessFile {
    /// Number of the scratch directory that it was made in.
    parent: u32,
    mode: u32,
    times: Times,
}

/// Files without a name: as many as descriptors.
const MAX_NAMELESS: usize = 1024;

impl Tree {
    /// Scratch for a snapshot; none if the tree has branches, or anything but empty files without a
    /// name in its scratch.
    pub(crate) fn to_saved(&self) -> Option<SavedScratch> {
        let Self { sealed: _, branches, scratch, room: _, used, further_names: _, places: _ } =
            self;
        let tops = scratch.iter().take_while(|node| node.as_ref().is_some_and(is_top)).count();
        if branches.iter().any(Option::is_some) || *used > 0 {
            return None;
        }
        let save = |node: &Option<Node>| match node {
            None => Some(None),
            Some(node) => nameless(node, tops).map(Some),
        };
        let all = scratch[tops..].iter().map(save).collect::<Option<Vec<_>>>()?;
        (all.len() <= MAX_NAMELESS).then_some(SavedScratch(all))
    }

    /// A tree just built, with a snapshot's scratch; none if the snapshot is impossible.
    pub(crate) fn with_saved(mut self, saved: &SavedScratch) -> Option<Self> {
        let tops = self.scratch.len();
        if saved.0.len() > MAX_NAMELESS {
            return None;
        }
        for file in &saved.0 {
            let node = match *file {
                None => None,
                Some(NamelessFile { parent, .. }) if parent as usize >= tops => return None,
                Some(NamelessFile { parent, mode, times }) => {
                    let (contents, parent) =
                        (Contents::Bytes(Vec::new()), NodeId(SCRATCH + parent));
                    Some(Node { contents, parent, mode: mode & 0o7777, times, links: 0 })
                }
            };
            self.scratch.push(node);
        }
        Some(self)
    }

    /// The kind of a node; none where it does not exist.
    pub(crate) fn existing_kind(&self, id: NodeId) -> Option<Kind> {
        self.node(id).map(|node| node.contents.kind())
    }

    /// A hash of the read-only part: names, kinds, sizes, times, and the numbers of nodes.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hasher = Hasher::new();
        for Node { contents, parent, mode, times, links } in &self.sealed.nodes {
            number(&mut hasher, u64::from(parent.0));
            number(&mut hasher, u64::from(*mode) << 32 | u64::from(*links));
            number(&mut hasher, times.modified.seconds.cast_unsigned());
            number(&mut hasher, u64::from(times.modified.nanoseconds));
            digest_of(&mut hasher, contents);
        }
        *hasher.finalize().as_bytes()
    }
}

/// Whether a node is a scratch directory as it was built, still empty.
fn is_top(node: &Node) -> bool {
    matches!(&node.contents, Contents::Directory(entries) if entries.is_empty())
        && node.parent.0 < SCRATCH
        && (node.mode, node.times, node.links) == (0o700, Times::default(), 1)
}

fn nameless(node: &Node, tops: usize) -> Option<NamelessFile> {
    let Node { contents, parent, mode, times, links } = node;
    let empty = matches!(contents, Contents::Bytes(bytes) if bytes.is_empty());
    let parent = parent.0.checked_sub(SCRATCH).filter(|parent| (*parent as usize) < tops)?;
    (empty && *links == 0).then_some(NamelessFile { parent, mode: *mode, times: *times })
}

fn digest_of(hasher: &mut Hasher, contents: &Contents) {
    match contents {
        Contents::Directory(entries) => {
            number(hasher, 0);
            number(hasher, entries.len() as u64);
            for (name, DirectoryEntry { node, .. }) in entries {
                text(hasher, name);
                number(hasher, u64::from(node.0));
            }
        }
        Contents::Sealed { layer, path, size } => {
            number(hasher, 1);
            number(hasher, *layer as u64);
            text(hasher, path.as_os_str().as_bytes());
            number(hasher, *size);
        }
        Contents::Bytes(bytes) => {
            number(hasher, 2);
            text(hasher, bytes);
        }
        Contents::Link(target) => {
            number(hasher, 3);
            text(hasher, target);
        }
        Contents::Device(device) => {
            number(hasher, 4);
            text(hasher, format!("{device:?}").as_bytes());
        }
        Contents::Descriptors => number(hasher, 6),
        Contents::Generated(what) => {
            number(hasher, 5);
            text(hasher, format!("{what:?}").as_bytes());
        }
    }
}

fn number(hasher: &mut Hasher, number: u64) {
    hasher.update(&number.to_le_bytes());
}

/// Each text is preceded by its length, so that different lists of texts hash differently.
fn text(hasher: &mut Hasher, text: &[u8]) {
    number(hasher, text.len() as u64);
    hasher.update(text);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::vfs::{Moment, TreeBuilder};

    fn tree(directory: &std::path::Path) -> Tree {
        TreeBuilder::default().layer("/", directory).unwrap().scratch("/tmp").build(1 << 20, 64)
    }

    #[test]
    fn the_same_layer_has_the_same_hash_and_another_one_has_not() {
        let directories = [0; 2].map(|_| tempfile::tempdir().unwrap());
        let names: Vec<String> = (0..300).map(|number| format!("name-{number}")).collect();
        let time = std::time::SystemTime::UNIX_EPOCH;
        let write = |directory: &tempfile::TempDir, name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        };
        // Made in two orders, as directories that list them differently.
        names.iter().for_each(|name| write(&directories[0], name, "a"));
        names.iter().rev().for_each(|name| write(&directories[1], name, "a"));
        let [one, other] = directories.each_ref().map(|it| tree(it.path()));
        assert_eq!(one.digest(), other.digest());
        write(&directories[1], "name-7", "longer");
        assert_ne!(one.digest(), tree(directories[1].path()).digest());
    }

    #[test]
    fn only_empty_files_without_a_name_are_saved_of_scratch() {
        let directory = tempfile::tempdir().unwrap();
        let built = tree(directory.path());
        assert_eq!(built.to_saved(), Some(SavedScratch(Vec::new())));
        let mut tree = built.clone();
        let scratch = tree.existing(Tree::ROOT, b"/tmp", true).unwrap();
        let file = || Contents::Bytes(Vec::new());
        let now = || Moment { seconds: 5, nanoseconds: 7 };
        let [one, _] = ["one", "two"].map(|name| {
            tree.create(scratch, name.as_bytes(), file(), 0o600, now()).unwrap();
            assert_eq!(tree.to_saved(), None, "it has a name");
            let found = tree.find(Tree::ROOT, format!("/tmp/{name}").as_bytes(), true).unwrap();
            tree.remove(&found, false).unwrap()
        });
        let saved = tree.to_saved().unwrap();
        let again = built.clone().with_saved(&saved).unwrap();
        assert_eq!(format!("{:?}", again.scratch()), format!("{:?}", tree.scratch()));
        tree.write(one, 0, b"text", now()).unwrap();
        assert_eq!(tree.to_saved(), None, "it is not empty");
        tree.release(one);
        let saved = tree.to_saved().unwrap();
        assert!(matches!(saved.0[..], [None, Some(_)]));
        // In a directory that is none.
        let odd = SavedScratch(vec![Some(NamelessFile {
            parent: 1,
            mode: 0o600,
            times: Times::default(),
        })]);
        assert!(built.clone().with_saved(&odd).is_none());
        assert!(built.with_saved(&SavedScratch(vec![None; MAX_NAMELESS + 1])).is_none());
    }
}
