//! `/etc/ld.so.cache` of a base: the C library's loader finds each library there and does not search.
//!
//! Without it the loader tries some twenty subdirectories at each start (`glibc-hwcaps/x86-64-v4`,
//! `tls/haswell`, …). It still searches for a library that the cache does not name. The format is
//! that of glibc 2.2 and later (`sysdeps/generic/dl-cache.h`), which `ldconfig` writes. This module
//! writes it because a machine may lack `ldconfig`, and because two versions of `ldconfig` would
//! give the same base different bytes.

use std::path::Path;

/// Without a closing zero.
const MAGIC: &[u8; 20] = b"glibc-ld.so.cache1.1";
const LITTLE_ENDIAN: u8 = 2;
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;

/// Kinds of libraries (`FLAG_ELF_LIBC6`, and with it the machine's own flag), by ELF machine.
const X86_64: (u16, u32) = (62, 0x0303);
const AARCH64: (u16, u32) = (183, 0x0a03);

/// The cache's bytes for libraries in one directory, an absolute path; none for a machine whose
/// flags are not known here.
pub(super) fn cache(machine: u16, directory: &Path, names: &[&str]) -> Option<Vec<u8>> {
    let (_, flags) = [X86_64, AARCH64].into_iter().find(|(known, _)| *known == machine)?;
    let mut names: Vec<&str> = names.iter().copied().filter(|name| name.is_ascii()).collect();
    // The loader's binary search expects descending names.
    names.sort_by_key(|name| (std::cmp::Reverse(order(name)), *name));
    names.dedup_by_key(|name| order(name));

    let mut strings = Vec::new();
    let start = HEADER_BYTES + names.len() * ENTRY_BYTES;
    let mut entries = Vec::new();
    for name in &names {
        let path = directory.join(name);
        let mut put = |text: &[u8]| {
            let at = u32::try_from(start + strings.len()).ok()?;
            strings.extend_from_slice(text);
            strings.push(0);
            Some(at)
        };
        let (key, value) = (put(name.as_bytes())?, put(path.as_os_str().as_encoded_bytes())?);
        for number in [flags, key, value, 0] {
            entries.extend_from_slice(&number.to_le_bytes());
        }
        // No capability of the processor is asked for.
        entries.extend_from_slice(&0_u64.to_le_bytes());
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&u32::try_from(names.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(strings.len()).ok()?.to_le_bytes());
    bytes.push(LITTLE_ENDIAN);
    bytes.resize(HEADER_BYTES, 0);
    Some([bytes, entries, strings].concat())
}

/// A name as the loader compares it (`_dl_cache_libcmp`): numbers by their value, behind all other
/// characters.
fn order(name: &str) -> Vec<(bool, i32)> {
    let mut parts = Vec::new();
    let mut inside_number = false;
    for byte in name.bytes() {
        let digit = byte.is_ascii_digit();
        match parts.last_mut() {
            Some((_, number)) if digit && inside_number => {
                *number = i32::wrapping_add(i32::wrapping_mul(*number, 10), i32::from(byte - b'0'));
            }
            _ if digit => parts.push((true, i32::from(byte - b'0'))),
            _ => parts.push((false, i32::from(byte))),
        }
        inside_number = digit;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_by_their_value_and_stand_behind_letters() {
        let ascending = ["lib", "lib.so", "liba.so.9", "liba.so.10", "libz", "lib9", "lib10"];
        for pair in ascending.windows(2) {
            assert!(order(pair[0]) < order(pair[1]), "{pair:?}");
        }
        assert_eq!(order("liba.so.1"), order("liba.so.01"));
    }

    #[test]
    fn each_entry_leads_to_its_name_and_its_path() {
        let names = ["liba.so.9", "libz.so.1", "liba.so.10"];
        let bytes = cache(X86_64.0, Path::new("/usr/lib"), &names).unwrap();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let text = |at: usize| {
            let length = bytes[at..].iter().position(|byte| *byte == 0).unwrap();
            std::str::from_utf8(&bytes[at..at + length]).unwrap()
        };
        assert!(bytes.starts_with(MAGIC) && number(20) == 3);
        assert_eq!(48 + 3 * 24 + number(24), bytes.len());
        let entries =
            [48, 72, 96].map(|at| (number(at), text(number(at + 4)), text(number(at + 8))));
        let expected = [
            (0x303, "libz.so.1", "/usr/lib/libz.so.1"),
            (0x303, "liba.so.10", "/usr/lib/liba.so.10"),
            (0x303, "liba.so.9", "/usr/lib/liba.so.9"),
        ];
        assert_eq!(entries, expected);
    }

    #[test]
    fn another_machine_has_no_cache() {
        assert_eq!(cache(0, Path::new("/usr/lib"), &["libc.so.6"]), None);
    }
}
