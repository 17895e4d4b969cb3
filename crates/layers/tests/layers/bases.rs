//! Bases from this machine's Pythons.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Instant;

use layers::python::{self, HostPython, PythonRequest};
use layers::{Progress, Silent, Store, base};

use crate::machine::{BASE, Heard, STORE, again, child_state, in_chroot, is_root, skip, told};

const USE: &str = r"
import sys, json, ssl, sqlite3, zlib, bz2, lzma, ctypes, decimal, zoneinfo, hashlib, socket, asyncio, locale, pwd
import datetime, os
assert sys.prefix == sys.base_prefix == '/usr', sys.prefix
print(sys.path)
print(sqlite3.connect(':memory:').execute('select 6*7').fetchone()[0])
print(decimal.Decimal(1) / 3)
print(datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset())
print(len(ssl.create_default_context(cafile='/etc/ssl/certs/ca-certificates.crt').get_ca_certs()) > 50)
print(ctypes.CDLL('libstdc++.so.6') and ctypes.CDLL('libgcc_s.so.1') and 'C++')
print(pwd.getpwuid(1000).pw_name, locale.setlocale(locale.LC_ALL, 'C.UTF-8'), sys.getfilesystemencoding())
print(json.__file__, json.__spec__.cached)
print(json.loads.__code__.co_filename)
print(os.listdir('/opt/python'), os.listdir('/var/task'), os.path.exists('/etc/localtime'))
";

/// What of the C library a program finds: each line is empty, or what is wrong.
const C_LIBRARY: &str = r#"
import ctypes, mimetypes, socket
from ctypes.util import find_library
libc = ctypes.CDLL(None)
libc.iconv_open.restype = ctypes.c_void_p
sets = '''UTF-16LE UCS-4 ISO-8859-1 ISO-8859-2 ISO-8859-15 ISO-8859-16 CP437 CP850 CP1250 CP1252 KOI8-R KOI8-U SHIFT_JIS EUC-JP
ISO-2022-JP GB18030 GBK BIG5 EUC-KR TIS-620 MACINTOSH IBM1047 UTF-7 WINDOWS-1255 ASCII//TRANSLIT'''.split()
print([s for s in sets if libc.iconv_open(s.encode(), b'UTF-8') == ctypes.c_void_p(-1).value])
names = 'c m dl pthread rt gcc_s stdc++ z ssl crypto sqlite3 expat'.split()
found = {n: find_library(n) for n in names}
print([n for n in names if found[n] is None or not ctypes.CDLL(found[n])], found['c'], find_library('nothing'))
print(find_library('c++'), find_library('.*'), find_library(''), find_library('libc.so.6'))
services = dict(http=80, https=443, ssh=22, smtp=25, domain=53, ntp=123, imaps=993, ldap=389, postgresql=5432, ftp=21)
print([n for n, port in services.items() if socket.getservbyname(n) != port], socket.getservbyport(443))
print([n for n, to in dict(tcp=6, udp=17, icmp=1, ip=0, gre=47, sctp=132).items() if socket.getprotobyname(n) != to])
print([socket.gethostbyname(n) for n in ('localhost', 'sandbox', 'microvm')], socket.gethostbyaddr('127.0.1.1')[:2])
print(mimetypes.guess_type('a.docx'), mimetypes.guess_type('a.mkv'))
"#;

/// Prints the libraries that the policies of the newest auditwheel list, or nothing where there is no network.
const POLICIES: &str = r"
import glob, json, subprocess, sys, tempfile, zipfile
with tempfile.TemporaryDirectory() as into:
    pip = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--only-binary', ':all:', '--dest', into, 'auditwheel']
    if subprocess.run(pip, capture_output=True).returncode == 0:
        wheel = zipfile.ZipFile(glob.glob(into + '/auditwheel-*.whl')[0])
        text, = [n for n in wheel.namelist() if n.endswith('manylinux-policy.json')]
        print(*sorted({name for policy in json.loads(wheel.read(text)) for name in policy['lib_whitelist']}))
";

