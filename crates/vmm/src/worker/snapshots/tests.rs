use std::os::unix::fs::PermissionsExt as _;

use sandbox::{Kind, Layer, Limits, Network, PythonSpec};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn origin(modules: &[&str]) -> Origin {
    origin_of("acme", modules)
}

fn origin_of(tenant: &str, modules: &[&str]) -> Origin {
    let layer = |name: &str| Layer::try_from(name.to_owned()).unwrap();
    let python = PythonSpec {
        base: layer("base/a"),
        guest: layer("guest/b"),
        interpreter: "/usr/bin/python3".to_owned(),
    };
    let spec = ZygoteSpec {
        kind: Kind::Microvm,
        python,
        packages: Some(layer("packages/c")),
        imports: vec!["whatever".to_owned()],
        network: Network::None,
        tenant: tenant.into(),
        limits: Limits::default(),
    };
    Origin::new(&spec, &modules.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn open(state: &Path, most_bytes: u64) -> Arc<Snapshots> {
    Arc::new(Snapshots::open(state, most_bytes, HOUR).unwrap())
}

fn write(
    snapshots: &Arc<Snapshots>,
    origin: &Origin,
    age: Duration,
    bytes: &[u8],
) -> io::Result<u64> {
    let imports = Imports { milliseconds: 12.5, ..Imports::default() };
    let mut writing = snapshots.begin(origin.clone(), age, imports)?;
    bytes.chunks(7).try_for_each(|piece| writing.push(piece))?;
    writing.finish()
}

fn read(found: StoredSnapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    { found.file }.read_to_end(&mut bytes).unwrap();
    bytes
}

fn names(state: &Path) -> usize {
    fs::read_dir(state.join("snapshots")).unwrap().count() - 1
}

#[test]
fn a_pipe_or_directory_in_a_files_place_is_refused_at_once() {
    let state = tempfile::tempdir().unwrap();
    let snapshots = open(state.path(), 1 << 20);
    let origin = origin(&[]);
    let path = snapshots.path(&origin);
    let fifo = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let directory = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("inside"), "something").unwrap();
    };
    for make in [&fifo as &dyn Fn(&Path), &directory] {
        make(&path);
        assert!(snapshots.find(&origin).is_none());
        assert_eq!(names(state.path()), 0, "it is removed");
        make(&path);
        write(&snapshots, &origin, Duration::ZERO, b"memory").unwrap();
        assert_eq!(read(snapshots.find(&origin).unwrap()), b"memory");
        snapshots.forget(&origin);
        make(&path.with_extension(format!("7{NEW}")));
        drop(Snapshots::open(state.path(), 1 << 20, HOUR).unwrap());
        assert_eq!(names(state.path()), 0, "it is not written");
    }
}

#[test]
fn a_snapshot_is_found_by_its_origin_also_by_the_next_worker() {
    let state = tempfile::tempdir().unwrap();
    let open = || open(state.path(), 1 << 20);
    let numpy = origin(&["numpy", "json"]);
    assert!(open().find(&numpy).is_none());
    write(&open(), &numpy, Duration::ZERO, b"memory and more").unwrap();
    let snapshots = open();
    // In whatever order its modules were named.
    let found = snapshots.find(&origin(&["json", "numpy", "json"])).unwrap();
    assert_eq!(found.imports.milliseconds, 12.5);
    assert_eq!(read(found), b"memory and more");
    assert!(snapshots.find(&origin(&["numpy"])).is_none());
    for name in [KEY.to_owned(), numpy.id()] {
        let data = fs::metadata(state.path().join("snapshots").join(name)).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600);
    }
    snapshots.forget(&numpy);
    assert!(snapshots.find(&numpy).is_none());
}

