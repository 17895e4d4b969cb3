//! What a base takes from the host's system: libraries that wheels may count on, authorities, time zones, locales, converters.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::plan::{Item, Plan};
use crate::FileError;
use crate::elf::{Libraries, Object};

/// Libraries that a manylinux wheel may expect to find: all that any policy of auditwheel 6.8.2 lists (`lib_whitelist` of
/// `manylinux-policy.json`, manylinux_2_5 to 2_41). A test compares them with the newest auditwheel.
pub(super) const POLICY: [&str; 24] = [
    "libGL.so.1",
    "libICE.so.6",
    "libSM.so.6",
    "libX11.so.6",
    "libXext.so.6",
    "libXrender.so.1",
    "libanl.so.1",
    "libatomic.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libexpat.so.1",
    "libgcc_s.so.1",
    "libglib-2.0.so.0",
    "libgobject-2.0.so.0",
    "libgthread-2.0.so.0",
    "libm.so.6",
    "libmvec.so.1",
    "libnsl.so.1",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
    "libz.so.1",
];

/// What the C library loads by itself (name services), the rest of what it is made of, and OpenMP's runtime, which wheels that
/// were built at home do not bring.
const BESIDE: [&str; 9] = [
    "libBrokenLocale.so.1",
    "libc_malloc_debug.so.0",
    "libcrypt.so.1",
    "libgomp.so.1",
    "libnss_compat.so.2",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libnss_hesiod.so.2",
    "libthread_db.so.1",
];

/// All libraries that a base has whatever its Python needs, as far as the host has them.
pub(super) fn expected() -> impl Iterator<Item = &'static str> {
    POLICY.into_iter().chain(BESIDE)
}

/// Which libraries this machine does not have, though a wheel may expect them.
#[must_use]
pub fn lacking() -> Vec<&'static str> {
    let Ok(own) = Object::read(Path::new("/proc/self/exe")) else { return Vec::new() };
    let host = Libraries::of_host(&own);
    POLICY.into_iter().filter(|name| host.find(name).is_none()).collect()
}

const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// Where distributions keep their certificate authorities in one file.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Adds the host's authorities, at the usual place and where this Python's OpenSSL looks. Says whether there are any.
pub(super) fn put_authorities(plan: &mut Plan, openssl: Option<&Path>) -> bool {
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let bundle = named.into_iter().chain(BUNDLES.map(PathBuf::from)).find(|path| path.is_file());
    let Some(bundle) = bundle else { return false };
    plan.put(BUNDLE, Item::Copy(bundle));
    let usual = Path::new("/").join(BUNDLE);
    for place in
        ["/etc/ssl/cert.pem", "/etc/pki/tls/cert.pem"].map(Path::new).into_iter().chain(openssl)
    {
        // An OpenSSL built into a home directory: functions get SSL_CERT_FILE for that.
        let ours = place.starts_with("/etc") || place.starts_with("/usr");
        if let (true, Ok(relative)) = (ours && place != usual, place.strip_prefix("/")) {
            plan.put(relative, Item::Link(usual.clone()));
        }
    }
    true
}

/// Adds the time zones, without the two directories that repeat all of them. Says whether there are any.
pub(super) fn put_zones(plan: &mut Plan) -> Result<bool, FileError> {
    let source = Path::new("/usr/share/zoneinfo");
    if !source.join("UTC").is_file() {
        return Ok(false);
    }
    let repeats = ["posix", "right", "localtime", "posixrules"];
    plan.put_tree(source, Path::new("usr/share/zoneinfo"), &|path| {
        !repeats.iter().any(|repeat| path.starts_with(repeat))
    })?;
    plan.put("etc/localtime", Item::Link(PathBuf::from("/usr/share/zoneinfo/UTC")));
    Ok(true)
}

/// Largest archive of locales that is copied, in bytes: Debian's has those that were asked for (3 MB each), others' all of them
/// (220 MB).
const ARCHIVE_BYTES: u64 = 16 << 20;

/// Adds C.UTF-8, which is a directory wherever the C library does not have it built in, and what other locales the host has made
/// in an archive that is not large.
pub(super) fn put_locale(plan: &mut Plan) -> Result<(), FileError> {
    let locales = Path::new("usr/lib/locale");
    for name in ["C.utf8", "C.UTF-8"] {
        let source = Path::new("/").join(locales).join(name);
        if source.is_dir() {
            plan.put_tree(&source, &locales.join(name), &|_| true)?;
        }
    }
    let archive = Path::new("/").join(locales).join("locale-archive");
    if fs::metadata(&archive).is_ok_and(|data| data.is_file() && data.len() <= ARCHIVE_BYTES) {
        plan.put(locales.join("locale-archive"), Item::Copy(archive));
    }
    Ok(())
}

/// Adds the C library's converters between character sets, which it looks for beside its libraries: without them `iconv` knows
/// ASCII and Unicode alone. Says whether there are any.
pub(super) fn put_converters(plan: &mut Plan, libraries: &Path) -> Result<bool, FileError> {
    let converters = libraries.join("gconv");
    let source = Path::new("/").join(&converters);
    if !source.is_dir() {
        return Ok(false);
    }
    plan.put_tree(&source, &converters, &|_| true)?;
    Ok(true)
}
