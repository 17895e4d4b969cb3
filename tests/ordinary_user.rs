//! A user who is not root, and starts the warden through sudo; and one for whom root starts it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::PathBuf;

use e2e::Said;
use e2e::terminal::Terminal;
use e2e::traces::{self, uid};
use e2e::user::{PASSWORD, User};
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
    let worker = Said::from(user.command_of_root(&up).output().unwrap()).json();
    let pid = u32::try_from(worker["pid"].as_u64().unwrap()).unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = user.uid();
    assert!(status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")), "{status}");
    assert!(!status.contains("Gid:\t0\t") && status.contains("Groups:\t \n"), "{status}");
    assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
    only_wardens_are_left(&user);
    let file = user.home().join("f.py");
    fs::write(&file, "def handler(event, context):\n    return event\n").unwrap();
    chown(&file, Some(uid), None).unwrap();
    drop(user.wool(&["deploy", file.to_str().unwrap()]).ok());
    assert_eq!(user.wool(&["invoke", "f", "[7]"]).json()[0], 7);
    drop(user.wool(&["down"]).ok());
    user.assert_all_is_his();
    assert_eq!(traces::cgroups(&user.cgroup()), Vec::<PathBuf>::new());

    // In front; the warden goes with a worker that is killed.
    let mut worker = user.command_of_root(&["up", "--user", user.name()]).spawn().unwrap();
    e2e::eventually("it answers", || user.wool(&["ls"]).code == 0);
    worker.kill().unwrap();
    worker.wait().unwrap();
    e2e::eventually("its warden is gone", || user.roots_processes().is_empty());
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