#[test]
fn every_python_of_this_machine_becomes_a_base_that_works_as_a_root_directory() {
    if !is_root() {
        return skip("every_python_of_this_machine_becomes_a_base", "root", "chroot needs root");
    }
    for host in python::discover() {
        let started = Instant::now();
        let base = base::build(&STORE, &host, &Silent).unwrap();
        let root = STORE.layer_path(&base.layer);
        let minor = base.minor();
        eprintln!(
            "Python {}: {:.1} MB, {:.1} s, missing {:?}",
            base.version,
            base.bytes as f64 / 1e6,
            started.elapsed().as_secs_f64(),
            base.missing
        );
        assert!(base.bytes < 150_000_000);
        let output = told(&in_chroot(&root, USE));
        let lines: Vec<&str> = output.lines().collect();
        let library = format!("/usr/lib/python{minor}");
        let zipped = format!("/usr/lib/python{}.zip", minor.replace('.', ""));
        assert_eq!(lines[0], format!("['{zipped}', '{library}', '{library}/lib-dynload']"));
        assert_eq!(lines[1..5], ["42", "0.3333333333333333333333333333", "2:00:00", "True"]);
        assert_eq!(lines[5..7], ["C++", "sandbox C.UTF-8 utf-8"]);
        let tag = format!("cpython-{}", minor.replace('.', ""));
        assert_eq!(
            lines[7],
            format!("{library}/json/__init__.py {library}/json/__pycache__/__init__.{tag}.pyc")
        );
        assert_eq!(lines[8], format!("{library}/json/__init__.py"));
        assert_eq!(lines[9], "[] [] True");
        let output = told(&in_chroot(&root, C_LIBRARY));
        let expected = [
            "[]",
            "[] libc.so.6 None",
            "None None None None",
            "[] https",
            "[]",
            "['127.0.0.1', '127.0.1.1', '127.0.1.2'] ('sandbox', [])",
            "('application/vnd.openxmlformats-officedocument.wordprocessingml.document', None) ('video/x-matroska', None)",
        ];
        assert_eq!(output.lines().collect::<Vec<_>>(), expected, "Python {}", base.version);
    }
}

#[test]
fn a_bases_programs_find_their_libraries_without_a_search() {
    let test = "a_bases_programs_find_their_libraries_without_a_search";
    if !is_root() {
        return skip(test, "root", "chroot needs root");
    }
    for host in python::discover() {
        let base = base::build(&STORE, &host, &Silent).unwrap();
        let mut python = Command::new("chroot");
        python.arg(STORE.layer_path(&base.layer)).args(["/usr/bin/python3", "-I", "-S", "-c"]);
        python.arg("import ssl, sqlite3, lzma, ctypes, decimal; ctypes.CDLL('libstdc++.so.6')");
        // ld.so(8): the loader tells on standard error where it looks.
        python.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LD_DEBUG", "libs");
        let output = python.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("search cache=/etc/ld.so.cache"), "{told}");
        let searches: Vec<&str> =
            told.lines().filter(|line| line.contains("search path=")).collect();
        assert_eq!(searches, Vec::<&str>::new(), "Python {}", base.version);
    }
}

#[test]
fn a_base_has_what_the_newest_policies_let_wheels_expect() {
    let test = "a_base_has_what_the_newest_policies_let_wheels_expect";
    let asked =
        |python: HostPython| Command::new(python.executable).args(["-c", POLICIES]).output().ok();
    let mut answers = python::discover().filter_map(asked);
    let Some(listed) = answers.find(|output| !output.stdout.is_empty()) else {
        return skip(test, "network", "auditwheel cannot be had from the package index");
    };
    let listed = told(&listed);
    let root = STORE.layer_path(&BASE.layer);
    let lacking = base::lacking();
    let expected: Vec<&str> =
        listed.split_whitespace().filter(|name| !lacking.contains(name)).collect();
    assert!(expected.contains(&"libc.so.6") && expected.contains(&"libmvec.so.1"), "{listed}");
    // What this machine does not have, the doctor tells.
    let script = format!("import ctypes\nfor name in {expected:?}: ctypes.CDLL(name)");
    if is_root() {
        assert_eq!(told(&in_chroot(&root, &script)), "");
    }
}

#[test]
fn all_of_a_base_is_compiled_with_unchecked_hashes_and_plain_modes() {
    let root = STORE.layer_path(&BASE.layer);
    let (mut sources, mut compiled) = (0, 0);
    let mut open = vec![root.clone()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_symlink() {
                continue;
            }
            assert_eq!(metadata.uid(), fs::metadata(&root).unwrap().uid());
            if metadata.is_dir() {
                assert_eq!(metadata.mode() & 0o7777, 0o755, "{}", path.display());
                open.push(path);
                continue;
            }
            assert!(matches!(metadata.mode() & 0o7777, 0o755 | 0o644), "{}", path.display());
            match path.extension().and_then(|e| e.to_str()) {
                Some("py") => sources += 1,
                Some("pyc") => {
                    compiled += 1;
                    // PEP 552: bit 0 a hash, bit 1 to be checked.
                    assert_eq!(fs::read(&path).unwrap()[4..8], [1, 0, 0, 0], "{}", path.display());
                }
                _ => {}
            }
        }
    }
    assert!(sources > 400 && compiled >= sources - 5, "{compiled} of {sources}");
}

