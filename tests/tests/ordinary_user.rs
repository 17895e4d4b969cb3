//! A user who is not root, and starts the warden through sudo; and one for whom root starts it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::terminal::Terminal;
use e2e::traces::{self, uid};
use e2e::user::{PASSWORD, User};
use e2e::{Said, Site, can_run};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_users_worker_has_no_privilege_and_leaves_nothing_that_is_not_the_users() {
    let Some(user) = User::make("NOPASSWD:") else { return };
    let worker = user.wool(&["up", "--detach", "--json"]).json();
    let file = user.home().join("f.py");
    fs::write(&file, "def handler(event, context):\n    return event\n").unwrap();
    chown(&file, Some(user.uid()), None).unwrap();
    drop(user.wool(&["deploy", file.to_str().unwrap()]).ok());
    assert_eq!(user.wool(&["invoke", "f", "[7]"]).json()[0], 7);
    let pid = u32::try_from(worker["pid"].as_u64().unwrap()).unwrap();
    assert_eq!(uid(pid), Some(user.uid()));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    // No debugger and no core file of the user's looks into it: the kernel shows it as root's.
    assert_eq!(fs::metadata(format!("/proc/{pid}/status")).unwrap().uid(), 0);
    only_wardens_are_left(&user);
    drop(user.wool(&["down"]).ok());
    user.assert_all_is_his();
    assert_eq!(traces::cgroups(&user.cgroup()), Vec::<PathBuf>::new());
}

#[test]
fn what_a_killed_warden_left_to_a_user_is_cleaned_through_sudo() {
    let Some(user) = User::make("NOPASSWD:") else { return };
    let worker = user.wool(&["up", "--detach", "--json"]).json();
    let worker = i32::try_from(worker["pid"].as_u64().unwrap()).unwrap();
    let everyone: Vec<i32> = user
        .roots_processes()
        .iter()
        .filter_map(|line| traces::pid_of(line).map(u32::cast_signed))
        .chain([worker])
        .collect();
    // All are stopped before any is killed: the worker would end, and the guardian would clear up.
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in &everyone {
            // One that was about to end anyway may have.
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), signal);
        }
    }
    let name = user.cgroup();
    assert_ne!(traces::cgroups(&name), Vec::<PathBuf>::new());
    drop(user.wool(&["clean", "--yes"]).ok());
    assert_eq!(traces::cgroups(&name), Vec::<PathBuf>::new());
    assert!(!user.home().join("state").exists());
}

#[test]
fn sudo_asks_on_the_terminal_and_ctrl_c_is_for_the_worker() {
    let Some(user) = User::make("") else { return };
    let mut terminal = Terminal::run(&user.command(&["up"]));
    terminal.expect("wool needs root once");
    terminal.press(&format!("{PASSWORD}\n"));
    terminal.expect("wool listens on");
    terminal.press("\x03");
    terminal.expect("stopped");
    assert_eq!(terminal.ended(), Some(0));
    user.assert_all_is_his();
}

#[test]
fn a_worker_in_the_background_outlives_the_terminal_that_it_was_started_on() {
    let Some(user) = User::make("") else { return };
    let mut terminal = Terminal::run(&user.command(&["up", "--detach"]));
    terminal.expect("wool needs root once");
    terminal.press(&format!("{PASSWORD}\n"));
    terminal.expect("http://");
    assert_eq!(terminal.ended(), Some(0));
    // Long enough for a sudo that had stayed to notice.
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(user.wool(&["ls"]).ok());
    drop(user.wool(&["down"]).ok());
}

#[test]
fn without_sudo_or_its_leave_a_user_is_told_what_to_do() {
    let Some(user) = User::make("") else { return };
    // There is no terminal to ask on.
    let words = user.wool(&["up"]).failed(1);
    assert!(
        words.contains("have sudo allow this user") && words.contains("wool-warden"),
        "{words}"
    );
    let mut elsewhere = user.command(&["up"]);
    elsewhere.env("PATH", user.home());
    let words = Said::from(elsewhere.output().unwrap()).failed(1);
    assert!(words.contains("there is no sudo"), "{words}");
    user.assert_all_is_his();
}

