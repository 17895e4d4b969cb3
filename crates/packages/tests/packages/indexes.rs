//! Private and further indexes: what a function may say of them, and that their passwords go nowhere else.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use layers::{Progress, Silent};
use packages::installer::Installer;
use packages::lock::{self, Lock, LockError};
use packages::requirements;
use packages::sources::Sources;
use toml::Table;

use crate::index::{Index, allowed, wheel};
use crate::machine::{BASE, Heard, STORE, child_state, told};
use crate::uv::uv_or_skip;

/// `me:hunter2`
const TOKEN: &str = "bWU6aHVudGVyMg==";
const SECRET: &str = "hunter2";

/// What a bundle says whose packages come from this index, and `more`.
pub(crate) fn sources(index: &Index, more: &str) -> Sources {
    sources_at(&index.url(), more)
}

pub(crate) fn sources_at(url: &str, more: &str) -> Sources {
    read(&format!("[[tool.uv.index]]\nname = \"corp\"\nurl = \"{url}\"\n{more}"))
}

fn read(project: &str) -> Sources {
    let project: Table = project.parse().unwrap();
    Sources::read(project["tool"]["uv"].as_table().unwrap(), "pyproject.toml").unwrap()
}

/// The constraints of a bundle's requirements file, as its settings have them.
pub(crate) fn limited(bundle: &Path) -> Sources {
    let mut sources = Sources::default();
    sources.constrain(requirements::read(bundle, "requirements.txt").unwrap().constraints);
    sources
}

fn only(name: &str) -> String {
    format!("explicit = true\n[tool.uv.sources]\n{name} = {{ index = \"corp\" }}\n")
}

/// Locks and installs; returns names with versions.
fn deploy(
    uv: &Installer,
    wanted: &str,
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Vec<String>, LockError> {
    let lock = lock::resolve(&STORE, uv, &BASE, &[wanted.to_owned()], sources, progress)?.unwrap();
    assert!(!lock.text.contains(SECRET) && !lock.text.contains("127.0.0.1"), "{}", lock.text);
    let set = packages::install(&STORE, uv, &BASE, &lock, sources, progress).unwrap();
    Ok(set.wheels.iter().map(|wheel| format!("{} {}", wheel.name, wheel.version)).collect())
}

/// Runs a test of this file again with other variables, as a worker that an operator started with them.
fn with(test: &str, state: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("indexes::{test}"), "--nocapture"]);
    command.env("LAYERS_CHILD", state).envs(variables.iter().copied()).output().unwrap()
}

fn holds_secret(directory: &Path) -> Option<std::path::PathBuf> {
    fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()).find(|path| {
        path.is_file()
            && fs::read(path).unwrap().windows(SECRET.len()).any(|w| w == SECRET.as_bytes())
    })
}

