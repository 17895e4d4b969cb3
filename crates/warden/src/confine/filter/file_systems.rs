//! `ioctl` without requests that reveal the file system below the layers: its identity on the host
//! (ioctl_fs.h: label, UUID, entry in sysfs), and where on its disk a file lies, which files share
//! that place, and what is cached of it (fiemap.rst). The answer is that of a file system without
//! such a request (ENOTTY, ioctl(2)).

use std::collections::BTreeMap;

use libc::c_long;

use super::program::{Case, Rule, Test};

/// The part of a request's number that names its subsystem (ioctl-number.rst).
const TYPE: u32 = 0xff00;

/// Types of requests that no function needs: those that name the file system, those of Btrfs and
/// XFS.
const TYPES: [u32; 3] = [0x15 << 8, 0x94 << 8, (b'X' as u32) << 8];

/// Exceptions, which concern a file of the caller's own: `FICLONE`, `FICLONERANGE`,
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`.
const NEEDED: [u32; 4] = [0x4004_9409, 0x4020_940d, 0x801c_581f, 0x401c_5820];

/// Refused requests of other types: `FS_IOC_FIEMAP`, `EXT4_IOC_GET_ES_CACHE`, `EXT4_IOC_GETFSUUID`.
const REFUSED: [u32; 3] = [0xc020_660b, 0xc020_662a, 0x8008_662c];

/// Removes these requests from the allowed ones.
pub(super) fn keep_requests(rules: &mut BTreeMap<c_long, Rule>) {
    let types = TYPES.map(|value| (1, Test::NotMasked { mask: TYPE, value }));
    let refused = REFUSED.map(|number| (1, Test::IsNot(number)));
    let other = |case: &Case| case.iter().copied().chain(types).chain(refused).collect();
    let before = match rules.get(&libc::SYS_ioctl) {
        Some(Rule::When(cases)) => cases.clone(),
        _ => vec![Vec::new()],
    };
    let needed = NEEDED.map(|number| vec![(1, Test::Is(number))]);
    let cases = before.iter().map(other).chain(needed).collect();
    rules.insert(libc::SYS_ioctl, Rule::WhenElse(cases, libc::ENOTTY));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_name_a_file_system_are_refused_and_cloning_files_is_not() {
        let mut rules = BTreeMap::new();
        keep_requests(&mut rules);
        let Some(Rule::WhenElse(cases, libc::ENOTTY)) = rules.get(&libc::SYS_ioctl) else {
            panic!("{rules:?}");
        };
        let passes = |number: u32| {
            cases.iter().any(|case| {
                case.iter().all(|(_, test)| match *test {
                    Test::Is(wanted) => number == wanted,
                    Test::IsNot(unwanted) => number != unwanted,
                    Test::NotMasked { mask, value } => number & mask != value,
                    _ => unreachable!("{test:?}"),
                })
            })
        };
        // TCGETS, FIONREAD, FIOCLEX, SIOCGIFCONF, FS_IOC_GETFLAGS, TIOCGPTN, and the exceptions.
        for number in
            [0x5401, 0x541b, 0x5451, 0x8912, 0x8008_6601, 0x8004_5430].iter().chain(&NEEDED)
        {
            assert!(passes(*number), "{number:x}");
        }
        // FS_IOC_GETFSUUID, FS_IOC_GETFSSYSFSPATH, FS_IOC_GETFSLABEL, BTRFS_IOC_FS_INFO,
        // BTRFS_IOC_DEV_INFO, FIDEDUPERANGE, XFS_IOC_FSGEOMETRY, XFS_IOC_GETBMAPX, FITRIM.
        for number in [
            0x8011_1500,
            0x8081_1501,
            0x8100_9431,
            0x8400_941f,
            0xd000_941e,
            0xc018_9436,
            0x8100_587e,
            0xc020_5838,
            0xc018_5879,
        ]
        .iter()
        .chain(&REFUSED)
        {
            assert!(!passes(*number), "{number:x}");
        }
    }
}