#[test]
fn those_that_are_written_and_those_that_are_being_written_are_forgotten() {
    let state = tempfile::tempdir().unwrap();
    let snapshots = open(state.path(), 1 << 20);
    let (whole, half) = (origin(&["numpy"]), origin(&["pandas"]));
    write(&snapshots, &whole, Duration::ZERO, b"memory").unwrap();
    let writing = snapshots.begin(half.clone(), Duration::ZERO, Imports::default()).unwrap();
    snapshots.forget_all();
    assert_eq!(writing.finish().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(snapshots.find(&whole).is_none() && snapshots.find(&half).is_none());
    write(&snapshots, &whole, Duration::ZERO, b"memory").unwrap();
    assert_eq!(read(snapshots.find(&whole).unwrap()), b"memory");
}

#[test]
fn a_snapshot_is_restored_for_its_own_tenant_only() {
    let state = tempfile::tempdir().unwrap();
    let snapshots = open(state.path(), 1 << 20);
    let (acme, other) = (origin_of("acme", &["numpy"]), origin_of("other", &["numpy"]));
    write(&snapshots, &acme, Duration::ZERO, b"whatever it likes").unwrap();
    assert!(snapshots.find(&other).is_none());
    // Nor under the other one's name.
    fs::copy(snapshots.path(&acme), snapshots.path(&other)).unwrap();
    assert!(snapshots.find(&other).is_none());
    assert!(snapshots.find(&acme).is_some());
}

#[test]
fn a_snapshot_in_which_any_byte_was_changed_is_refused_and_removed() {
    let state = tempfile::tempdir().unwrap();
    let snapshots = open(state.path(), 1 << 20);
    let origin = origin(&[]);
    let length = write(&snapshots, &origin, Duration::ZERO, &[7; 100]).unwrap();
    let path = snapshots.path(&origin);
    let good = fs::read(&path).unwrap();
    assert_eq!(good.len() as u64, length);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, bad).unwrap();
        assert!(snapshots.find(&origin).is_none(), "byte {at}");
        assert!(!path.exists(), "byte {at}");
    }
    for end in [0, 31, 39, good.len() - 1] {
        fs::write(&path, &good[..end]).unwrap();
        assert!(snapshots.find(&origin).is_none(), "{end} bytes");
    }
    fs::write(&path, &good).unwrap();
    assert!(snapshots.find(&origin).is_some());
    // What another worker's key has signed is as good as damaged.
    fs::remove_file(state.path().join("snapshots/key")).unwrap();
    let other = open(state.path(), 1 << 20);
    assert!(other.find(&origin).is_none());
}

#[test]
fn a_snapshot_with_anothers_name_or_a_too_old_machine_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let snapshots = open(state.path(), 1 << 20);
    let (one, other) = (origin(&["one"]), origin(&["other"]));
    write(&snapshots, &one, Duration::ZERO, b"one").unwrap();
    fs::rename(snapshots.path(&one), snapshots.path(&other)).unwrap();
    assert!(snapshots.find(&other).is_none());
    // The machine's age and not the file's.
    write(&snapshots, &one, HOUR / 2, b"one").unwrap();
    assert!(snapshots.find(&one).unwrap().age >= HOUR / 2);
    let impatient = Snapshots::open(state.path(), 1 << 20, HOUR / 4).unwrap();
    assert!(impatient.find(&one).is_none());
    assert_eq!(names(state.path()), 0);
}

#[test]
fn the_least_recently_used_go_when_all_together_have_too_many_bytes() {
    let state = tempfile::tempdir().unwrap();
    let origins = ["a", "b", "c"].map(|name| origin(&[name]));
    let snapshots = open(state.path(), 1 << 20);
    let length = write(&snapshots, &origins[0], Duration::ZERO, &[1; 1000]).unwrap();
    drop(snapshots);
    let snapshots = open(state.path(), 2 * length + 10);
    write(&snapshots, &origins[1], Duration::ZERO, &[1; 1000]).unwrap();
    assert!(snapshots.find(&origins[0]).is_some());
    write(&snapshots, &origins[2], Duration::ZERO, &[1; 1000]).unwrap();
    let there = origins.each_ref().map(|origin| snapshots.path(origin).exists());
    assert_eq!(there, [true, false, true]);
    // One that is too large by itself is not written at all, and one that is given up leaves
    // nothing.
    assert!(write(&snapshots, &origins[1], Duration::ZERO, &[1; 5000]).is_err());
    drop(snapshots.begin(origins[1].clone(), Duration::ZERO, Imports::default()).unwrap());
    assert_eq!(names(state.path()), 2);
    // Nor does a worker that was killed meanwhile.
    fs::write(state.path().join("snapshots/abc.0.new"), "half").unwrap();
    drop(Snapshots::open(state.path(), length, HOUR).unwrap());
    assert_eq!(names(state.path()), 1);
}