#[test]
fn a_private_index_gets_its_password_from_the_environment_and_nobody_else_does() {
    let test = "a_private_index_gets_its_password_from_the_environment_and_nobody_else_does";
    let Some(uv) = uv_or_skip(test) else { return };
    if let Some(state) = child_state() {
        let said = fs::read_to_string(state.join("said")).unwrap();
        let (url, name) = said.split_once('\n').unwrap();
        let of = match url {
            "" => Sources::default(),
            url => sources_at(url, &only(name)),
        };
        let heard = Heard::default();
        let named = [("corp", url)];
        let uv = &allowed(uv, if url.is_empty() { &[] } else { &named });
        let outcome = deploy(uv, &format!("{name}==1.0"), &of, &heard);
        let lines = heard.lines.lock().unwrap().join("\n");
        assert!(!lines.contains(SECRET), "{lines}");
        eprintln!(
            "outcome: {}",
            match outcome {
                Ok(names) => format!("installed {}", names.join(", ")),
                Err(error) => error.to_string(),
            }
        );
        return;
    }
    let index = Index::closed(TOKEN);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let state = tempfile::tempdir().unwrap();
    let said = |url: &str, name: &str| {
        fs::write(state.path().join("said"), format!("{url}\n{name}")).unwrap();
    };
    let outcome = |output: &Output| {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !words.contains(SECRET), "{words}");
        words.split_once("outcome: ").unwrap().1.to_owned()
    };
    let names = ["first", "second"].map(|which| format!("{which}{now:x}"));
    for name in &names {
        let (file, bytes) = wheel(name, "1.0", &[("m.py", "")]);
        index.add(&file, bytes);
    }
    // The function names the index, as its operator does; the worker's environment has the password, as uv's own convention is.
    said(&index.url(), &names[0]);
    let without = outcome(&with(test, state.path(), &[]));
    assert!(!without.starts_with("installed"), "{without}");
    let user = ("UV_INDEX_CORP_USERNAME", "me");
    let wrong = outcome(&with(test, state.path(), &[user, ("UV_INDEX_CORP_PASSWORD", "hunter2x")]));
    assert!(!wrong.starts_with("installed"), "{wrong}");
    let right = outcome(&with(test, state.path(), &[user, ("UV_INDEX_CORP_PASSWORD", SECRET)]));
    assert!(right.starts_with(&format!("installed {} 1.0", names[0])), "{right}");
    // Installed: neither index nor password is needed any more.
    assert!(outcome(&with(test, state.path(), &[])).starts_with("installed"));
    // An index of the worker's own, with the password in its address.
    said("", &names[1]);
    let address = format!("http://me:{SECRET}@{}/simple", index.authority());
    let own = outcome(&with(test, state.path(), &[("UV_INDEX", &address)]));
    assert!(own.starts_with(&format!("installed {} 1.0", names[1])), "{own}");
    assert_eq!(holds_secret(&STORE.layers().join("wheels")), None);
    assert_eq!(holds_secret(&STORE.layers().join("packages")), None);
}

#[test]
fn an_index_that_the_operator_did_not_name_is_never_asked() {
    let Some(uv) = uv_or_skip("an_index_that_the_operator_did_not_name_is_never_asked") else {
        return;
    };
    let index = Index::open();
    let (file, bytes) = wheel("inside", "1.0", &[("m.py", "")]);
    index.add(&file, bytes);
    let by_hash = format!("inside==1.0 --hash=sha256:{}", "0".repeat(64));
    for wanted in ["inside", &by_hash] {
        let refused = deploy(uv, wanted, &sources(&index, ""), &Silent).unwrap_err();
        assert!(matches!(refused, LockError::NotAllowed(_)), "{refused}");
    }
    let file = format!("inside @ https://{}/files/{file}", index.authority());
    let refused = deploy(uv, &file, &Sources::default(), &Silent).unwrap_err();
    assert!(matches!(refused, LockError::NotAllowed(_)), "{refused}");
    // What was locked while it was allowed is not fetched any more either.
    let lock = Lock {
        id: "of-before".to_owned(),
        text: format!("{by_hash}\n"),
        distributions: Vec::new(),
        direct: Vec::new(),
    };
    let refused = packages::install(&STORE, uv, &BASE, &lock, &sources(&index, ""), &Silent);
    assert!(matches!(refused, Err(packages::InstallError::NotAllowed(_))), "{refused:?}");
    assert_eq!(index.asked(""), 0);
}

