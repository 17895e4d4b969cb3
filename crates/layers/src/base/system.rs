//! What a base takes from the host's system: libraries that wheels may count on, authorities, time zones, the locale.

use std::env;
use std::path::{Path, PathBuf};

use super::plan::{Item, Plan};
use crate::FileError;

/// Libraries that a manylinux wheel may expect to find (PEP 600: the manylinux2014 and 2_28 profiles), what the C
/// library loads by itself (name services; libgcc_s for `pthread_exit`), as far as the host has them.
pub(super) const EXPECTED: [&str; 26] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "libutil.so.1",
    "libnsl.so.1",
    "libresolv.so.2",
    "libanl.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libatomic.so.1",
    "libz.so.1",
    "libexpat.so.1",
    "libglib-2.0.so.0",
    "libgobject-2.0.so.0",
    "libgthread-2.0.so.0",
    "libX11.so.6",
    "libXext.so.6",
    "libXrender.so.1",
    "libICE.so.6",
    "libSM.so.6",
    "libGL.so.1",
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libnss_compat.so.2",
];

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
        // An OpenSSL built into somebody's home directory: functions get SSL_CERT_FILE for that.
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

/// Adds C.UTF-8 where it is a file and not built into the C library (glibc < 2.35 in distributions that patched it in).
pub(super) fn put_locale(plan: &mut Plan) -> Result<(), FileError> {
    for name in ["C.utf8", "C.UTF-8"] {
        let source = Path::new("/usr/lib/locale").join(name);
        if source.is_dir() {
            plan.put_tree(&source, &Path::new("usr/lib/locale").join(name), &|_| true)?;
        }
    }
    Ok(())
}
