//! Starting a worker where it cannot, or must not.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use e2e::{Site, can_run};
use serde_json::json;

#[test]
fn a_second_worker_on_one_state_directory_is_refused_with_the_pid_of_the_first() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for arguments in [&["up"][..], &["up", "--detach"]] {
        let words = worker.site().wool(arguments).failed(1);
        assert!(words.contains(&format!("(pid {})", worker.pid())), "{words}");
        assert!(words.contains("wool down"), "{words}");
    }
    drop(worker.get("/healthz").expect(200));
}

#[test]
fn a_busy_port_is_named_with_the_ways_out() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let words = site.wool(&["up", "--listen", &address]).failed(1);
    assert!(words.contains(&address) && words.contains("--listen 127.0.0.1:0"), "{words}");
    // It let go of the directory.
    drop(site.up());
}

#[test]
fn a_state_directory_of_a_newer_release_is_refused_and_left_alone() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    drop(site.wool(&["base", "ls"]).ok());
    let version = site.state().join("version");
    fs::write(&version, "99\n").unwrap();
    for command in [&["up"][..], &["base", "ls"], &["base", "build"], &["run", "/dev/null"]] {
        let said = site.wool(command);
        assert_eq!(said.code, 1, "{said:?}");
        if command[0] != "run" {
            assert!(
                said.stderr.contains("newer release") && said.stderr.contains("99"),
                "{said:?}"
            );
        }
    }
    assert_eq!(fs::read_to_string(version).unwrap(), "99\n");
}

#[test]
fn only_loopback_addresses_and_known_settings_are_taken() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let words = site.wool(&["up", "--listen", "0.0.0.0:0"]).failed(1);
    assert!(words.contains("loopback"), "{words}");
    let config = site.own().join("odd.toml");
    fs::write(&config, "lisen = \"127.0.0.1:0\"\n").unwrap();
    let words = site.wool(&["up", "--config", config.to_str().unwrap()]).failed(1);
    assert!(words.contains("lisen") && words.contains("listen"), "{words}");
    let foreign = site.own().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "").unwrap();
    let words = site.wool(&["up", "--state", foreign.to_str().unwrap()]).failed(1);
    assert!(words.contains("thesis.txt") || words.contains("not empty"), "{words}");
}

#[test]
fn a_start_in_the_background_answers_when_the_command_returns() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let said = site.wool(&["up", "--detach", "--json"]).json();
    let socket = site.state().join("run/wool.sock");
    let client = e2e::Client::new(said["url"].as_str().unwrap(), socket);
    assert_eq!(client.get("/healthz").expect(200).text(), "ok\n");
    assert_eq!(client.get("/v1/status").json()["pid"], said["pid"]);
    drop(site.wool(&["down"]).ok());
    assert_eq!(site.wool(&["down", "--json"]).json()["stopped"], false);
}

#[test]
fn a_run_waits_for_the_worker_that_is_being_started() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    drop(site.wool(&["base", "ls"]).ok());
    let file = site.own().join("hello.py");
    fs::write(&file, "def handler(event, context):\n    return 'hello'\n").unwrap();
    // As a worker that does not answer yet.
    let lock = site.state().join("lock");
    let mut lock = fs::File::create(lock).unwrap();
    lock.lock().unwrap();
    writeln!(lock, "{}", std::process::id()).unwrap();
    let mut run = site.command();
    let run = run.arg("run").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut words = BufReader::new(run.stderr.take().unwrap());
    let mut said = String::new();
    words.read_line(&mut said).unwrap();
    assert!(said.contains("waiting"), "{said}");
    drop(lock);
    let rest = std::thread::spawn(move || std::io::read_to_string(words).unwrap());
    let ended = run.wait_with_output().unwrap();
    let said = rest.join().unwrap();
    assert!(ended.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "\"hello\"\n");
    drop(site.wool(&["down"]).ok());
}

#[test]
fn a_run_whose_port_is_taken_says_where_its_worker_listens() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let file = site.own().join("f.py");
    fs::write(&file, "def handler(event, context):\n    return event\n").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut run = site.command();
    let run = run.args(["run", file.to_str().unwrap(), "[7]"]).env("WOOL_LISTEN", &address);
    let run = run.output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{said}");
    let worker = fs::read_to_string(site.state().join("run/worker.json")).unwrap();
    let worker: e2e::Value = worker.parse().unwrap();
    let url = worker["url"].as_str().unwrap();
    let told = format!("the worker listens on {url}, because something else listens on {address}");
    assert!(said.contains(&told), "{said}");
    drop(site.wool(&["down"]).ok());
}