#[test]
fn a_worker_that_root_starts_for_an_account_keeps_nothing_of_root() {
    let Some(user) = User::without_sudo() else { return };
    let up = ["up", "--detach", "--json", "--user", user.name()];
    let mut up = user.command_of_root(&up);
    up.env("ROOTS_OWN", "precious").env("WOOL_IDLE", "9m");
    let worker = Said::from(up.output().unwrap()).json();
    let pid = u32::try_from(worker["pid"].as_u64().unwrap()).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = user.uid();
    assert!(status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")), "{status}");
    assert!(!status.contains("Gid:\t0\t") && status.contains("Groups:\t \n"), "{status}");
    for line in WITHOUT_PRIVILEGE {
        assert!(status.contains(line), "{status}");
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("WOOL_IDLE=9m") && !environment.contains("precious"));
    only_wardens_are_left(&user);
    let file = user.home().join("f.py");
    fs::write(&file, "def handler(event, context):\n    return event\n").unwrap();
    chown(&file, Some(uid), None).unwrap();
    drop(user.wool(&["deploy", file.to_str().unwrap()]).ok());
    assert_eq!(user.wool(&["invoke", "f", "[7]"]).json()[0], 7);
    drop(user.wool(&["down"]).ok());
    user.assert_all_is_his();
    assert_eq!(traces::cgroups(&user.cgroup()), Vec::<PathBuf>::new());

    // In front, the state directory said; the warden goes with a worker that is killed.
    let state = user.home().join("state");
    let up = ["up", "--user", user.name(), "--state", state.to_str().unwrap()];
    let mut worker = user.command_of_root(&up).spawn().unwrap();
    e2e::eventually("it answers", || user.wool(&["ls"]).code == 0);
    worker.kill().unwrap();
    worker.wait().unwrap();
    e2e::eventually("its warden is gone", || user.roots_processes().is_empty());
}

/// A group that is removed in the end.
struct Group(String);

impl Group {
    fn make(user: &User) -> Self {
        let group = Self(format!("{}-g", user.name()));
        assert!(Command::new("groupadd").arg(&group.0).status().unwrap().success());
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(Command::new("groupdel").arg(&self.0).status());
    }
}

#[test]
fn the_admin_group_reaches_a_worker_that_root_starts_for_an_account() {
    let Some(user) = User::without_sudo() else { return };
    let group = Group::make(&user);
    let mut up = user.command_of_root(&["up", "--detach", "--json", "--user", user.name()]);
    drop(Said::from(up.env("WOOL_ADMIN_GROUP", &group.0).output().unwrap()).json());
    // A member, who may go to where the state directory is.
    fs::set_permissions(user.home(), fs::Permissions::from_mode(0o711)).unwrap();
    let socket = format!("unix:{}", user.home().join("state/run/wool.sock").display());
    let member = |groups: &str| {
        let mut ls = Command::new("/usr/bin/setpriv");
        ls.args(["--reuid=65534", "--regid=65534", groups]);
        ls.arg(user.home().join("bin/wool")).args(["--url", &socket, "ls"]);
        Said::from(ls.env("HOME", "/").output().unwrap())
    };
    let of_group = format!("--groups={}", group.0);
    drop(member(&of_group).ok());
    assert_ne!(member("--clear-groups").code, 0);
    // What only looks into the directory, or is refused it, shuts no member out.
    drop(user.wool(&["base", "ls"]).ok());
    drop(member(&of_group).ok());
    drop(user.wool(&["up"]).failed(1));
    drop(member(&of_group).ok());
    drop(user.wool(&["down"]).ok());
}

#[test]
fn the_last_line_of_a_failed_start_says_why() {
    let Some(user) = User::without_sudo() else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // Its warden writes on the same pipe, which is read until both have closed it.
    let up = ["up", "--user", user.name(), "--listen", &address];
    let said = Said::from(user.command_of_root(&up).output().unwrap()).failed(1);
    let last = said.lines().last().unwrap();
    assert!(last.contains("already listens"), "{said}");
    assert!(!said.contains("warden.sock"), "{said}");
}

#[test]
fn a_run_of_roots_starts_the_worker_of_the_account_in_the_settings() {
    let Some(user) = User::without_sudo() else { return };
    let file = user.home().join("f.py");
    fs::write(&file, "def handler(event, context):\n    return event\n").unwrap();
    chown(&file, Some(user.uid()), None).unwrap();
    for state in ["state", "new"].map(|name| user.home().join(name)) {
        let mut run = user.command_of_root(&["run", file.to_str().unwrap(), "[7]"]);
        run.env("WOOL_USER", user.name()).env("WOOL_STATE", &state);
        let run = Said::from(run.output().unwrap());
        assert_eq!(run.ok().trim(), "[7]");
        assert_eq!(fs::metadata(state.join("lock")).unwrap().uid(), user.uid());
        let mut down = user.command(&["down"]);
        drop(Said::from(down.env("WOOL_STATE", &state).output().unwrap()).ok());
    }
    user.assert_all_is_his();
}

/// What `/proc/PID/status` says of a thread that has no privilege and can gain none.
const WITHOUT_PRIVILEGE: [&str; 6] = [
    "CapInh:\t0000000000000000\n",
    "CapPrm:\t0000000000000000\n",
    "CapEff:\t0000000000000000\n",
    "CapBnd:\t0000000000000000\n",
    "CapAmb:\t0000000000000000\n",
    "NoNewPrivs:\t1\n",
];

#[test]
fn a_worker_that_root_starts_lays_down_every_capability_and_its_warden_none() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let function = "def handler(event, context):\n    return 7\n";
    assert_eq!(worker.try_out("f", function).expect(200).json(), 7);
    let threads = fs::read_dir(format!("/proc/{}/task", worker.pid())).unwrap();
    let statuses: Vec<String> = threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).ok())
        .collect();
    assert!(statuses.len() > 2, "all of its threads: {statuses:?}");
    for status in statuses {
        for line in WITHOUT_PRIVILEGE {
            assert!(status.contains(line), "{line}{status}");
        }
    }
    let warden = fs::read_to_string(format!("/proc/{}/status", worker.warden())).unwrap();
    assert!(!warden.contains(WITHOUT_PRIVILEGE[2]) && !warden.contains(WITHOUT_PRIVILEGE[3]));
    worker.assert_well();
}

