//! A worker that root starts and that does not stay root: only its warden does.
//!
//! ```text
//!   root   wool up --user NAME ─► wool-warden --await: waits for the worker's socket ─────┐
//!             │ exec, as NAME: the same process                                           │ connects
//!             └────────────────► wool up --warden PID: makes the socket ◄─────────────────┘
//! ```
//! Before anything of the state directory is opened: what belongs to the account is not root's to trust.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};
use container::WardenOptions;
use nix::unistd::{Group, User, getgrouplist, setgroups, setresgid, setresuid};
use rustix::fs::{Mode, OFlags};

use crate::cli::Up;
use crate::config::{Config, Flags};
use crate::privilege::as_owner::AsOwner;
use crate::state_directory::make_dir;
use crate::worker::wiring as parts;

/// Variables that the worker keeps of root's: what settings, installers and proxies are told by. Whatever else root has in its
/// environment is root's.
const KEPT: [&str; 19] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CREDENTIALS_DIRECTORY",
    "NOTIFY_SOCKET",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "RUST_BACKTRACE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ALL_PROXY",
];

/// Beginnings of more of them.
const KEPT_FAMILIES: [&str; 5] = ["LC_", "WOOL_", "UV_", "PIP_", "LAMBSWOOL_"];

/// Whom the worker is to become; none when it stays who it is.
///
/// # Errors
/// When there is no such account, or this process may not become it.
pub(crate) fn wanted(config: &Config) -> Result<Option<User>> {
    let Some(name) = &config.user else { return Ok(None) };
    let user = User::from_name(name).context("cannot look the account up")?;
    let user = user.ok_or_else(|| {
        anyhow!("there is no account {name:?}: make one with `useradd --system {name}`, or name another with --user")
    })?;
    let ours = rustix::process::geteuid();
    if ours.as_raw() == user.uid.as_raw() {
        return Ok(None);
    }
    if !ours.is_root() {
        bail!("only root can start a worker for {name}: leave --user out, or run this as root");
    }
    Ok(Some(user))
}

/// Starts a warden that waits, and becomes the worker. Returns only with an error.
///
/// # Errors
/// When the state directory is not the account's, or a program cannot be started.
pub(crate) fn start_over(user: &User, config: &Config, up: &Up) -> anyhow::Error {
    let prepared = prepare(user, config, up).and_then(|worker| {
        // The account cannot do it later. What this process has now, it keeps until it executes.
        sys::process::empty_bounding_set().context("cannot give up privilege")?;
        Ok(worker)
    });
    match prepared {
        Ok(mut worker) => {
            let error = match become_account(user, config, up) {
                Ok(()) => anyhow::Error::new(worker.exec()),
                Err(error) => error,
            };
            error.context(format!("cannot go on as {}", user.name))
        }
        Err(error) => error,
    }
}

fn prepare(user: &User, config: &Config, up: &Up) -> Result<Command> {
    let state = std::path::absolute(&config.state).context("cannot find the state directory")?;
    hand_over(user, &state)?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let options = WardenOptions {
        program: parts::warden_program()?,
        state: state.clone(),
        isolation: config.internals.container_recipe,
        waiting: None,
    };
    let warden = container::start_waiting(&options, up.detach)?;
    let mut worker = Command::new(program);
    // What was said last counts.
    let said = std::env::args_os().skip(1);
    worker.args(said).args([OsStr::new("--state"), state.as_os_str()]);
    let flags = Flags { config: up.config.clone(), ..Flags::default() };
    if let Some(file) = Config::file(&flags) {
        worker.args([OsString::from("--config"), file.into()]);
    }
    worker.arg("--warden").arg(warden.to_string());
    worker.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
    worker.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
    leave_terminal(&mut worker).context("cannot let go of the terminal")?;
    Ok(worker)
}

/// Takes the account's ids and groups, for good, and joins the group of `admin_group`: the worker gives its socket to that
/// group. The account need not be a member.
///
/// # Errors
/// When the group is root's, or the account could have named it itself.
fn become_account(user: &User, config: &Config, up: &Up) -> Result<()> {
    let name = CString::new(user.name.as_str())?;
    let mut groups = getgrouplist(&name, user.gid).context("cannot read its groups")?;
    // A group that does not exist is told by the worker.
    let admin = config.admin_group.as_deref().map(Group::from_name).transpose()?.flatten();
    if let Some(Group { name, gid, .. }) = admin.filter(|admin| !groups.contains(&admin.gid)) {
        let file = Config::file(&Flags { config: up.config.clone(), ..Flags::default() });
        let is_roots = |file: std::path::PathBuf| roots_alone(&file);
        if gid.as_raw() == 0 || !file.map_or(Ok(true), is_roots)? {
            bail!(
                "{} does not become a member of {name} for `admin_group`: name a group other than root's, in a file that only root can change",
                user.name
            );
        }
        groups.push(gid);
    }
    groups.retain(|group| *group != user.gid);
    setgroups(&groups)?;
    setresgid(user.gid, user.gid, user.gid)?;
    Ok(setresuid(user.uid, user.uid, user.uid)?)
}

fn is_kept(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let family = KEPT_FAMILIES.iter().any(|family| name.starts_with(family));
    // Settings of the client, not of a worker.
    let token = name.starts_with("WOOL_TOKEN");
    KEPT.contains(&&*name) || (family && !token)
}