#[test]
fn first_runs_at_the_same_time_share_the_worker_that_one_of_them_starts() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let file = site.own().join("hello.py");
    fs::write(&file, "def handler(event, context):\n    return 'hello'\n").unwrap();
    let start = || {
        let mut run = site.command();
        let run = run.arg("run").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
        run.spawn().unwrap()
    };
    let runs = [start(), start(), start()];
    for run in runs {
        let ended = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "\"hello\"\n");
    }
    drop(site.wool(&["down"]).ok());
}

#[test]
fn a_python_that_is_not_there_is_refused_when_the_worker_starts() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    for (python, why) in [("3.99", "no Python 3.99"), ("/bin/true", "/bin/true does not answer")] {
        let words = site.wool(&["up", "--python", python]).failed(1);
        assert!(words.contains("`python`") && words.contains(why), "{words}");
    }
    // What there is a base of need not be there any more.
    drop(site.up());
}

#[test]
fn a_worker_that_is_told_to_stop_lets_calls_end() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("slow", "import time\ndef handler(e, c):\n    print('began', flush=True)\n    time.sleep(1)\n    return 'ended'\n").expect(201));
    let client = (*worker).clone();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.post("/run/slow", "application/json", b"{}"));
        e2e::eventually("the call has begun", || !worker.logs("slow").is_empty());
        drop(worker.stop());
        assert_eq!(call.join().unwrap().expect(200).json(), "ended");
    });
}

/// Holds every lock that somebody else can: prints how many files it has opened, and stays until its input ends.
const HOLDER: &str = "
import fcntl, os, sys
held = []
def hold(path):
    try:
        fd = os.open(path, os.O_RDONLY)
        held.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
for number in range(16):
    hold(f'/run/lambswool/uids-{number}')
print(len(held), flush=True)
sys.stdin.readline()
for top in sys.argv[1:]:
    hold(top)
    for directory, names, files in os.walk(top):
        for name in names + files:
            hold(os.path.join(directory, name))
print(len(held), flush=True)
sys.stdin.read()
";

#[test]
fn who_may_only_look_cannot_hold_up_a_worker() {
    if !can_run() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return e2e::machine::skip("root", "only root can become somebody else");
    }
    // While it runs there are locks of kernel uids, and then all of a state directory that was used.
    let worker = Site::new().up();
    let state = worker.site().state();
    let (mut holder, mut said) = (holder(&state), String::new());
    let mut words = BufReader::new(holder.stdout.take().unwrap());
    words.read_line(&mut said).unwrap();
    assert_eq!(said, "0\n", "locks of kernel uids are open to everybody");
    // A lock that somebody has already cannot be taken from him.
    let site = worker.stop();
    // As an earlier release has left it: to be looked at by everybody.
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    holder.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    words.read_line(&mut said).unwrap();
    assert_ne!(said, "0\n0\n", "nothing of {} can be seen", state.display());
    let worker = site.up();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    drop(worker.stop());
}

/// [`HOLDER`] on a state directory, as a user whom it does not belong to.
fn holder(state: &Path) -> Child {
    // The layers are many, and only ever read.
    let parts = [state.to_owned(), state.join("run"), state.join("logs"), state.join("uv")];
    let mut holder = Command::new("/usr/bin/setpriv");
    holder.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        HOLDER,
    ]);
    holder.args(parts).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_function_that_an_earlier_release_deployed_runs_with_the_guest_of_this_one() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("old", "def handler(event, context):\n    return event\n").expect(201));
    drop(worker.run("old", &json!(1)).expect(200));
    let site = worker.stop();

    // What an upgrade finds: a version with another guest, which no longer knows how to talk to this worker.
    let guests = site.state().join("layers/guest");
    let ours = fs::read_dir(&guests).unwrap().next().unwrap().unwrap().file_name();
    let ours = ours.to_str().unwrap();
    let theirs = "0".repeat(32);
    fs::rename(guests.join(ours), guests.join(&theirs)).unwrap();
    fs::remove_dir_all(guests.join(&theirs).join("lambswool_guest")).unwrap();
    for entry in fs::read_dir(site.state().join("handlers")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(ours), "{text}");
        fs::write(&path, text.replace(ours, &theirs)).unwrap();
    }

    let worker = site.up();
    assert_eq!(worker.run("old", &json!(2)).expect(200).json(), json!(2));
    assert!(guests.join(ours).is_dir(), "this release's guest was not made");
}
