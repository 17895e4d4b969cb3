use super::*;

#[test]
fn a_state_of_a_newer_release_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("version"), "3\n").unwrap();
    let refused = State::open(dir.path()).unwrap_err();
    assert!(matches!(refused, StateError::Newer { found: 3, .. }), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_with_other_files_is_never_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "").unwrap();
    assert!(matches!(State::open(dir.path()).unwrap_err(), StateError::Foreign(_)));
}

#[test]
fn a_version_that_no_release_wrote_is_damage() {
    for text in ["", "0\n", "-1", "one", "\u{1}\u{2}"] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("version"), text).unwrap();
        let refused = State::open(dir.path()).unwrap_err();
        assert!(matches!(refused, StateError::Damaged { .. }), "{text:?}: {refused}");
        assert_eq!(fs::read_to_string(dir.path().join("version")).unwrap(), text);
        // It can still be removed.
        assert!(State::existing(dir.path()).unwrap().is_some());
    }
}

#[test]
fn only_the_holder_closes_what_a_workers_group_may_enter() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let run = state.run();
    let mode = || fs::metadata(&run).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    let hold = state.hold().unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o710)).unwrap();
    drop(State::open(dir.path()).unwrap());
    assert_eq!(mode(), 0o710, "`wool base ls` beside a worker");
    fs::write(state.root().join("lock"), format!("{}\n", std::process::id())).unwrap();
    assert!(matches!(state.hold().unwrap_err(), StateError::Busy { .. }));
    assert_eq!(mode(), 0o710, "a second `wool up`");
    drop(hold);
    drop(state.hold().unwrap());
    assert_eq!(mode(), 0o700, "the next worker");
}

#[test]
fn what_an_interrupted_removal_left_is_ours() {
    for left in [&["run", "uv"][..], &["lock"], &["functions.sqlite-wal"]] {
        let dir = tempfile::tempdir().unwrap();
        assert!(State::existing(dir.path()).unwrap().is_none(), "it is empty");
        left.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
        assert!(State::existing(dir.path()).unwrap().is_some(), "{left:?}");
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        assert!(State::existing(dir.path()).unwrap().is_none(), "{left:?}");
        assert!(matches!(State::open(dir.path()).unwrap_err(), StateError::Foreign(_)));
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    drop(State::open(dir.path()).unwrap().hold().unwrap());
    assert!(State::existing(&dir.path().join("absent")).unwrap().is_none());
}

#[test]
fn a_new_directory_is_opened_by_many_at_once() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let open = || {
                together.wait();
                State::open(dir.path()).map(drop)
            };
            let opened: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            opened.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        assert!(!dir.path().join("version.new").exists());
    }
}

#[test]
fn whoever_only_looks_or_has_not_said_who_it_is_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let looks = state.lock(&dir.path().join("lock")).unwrap();
    looks.lock().unwrap();
    assert!(state.is_held().unwrap());
    std::thread::scope(|scope| {
        let holds = scope.spawn(|| state.hold().map(drop));
        // Whether it has begun or not by then: it comes to its end.
        thread::sleep(Duration::from_millis(50));
        drop(looks);
        holds.join().unwrap().unwrap();
    });
    assert!(!state.is_held().unwrap());
}

#[test]
fn one_at_a_time_starts_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let first = state.begin_start().unwrap().unwrap();
    assert!(state.begin_start().unwrap().is_none());
    drop(first);
    assert!(state.begin_start().unwrap().is_some());
}

#[test]
fn a_hold_on_what_was_removed_leaves_the_next_one_alone() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let removed = state.hold().unwrap();
    for name in LAST {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    // A process that has opened it before goes on with a whole directory.
    let next = state.hold().unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("version")).unwrap(), format!("{VERSION}\n"));
    let address = Address { pid: 7, url: "http://127.0.0.1:1".to_owned() };
    next.announce(&address).unwrap();
    drop(removed);
    assert_eq!(state.address(), Some(address));
    let refused = state.hold().unwrap_err().to_string();
    assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
}

#[test]
fn root_does_not_work_in_a_directory_of_somebody_elses() {
    if !rustix::process::geteuid().is_root() {
        return skips::skip("root", "only root can give a directory away");
    }
    let dir = tempfile::tempdir().unwrap();
    let victim = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(victim.path(), dir.path().join("run")).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(54_321), Some(54_321)).unwrap();
    let refused = State::open(dir.path()).unwrap_err();
    assert!(matches!(refused, StateError::Theirs { uid: 54_321, .. }), "{refused}");
    assert!(refused.to_string().contains("wool up --user"), "{refused}");
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["run"]);
}

#[test]
fn a_second_hold_names_the_pid_and_how_to_stop_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let hold = state.hold().unwrap();
    let refused = state.hold().unwrap_err().to_string();
    assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
    assert!(refused.contains("wool down"), "{refused}");
    drop(hold);
    // A child that another test is just starting has a copy of the lock until it is another program.
    let mut tries = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        state.hold()
    });
    assert!(tries.by_ref().take(1000).any(|held| held.is_ok()), "it is not free again");
}

#[test]
fn a_killed_workers_child_that_has_its_lock_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let lock = File::create(dir.path().join("lock")).unwrap();
    lock.try_lock().unwrap();
    writeln!(&lock, "{}", gone.id()).unwrap();
    let child = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        drop(lock);
    });
    state.hold().unwrap();
    child.join().unwrap();
}

#[test]
fn an_address_is_there_exactly_while_the_hold_is() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let hold = state.hold().unwrap();
    assert_eq!(state.address(), None);
    let address = Address { pid: 7, url: "http://127.0.0.1:1".to_owned() };
    hold.announce(&address).unwrap();
    assert_eq!(state.address(), Some(address));
    drop(hold);
    assert_eq!(state.address(), None);
}

#[test]
fn a_state_directory_is_closed_to_others_and_what_is_above_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let state = State::open(&root).unwrap();
    assert_eq!((mode(&root), mode(&dir.path().join("a"))), (0o700, 0o755));
    // As an earlier release has left it.
    for (passable, closed) in [(false, 0o700), (true, 0o711)] {
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        state.close(passable).unwrap();
        assert_eq!(mode(&root), closed);
    }
}