#[test]
fn a_base_holds_neither_tests_nor_windows_nor_installed_packages_nor_a_shell() {
    let root = STORE.layer_path(&BASE.layer);
    let library = root.join(format!("usr/lib/python{}", BASE.minor()));
    for absent in [
        "site-packages",
        "dist-packages",
        "test",
        "tkinter",
        "idlelib",
        "ensurepip",
        "lib2to3",
        "unittest/test",
    ] {
        assert!(!library.join(absent).exists(), "{absent}");
    }
    let tools: Vec<_> =
        fs::read_dir(root.join("usr/bin")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(tools.iter().all(|name| name.to_string_lossy().starts_with("python")), "{tools:?}");
}

#[test]
fn building_again_without_a_change_makes_nothing() {
    let host = HostPython::probe(&BASE.source).unwrap();
    let heard = Heard::default();
    let started = Instant::now();
    assert_eq!(base::build(&STORE, &host, &heard).unwrap(), *BASE);
    eprintln!("a rebuild without a change: {} ms", started.elapsed().as_millis());
    assert_eq!(heard.made(), 0);
    assert!(base::list(&STORE).unwrap().contains(&BASE));
}

#[test]
fn two_that_want_the_same_base_at_once_make_it_once() {
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(state.path()).unwrap();
    let host = HostPython::probe(&BASE.source).unwrap();
    let heard = Heard::default();
    let build = || base::build(&store, &host, &heard as &dyn Progress).unwrap();
    let (first, second) = std::thread::scope(|scope| {
        let (first, second) = (scope.spawn(build), scope.spawn(build));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(first, second);
    assert_eq!(heard.made(), 1);
    let mut names: Vec<_> = fs::read_dir(state.path().join("layers/base"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [first.id.clone(), format!("{}.json", first.id)].map(std::ffi::OsString::from)
    );

    // A description that was lost is written anew; the layer itself stays.
    fs::remove_file(state.path().join(format!("layers/base/{}.json", first.id))).unwrap();
    assert!(base::list(&store).unwrap().is_empty());
    let again = build();
    assert_eq!((again.bytes, again.id.as_str(), heard.made()), (first.bytes, first.id.as_str(), 1));
    assert_eq!(base::list(&store).unwrap(), [again]);
}

#[test]
fn a_base_does_not_load_the_hosts_libraries() {
    let script = "import ssl, sqlite3, ctypes; print(open('/proc/self/maps').read())";
    let maps = told(&BASE.command(&STORE).command().args(["-c", script]).output().unwrap());
    let root = STORE.layer_path(&BASE.layer);
    let files: Vec<&str> =
        maps.lines().filter_map(|line| line.split_once(" /").map(|(_, path)| path)).collect();
    assert!(files.len() > 10);
    for file in files {
        let outside = !Path::new("/").join(file).starts_with(&root);
        assert!(!outside || !file.contains(".so"), "/{file}");
    }
}

#[test]
fn an_ordinary_user_can_make_a_base() {
    if let Some(state) = child_state() {
        let store = Store::open(&state).unwrap();
        let base = base::default_or_build(&store, &PythonRequest::any(), &Silent).unwrap();
        let version =
            base.command(&store).command().args(["-c", "import sys; print(sys.version)"]).output();
        return assert!(told(&version.unwrap()).starts_with(&base.version));
    }
    if !is_root() {
        return skip(
            "an_ordinary_user_can_make_a_base",
            "root",
            "only root can become another user",
        );
    }
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let wrapper = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "env",
        "-u",
        "PYENV_ROOT",
        "HOME=/",
    ];
    let path = state.path().join("state");
    let readable = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "test", "-x"])
        .arg(std::env::current_exe().unwrap())
        .status();
    if !readable.is_ok_and(|status| status.success()) {
        return skip(
            "an_ordinary_user_can_make_a_base",
            "nobody",
            "nobody cannot reach the target directory",
        );
    }
    let output = again(&wrapper, "bases::an_ordinary_user_can_make_a_base", &path);
    assert!(told(&output).contains("1 passed"));
    assert_eq!(fs::metadata(path.join("layers/base")).unwrap().uid(), 65534);
}

#[test]
fn a_maker_that_is_killed_leaves_nothing_that_the_next_start_does_not_remove() {
    if let Some(state) = child_state() {
        let store = Store::open(&state).unwrap();
        let host = HostPython::probe(&BASE.source).unwrap();
        drop(base::build(&store, &host, &KilledWhileCompiling));
        unreachable!("killed before");
    }
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    LazyLock::force(&BASE);
    let test = "bases::a_maker_that_is_killed_leaves_nothing_that_the_next_start_does_not_remove";
    let output = again(&["env"], test, state.path());
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
    let bases = state.path().join("layers/base");
    let left = || fs::read_dir(&bases).unwrap().count();
    assert_eq!(left(), 2, "the unfinished directory and its lock");
    let store = Store::open(state.path()).unwrap();
    assert_eq!(left(), 0);
    assert_eq!(base::list(&store).unwrap(), []);
}

/// Kills its own process when the files are copied and not yet compiled.
#[derive(Debug)]
struct KilledWhileCompiling;

impl Progress for KilledWhileCompiling {
    fn step(&self, text: &str) {
        if text.starts_with("compiling") {
            let own = std::process::id().to_string();
            Command::new("kill").args(["-KILL", &own]).status().unwrap();
        }
    }
    fn line(&self, _: &str) {}
    fn bytes(&self, _: u64, _: Option<u64>) {}
}