/// Root's terminal is for the worker to write on, and for nothing else: what is typed there, or looks as if it were, is
/// root's.
fn leave_terminal(worker: &mut Command) -> std::io::Result<()> {
    worker.stdin(Stdio::null());
    if std::io::stdout().is_terminal() {
        worker.stdout(OpenOptions::new().write(true).open("/proc/self/fd/1")?);
    }
    if std::io::stderr().is_terminal() {
        worker.stderr(OpenOptions::new().write(true).open("/proc/self/fd/2")?);
    }
    sys::terminal::give_up()
}

/// Makes the state directory the account's where it is new or empty.
fn hand_over(user: &User, state: &Path) -> Result<()> {
    let unusable = || format!("cannot use {}", state.display());
    let owned = || fs::symlink_metadata(state).is_ok_and(|it| it.uid() == user.uid.as_raw());
    // By the account itself, as far as it can: that takes nothing of root.
    let own = AsOwner::become_one(user.uid, user.gid)?;
    let made = make_dir(state);
    if made.is_ok() && owned() {
        return Ok(());
    }
    drop(own);
    let (parent, name) = state.parent().zip(state.file_name()).with_context(unusable)?;
    let taken = |uid: u32| {
        anyhow!(
            "{state} belongs to user {uid}, and the worker is to run as {name}: `chown -R {name}: {state}`, or choose another place with --state DIR",
            name = user.name,
            state = state.display()
        )
    };
    // By root only where no other user can have put a link in the way, or can do so from here on.
    if !roots_alone(parent).with_context(unusable)? {
        return Err(match fs::symlink_metadata(state) {
            Ok(there) => taken(there.uid()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => not_made(user, state),
            Err(error) => anyhow::Error::new(error).context(unusable()),
        });
    }
    fs::create_dir_all(parent).with_context(unusable)?;
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, directory, Mode::empty()).with_context(unusable)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
        Err(error) if error != rustix::io::Errno::EXIST => {
            return Err(error).with_context(unusable);
        }
        _ => {}
    }
    let opened = rustix::fs::openat(&parent, name, directory, Mode::empty());
    let opened = fs::File::from(opened.with_context(unusable)?);
    let owner = opened.metadata().with_context(unusable)?.uid();
    let mut entries = rustix::fs::Dir::read_from(&opened).with_context(unusable)?;
    let dots = |name: &std::ffi::CStr| matches!(name.to_bytes(), b"." | b"..");
    let empty = entries.all(|entry| entry.is_ok_and(|entry| dots(entry.file_name())));
    if owner == user.uid.as_raw() {
        return Ok(());
    }
    if owner != 0 || !empty {
        return Err(taken(owner));
    }
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    std::os::unix::fs::fchown(&opened, Some(uid), Some(gid)).with_context(unusable)
}

/// Root makes no directory where others could lead it elsewhere; who says so himself may.
fn not_made(user: &User, state: &Path) -> anyhow::Error {
    let (state, name) = (state.display(), &user.name);
    anyhow!(
        "{state} is not there, {name} may not make it, and root does not where others may change the way there: make it with `install -d -m 700 -o {name} {state}`, or choose another place with --state DIR"
    )
}

/// Whether only root can change where a path leads: every part of it that exists, and every link's target.
fn roots_alone(path: &Path) -> std::io::Result<bool> {
    let there = path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"));
    let real = there.canonicalize()?;
    for part in there.ancestors().chain(real.ancestors()) {
        let part = fs::symlink_metadata(part)?;
        let open = !part.is_symlink() && part.mode() & 0o022 != 0;
        if part.uid() != 0 || open {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_roots_environment_the_worker_gets_what_it_is_set_by() {
        for kept in ["PATH", "WOOL_LISTEN", "UV_INDEX_CORP_PASSWORD", "LC_ALL", "https_proxy"] {
            assert!(is_kept(OsStr::new(kept)), "{kept}");
        }
        for roots in [
            "WOOL_TOKEN",
            "WOOL_TOKEN_FILE",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "XDG_STATE_HOME",
            "LD_PRELOAD",
        ] {
            assert!(!is_kept(OsStr::new(roots)), "{roots}");
        }
    }

    #[test]
    fn a_path_that_somebody_else_can_change_is_not_roots_alone() {
        assert!(roots_alone(Path::new("/usr/not/there/yet")).unwrap());
        assert!(!roots_alone(Path::new("/tmp/not/there/yet")).unwrap());
        // A link of root's in a place of root's, to a place that others write to.
        assert!(!roots_alone(Path::new("/proc/self/root/tmp/x")).unwrap());
    }

    #[test]
    fn a_directory_that_root_does_not_make_is_told_with_the_way_to_make_it() {
        if !rustix::process::geteuid().is_root() {
            return skips::skip("root", "only root starts a worker for somebody else");
        }
        // In a process of its own: for a moment all of it is the account's.
        const ALONE: &str = "LAMBSWOOL_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = std::thread::current().name().unwrap().to_owned();
            let mut again = Command::new(std::env::current_exe().unwrap());
            let ended = again.args(["--exact", &name]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        // Others may change the way there: it belongs to one of them, and this account is another.
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(54_321), None).unwrap();
        let Some(user) = User::from_name("nobody").unwrap() else { return };
        let state = dir.path().join("state");
        let told = hand_over(&user, &state).unwrap_err().to_string();
        let way = format!("install -d -m 700 -o nobody {}", state.display());
        assert!(told.contains(&way), "{told}");
        assert!(!state.exists());
        // As it says.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        fs::create_dir(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(user.uid.as_raw()), None).unwrap();
        hand_over(&user, &state).unwrap();
    }
}