/// Whoever has a terminal can put words into it, as if they had been typed.
#[test]
fn a_worker_that_root_starts_for_an_account_writes_on_roots_terminal_and_no_more() {
    let Some(user) = User::without_sudo() else { return };
    let up = user.command_of_root(&["up", "--user", user.name()]);
    // As from a shell: not as the session's leader.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap : INT; \"$0\" \"$@\"; echo it ended with $?"]).arg(up.get_program());
    shell.args(up.get_args());
    for (name, value) in up.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let mut terminal = Terminal::run(&shell);
    terminal.expect("wool listens on");
    let lock = fs::read_to_string(user.home().join("state/lock")).unwrap();
    let process = format!("/proc/{}", lock.trim());
    let stat = fs::read_to_string(format!("{process}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    assert_eq!(after_name.split_whitespace().nth(4), Some("0"), "its terminal: {stat}");
    let input = fs::read_link(format!("{process}/fd/0")).unwrap();
    assert_eq!(input, PathBuf::from("/dev/null"));
    for output in [1, 2] {
        let flags = fs::read_to_string(format!("{process}/fdinfo/{output}")).unwrap();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let mode = u32::from_str_radix(flags, 8).unwrap() & 3;
        assert_eq!(mode, 1, "for writing only: {flags}");
    }
    terminal.press("\x03");
    terminal.expect("it ended with 0");
    user.assert_all_is_his();
}

#[test]
fn what_an_account_lays_out_for_root_is_not_followed() {
    let Some(user) = User::without_sudo() else { return };
    let root = |arguments: &[&str]| Said::from(user.command_of_root(arguments).output().unwrap());
    drop(root(&["token", "create", "first", "--scope", "read"]).ok());
    user.assert_all_is_his();
    let state = user.home().join("state");
    let own = tempfile::tempdir().unwrap();
    let (file, directory) = (own.path().join("file"), own.path().join("directory"));
    fs::write(&file, "precious").unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("wool.sock"), "precious").unwrap();
    fs::write(directory.join("current.log"), "precious").unwrap();
    let modes = || [&file, &directory].map(|path| fs::metadata(path).unwrap().mode());
    let before = modes();
    for (name, to) in [
        ("lock", &file),
        ("version.new", &file),
        ("access.sqlite", &file),
        ("run", &directory),
        ("logs", &directory),
        ("audit", &directory),
    ] {
        let link = state.join(name);
        let aside = user.home().join("aside");
        let there = fs::rename(&link, &aside).is_ok();
        std::os::unix::fs::symlink(to, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(user.uid()), None).unwrap();
        for arguments in
            [&["token", "create", "more", "--scope", "read"][..], &["token", "ls"], &["down"]]
        {
            drop(root(arguments));
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious", "{name}");
        let names = fs::read_dir(&directory).unwrap().count();
        assert_eq!((modes(), names), (before, 2), "{name}");
        let log = fs::read_to_string(directory.join("current.log")).unwrap();
        assert_eq!(log, "precious", "{name}");
        fs::remove_file(&link).unwrap();
        if there {
            fs::rename(&aside, &link).unwrap();
        }
    }
    let elsewhere = directory.join("warden.sock");
    for name in ["layers", "run", "run/empty", "run/stages", "run/warden.sock"] {
        for part in ["layers", "run/empty", "run/stages"] {
            fs::create_dir_all(state.join(part)).unwrap();
            chown(state.join(part), Some(user.uid()), None).unwrap();
        }
        let (path, socket) = (state.join(name), state.join("run/warden.sock"));
        let aside = user.home().join("aside");
        let _worker = play_worker(&user, &socket);
        fs::rename(&path, &aside).unwrap();
        // A directory to work in, and a worker to connect to.
        let to = if path == socket { &elsewhere } else { &directory };
        std::os::unix::fs::symlink(if name == "run" { &aside } else { to }, &path).unwrap();
        if path == socket {
            fs::rename(&aside, &elsewhere).unwrap();
        }
        let refused = warden(&user, &state, &["--socket", socket.to_str().unwrap()]).failed(1);
        assert!(refused.contains("is a link, or is behind one"), "{name}: {refused}");
        fs::remove_file(&path).unwrap();
        if path == socket {
            fs::remove_file(&elsewhere).unwrap();
        } else {
            fs::rename(&aside, &path).unwrap();
            fs::remove_file(&socket).unwrap();
        }
    }
    std::os::unix::fs::symlink(&directory, state.join("out")).unwrap();
    drop(root(&["clean", "--yes"]).ok());
    assert!(!state.exists());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    // Nor does root make a place for the account where the account says.
    std::os::unix::fs::symlink(own.path(), user.home().join("to")).unwrap();
    std::os::unix::fs::lchown(user.home().join("to"), Some(user.uid()), None).unwrap();
    let place = user.home().join("to/state");
    let refused = root(&["up", "--user", user.name(), "--state", place.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(!own.path().join("state").exists());
}

/// A warden as sudo starts it for a user, without whatever he leaves out.
fn warden(user: &User, state: &Path, arguments: &[&str]) -> Said {
    let mut warden = Command::new(user.home().join("bin/wool-warden"));
    warden.arg("--state").arg(state).args(arguments).env("SUDO_UID", user.uid().to_string());
    Said::from(warden.output().unwrap())
}

/// A process of a user that a warden takes for his worker, until the value is dropped.
struct Played(Child);

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// It lets whoever connects go again at once.
fn play_worker(user: &User, socket: &Path) -> Played {
    let program = "
import socket, sys
it = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
it.bind(sys.argv[1])
it.listen()
print('listens', flush=True)
while True:
    it.accept()[0].close()
";
    let mut worker = Command::new("/usr/bin/setpriv");
    worker.arg(format!("--reuid={}", user.name())).arg(format!("--regid={}", user.name()));
    worker
        .args(["--init-groups", "/usr/bin/python3", "-c", program])
        .arg(socket)
        .stdout(Stdio::piped());
    let mut worker = Played(worker.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(worker.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "listens\n");
    worker
}

#[test]
fn a_warden_serves_the_user_alone_to_whom_the_state_directory_belongs() {
    let Some(user) = User::without_sudo() else { return };
    let state = user.home().join("state");
    for name in ["run", "run/empty", "run/stages"] {
        fs::create_dir_all(state.join(name)).unwrap();
        chown(state.join(name), Some(user.uid()), None).unwrap();
    }
    let socket = state.join("run/warden.sock");
    let arguments = ["--socket", socket.to_str().unwrap()];
    let worker = play_worker(&user, &socket);
    drop(warden(&user, &state, &arguments).ok());
    // Another user's: the worker that is played is not its owner's.
    let roots = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(roots.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["layers", "run", "run/empty", "run/stages"] {
        fs::create_dir(roots.path().join(name)).unwrap();
    }
    let refused = warden(&user, roots.path(), &["--clear"]).failed(1);
    assert!(refused.contains("belongs to user 0, and not to user"), "{refused}");
    let theirs = roots.path().join("run/warden.sock");
    fs::rename(&socket, &theirs).unwrap();
    chown(&theirs, Some(0), None).unwrap();
    let mut direct = Command::new(user.home().join("bin/wool-warden"));
    direct.arg("--state").arg(roots.path()).arg("--socket").arg(&theirs).env_remove("SUDO_UID");
    let refused = Said::from(direct.output().unwrap()).failed(1);
    assert!(refused.contains("belongs to user 0, and not to user"), "{refused}");
    drop(worker);
}

#[test]
fn a_state_directory_that_is_exchanged_while_it_is_cleared_costs_nobody_elses_sandboxes() {
    let Some(user) = User::without_sudo() else { return };
    let victim = Site::new().up();
    assert_eq!(victim.try_out("f", "def handler(event, context):\n    return 7\n").json(), 7);
    let state = user.home().join("state");
    fs::create_dir(state.join("run")).unwrap();
    chown(state.join("run"), Some(user.uid()), None).unwrap();
    let (path, aside) = (user.home().join("which"), user.home().join("aside"));
    std::os::unix::fs::symlink(&state, &path).unwrap();
    std::os::unix::fs::symlink(victim.site().state(), &aside).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &path, CWD, &aside, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut cleared = 0;
        for _ in 0..40 {
            let mut warden = Command::new(user.home().join("bin/wool-warden"));
            warden.args(["--clear", "--state"]).arg(&path).stderr(Stdio::null());
            let mut warden = warden.env("SUDO_UID", user.uid().to_string()).spawn().unwrap();
            // One that waits for the other's worker to end does no harm.
            for _ in 0..50 {
                std::thread::sleep(Duration::from_millis(10));
                if let Some(status) = warden.try_wait().unwrap() {
                    cleared += i32::from(status.success());
                    break;
                }
            }
            let _ = warden.kill();
            warden.wait().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(cleared > 0, "the user's own may be cleared");
    });
    assert_eq!(victim.run("f", &serde_json::json!({})).json(), 7);
    victim.assert_well();
}

#[test]
fn another_user_reads_nothing_of_what_a_worker_keeps() {
    let (Some(user), Some(other)) = (User::without_sudo(), User::without_sudo()) else { return };
    fs::set_permissions(user.home(), fs::Permissions::from_mode(0o755)).unwrap();
    let state = user.home().join("state");
    let file = user.home().join("f.py");
    fs::write(&file, "def handler(event, context):\n    return event\n").unwrap();
    chown(&file, Some(user.uid()), None).unwrap();
    let by = |group: &str, words: &[&str], path: &Path| {
        let mut tried = Command::new("/usr/bin/setpriv");
        tried.args(["--reuid", other.name(), "--regid", group, "--clear-groups"]);
        tried.args(words).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        tried.status().unwrap().success()
    };
    let try_to = |words: &[&str], path: &Path| by(other.name(), words, path);
    // Of the account's group, and of another: who is to use the socket passes through.
    for (admins, mode) in [(None, 0o700), (Some(user.name()), 0o711)] {
        let up = ["up", "--detach", "--json", "--user", user.name()];
        let mut up = user.command_of_root(&up);
        if let Some(group) = admins {
            up.env("WOOL_ADMIN_GROUP", group);
        }
        drop(Said::from(up.output().unwrap()).json());
        drop(user.wool(&["deploy", file.to_str().unwrap()]).ok());
        // A function runs from layers that are closed to others.
        assert_eq!(user.wool(&["invoke", "f", "[7]"]).json()[0], 7);
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, mode);
        assert!(!try_to(&["ls"], &state), "it is listed");
        for name in ["functions.sqlite", "functions.sqlite-wal", "functions.sqlite-shm"] {
            assert!(state.join(name).exists(), "{name}");
            assert!(!try_to(&["cat"], &state.join(name)), "{name} is read");
        }
        for name in ["layers", "layers/code", "layers/base", "uv", "bundles", "handlers"] {
            assert!(state.join(name).exists(), "{name}");
            assert!(!try_to(&["ls"], &state.join(name)), "{name} is listed");
        }
        let socket = state.join("run/wool.sock");
        assert_eq!(by(user.name(), &["test", "-S"], &socket), admins.is_some());
        drop(user.wool(&["down"]).ok());
        // What an earlier release has left.
        let files = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
        for path in files.filter(|path| path.to_string_lossy().contains("functions.sqlite")) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        for path in [&state, &state.join("layers")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn root_works_in_nobody_elses_state_directory() {
    let Some(user) = User::without_sudo() else { return };
    for command in [&["up", "--detach"][..], &["base", "ls"]] {
        let refused = Said::from(user.command_of_root(command).output().unwrap()).failed(1);
        assert!(refused.contains("wool up --user NAME"), "{refused}");
    }
    user.assert_all_is_his();
}

/// sudo has gone, and nothing of root's is there but the warden and, on cgroups of version 1, its guardian.
fn only_wardens_are_left(user: &User) {
    let is_warden = |line: &String| line.contains("wool-warden") && !line.contains("sudo ");
    // A sandbox that is being prepared is root's until it has given everything up.
    e2e::eventually("the warden and its guardian are all that is root's", || {
        let left = user.roots_processes();
        matches!(left.len(), 1 | 2) && left.iter().all(is_warden)
    });
}

#[test]
fn an_account_that_cannot_be_taken_is_refused_with_the_way_out() {
    let Some(user) = User::without_sudo() else { return };
    let words = |arguments: &[&str]| {
        Said::from(user.command_of_root(arguments).output().unwrap()).failed(1)
    };
    let unknown = words(&["up", "--user", "wool-nobody-has-this-name"]);
    assert!(unknown.contains("there is no account") && unknown.contains("useradd"), "{unknown}");
    let roots = user.home().join("roots");
    fs::create_dir(&roots).unwrap();
    fs::write(roots.join("file"), "").unwrap();
    let owned = words(&["up", "--user", user.name(), "--state", roots.to_str().unwrap()]);
    assert!(owned.contains("belongs to user 0") && owned.contains("chown"), "{owned}");
    assert!(user.roots_processes().is_empty(), "no warden was started");
    let other = user.wool(&["up", "--user", "root"]).failed(1);
    assert!(other.contains("only root"), "{other}");
}

#[test]
fn nothing_is_said_to_be_done_in_a_state_directory_that_is_closed() {
    let Some(user) = User::without_sudo() else { return };
    let roots = tempfile::tempdir_in("/tmp").unwrap();
    let state = roots.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("version"), "1\n").unwrap();
    for mode in [0o700, 0o755] {
        fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(roots.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for command in [&["down"][..], &["clean", "--yes"]] {
            let arguments = [command, &["--state", state.to_str().unwrap()]].concat();
            let said = user.wool(&arguments).failed(1);
            assert!(said.contains("belongs to root") && said.contains("sudo"), "{said}");
        }
    }
    // Nor behind one that cannot be looked through.
    fs::set_permissions(roots.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let said = user.wool(&["down", "--state", state.to_str().unwrap()]).failed(1);
    assert!(said.contains("belongs to root"), "{said}");
    assert!(state.join("version").exists());
}
