//! `flock`: locks of open files, shared by descriptors that were duplicated from one another.

use rustix::io::Errno;

use super::{Files, Object};

/// The lock that an open file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lock {
    #[default]
    None,
    Shared,
    Exclusive,
}

impl Lock {
    fn excludes(self, other: Self) -> bool {
        let both = [self, other];
        !both.contains(&Self::None) && both.contains(&Self::Exclusive)
    }
}

impl Files {
    /// Takes a lock, in place of the one that is held. Returns whether it could; if not, none is
    /// held, as on Linux.
    pub(crate) fn lock(&mut self, fd: u64, wanted: Lock) -> Result<bool, Errno> {
        let at = self.descriptor(fd)?.open;
        let open = self.get_mut(fd)?;
        if open.lock == wanted {
            return Ok(true);
        }
        open.lock = Lock::None;
        let object = &self.get(fd)?.object;
        let others = self.open.iter().enumerate().filter(|(other, _)| *other != at);
        let mut others = others.filter_map(|(_, open)| open.as_ref());
        if others.any(|it| it.lock.excludes(wanted) && same(&it.object, object)) {
            return Ok(false);
        }
        self.get_mut(fd)?.lock = wanted;
        Ok(true)
    }
}

/// Whether both objects are the same file.
fn same(one: &Object, other: &Object) -> bool {
    use Object::{Node, PipeReader, PipeWriter};
    match (one, other) {
        (Node(one, _), Node(other, _)) => one == other,
        (PipeReader(one) | PipeWriter(one), PipeReader(other) | PipeWriter(other)) => one == other,
        _ => false,
    }
}