#[test]
fn a_password_goes_to_no_index_but_its_own() {
    let test = "a_password_goes_to_no_index_but_its_own";
    let Some(uv) = uv_or_skip(test) else { return };
    if let Some(state) = child_state() {
        let said = fs::read_to_string(state.join("said")).unwrap();
        let [own, other, file] = said.split('\n').collect::<Vec<_>>()[..] else { panic!("{said}") };
        // By its name, which the operator has given to another.
        let uv_of_both = allowed(uv, &[("corp", own), ("", other)]);
        let of = sources_at(other, &only("borrowed"));
        let refused = deploy(&uv_of_both, "borrowed", &of, &Silent).unwrap_err();
        assert!(matches!(refused, LockError::NotAllowed(_)), "{refused}");
        // By a name that the operator has given to none.
        let uv_of_other = allowed(uv, &[("", other)]);
        drop(deploy(&uv_of_other, "borrowed", &of, &Silent).unwrap_err());
        // A source, of which any address may be said.
        for url in [file, &own.replace("simple", "files/x")] {
            told(&download(url, own, &state.join("fetched")).output().unwrap());
        }
        return;
    }
    let (own, other) = (Index::closed(TOKEN), Index::closed(TOKEN));
    let state = tempfile::tempdir().unwrap();
    let file = format!("http://{}/files/x", other.authority());
    fs::write(state.path().join("said"), format!("{}\n{}\n{file}", own.url(), other.url()))
        .unwrap();
    let variables = [("UV_INDEX_CORP_USERNAME", "me"), ("UV_INDEX_CORP_PASSWORD", SECRET)];
    let output = with(test, state.path(), &variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(other.asked("borrowed") > 0 && other.asked("/files/x") > 0);
    assert_eq!(other.shown(), [""; 0]);
    assert_eq!(own.shown(), [format!("Basic {TOKEN}")]);
}

/// Fetches a source, where the operator has named one index.
fn download(url: &str, index: &str, to: &Path) -> Command {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sdist/download.py");
    let named = format!("[[\"corp\", \"{index}\"]]");
    let mut python = BASE.command(&STORE).command();
    python.args([program, url, "sha256:00"]).arg(to).args(["1000", &named]);
    python
}

#[test]
fn netrc_knows_hosts_and_its_passwords_go_to_named_indexes_only() {
    let (own, other) = (Index::closed(TOKEN), Index::closed(TOKEN));
    let state = tempfile::tempdir().unwrap();
    let fetch = |index: &Index, entries: &str| {
        let netrc = state.path().join("netrc");
        fs::write(&netrc, entries).unwrap();
        let url = format!("http://{}/files/x", index.authority());
        let mut python = download(&url, &own.url(), &state.path().join("fetched"));
        told(&python.env("NETRC", netrc).output().unwrap());
    };
    let of_host = format!("machine 127.0.0.1 login me password {SECRET}\n");
    fetch(&other, &of_host);
    fetch(&own, &format!("default login me password {SECRET}\n"));
    assert_eq!((other.shown(), own.shown()), (vec![], vec![]));
    fetch(&own, &of_host);
    assert_eq!((other.shown(), own.shown()), (vec![], vec![format!("Basic {TOKEN}")]));
    assert_eq!((other.asked("/files/x"), own.asked("/files/x")), (1, 2));
}

#[test]
fn a_package_comes_from_the_index_that_it_is_pinned_to() {
    let Some(uv) = uv_or_skip("a_package_comes_from_the_index_that_it_is_pinned_to") else {
        return;
    };
    let index = Index::open();
    let uv = &index.allowed(uv, "");
    // Of a name that the public index has, too, and not in the store yet.
    let version = format!("99.{}", std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos());
    let (file, bytes) = wheel("six", &version, &[("six.py", "OURS = True\n")]);
    index.add(&file, bytes);
    let pinned = deploy(uv, "six", &sources(&index, &only("six")), &Silent).unwrap();
    assert_eq!(pinned, [format!("six {version}")]);
    let asked = index.asked("");
    let other = deploy(uv, "idna==3.10", &sources(&index, &only("six")), &Silent).unwrap();
    assert_eq!(other, ["idna 3.10"]);
    assert_eq!(index.asked(""), asked, "an explicit index is not asked for anything else");
}

#[test]
fn constraints_and_overrides_limit_versions_and_ask_for_nothing() {
    let Some(uv) = uv_or_skip("constraints_and_overrides_limit_versions_and_ask_for_nothing")
    else {
        return;
    };
    let of = read("[tool.uv]\nconstraint-dependencies = [\"six<1.17\", \"idna<3\"]\n");
    assert_eq!(deploy(uv, "six", &of, &Silent).unwrap(), ["six 1.16.0"]);
    let of = read("[tool.uv]\noverride-dependencies = [\"six==1.15.0\"]\n");
    let set = deploy(uv, "python-dateutil==2.9.0.post0", &of, &Silent).unwrap();
    assert_eq!(set, ["python-dateutil 2.9.0.post0", "six 1.15.0"]);
    let bundle = tempfile::tempdir().unwrap();
    for (name, text) in [("requirements.txt", "six\n-c limits.txt\n"), ("limits.txt", "six<1.16\n")]
    {
        fs::write(bundle.path().join(name), text).unwrap();
    }
    let of = limited(bundle.path());
    assert_eq!(deploy(uv, "six", &of, &Silent).unwrap(), ["six 1.15.0"]);
}
