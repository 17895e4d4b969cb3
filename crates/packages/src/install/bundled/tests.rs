//! Small distributions, made by hand.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::examine::hash_of;
use super::*;

/// A bundle in the making.
struct Bundle(TempDir);

impl Bundle {
    fn new() -> Self {
        let bundle = Self(tempfile::tempdir().unwrap());
        bundle.write("app.py", "import six\n");
        bundle
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.0.path().join(path)).unwrap();
    }

    /// Adds a distribution with these files. One that is not there yet gets its own path as its content.
    fn add(&self, name: &str, files: &[&str]) {
        self.add_with(name, files, "");
    }

    fn add_with(&self, name: &str, files: &[&str], more: &str) {
        let info = format!("{name}-1.dist-info");
        self.write(&format!("{info}/METADATA"), &format!("Name: {name}\nVersion: 1\n"));
        self.write(&format!("{info}/WHEEL"), "Wheel-Version: 1.0\n");
        let there = |file: &&&str| !self.0.path().join(file).exists();
        files.iter().filter(there).for_each(|file| self.write(file, file));
        let mut record = String::new();
        let listed = [format!("{info}/METADATA"), format!("{info}/WHEEL")];
        for file in files.iter().copied().chain(listed.iter().map(|file| &**file)) {
            let hashed = hash_of(&fs::read(self.0.path().join(file)).unwrap());
            record += &format!("{file},{},{}\n", hashed.hash, hashed.size);
        }
        self.write(&format!("{info}/RECORD"), &format!("{record}{info}/RECORD,,\n{more}"));
    }

    fn recognised(&self) -> Brought {
        recognise(self.0.path(), "app").unwrap()
    }

    /// Names of what moves.
    fn moving(&self) -> Vec<String> {
        self.recognised().distributions.into_iter().map(|one| one.name).collect()
    }

    /// Why the only one that stays does.
    fn reason(&self) -> Reason {
        let mut refused = self.recognised().refused;
        assert_eq!(refused.len(), 1, "{refused:?}");
        refused.remove(0).1
    }
}

fn missing(path: &str) -> Reason {
    Reason::Missing(path.to_owned())
}

fn shared(path: &str) -> Reason {
    Reason::Shared(path.to_owned())
}

#[test]
fn a_distribution_whose_files_are_what_its_record_says_moves_with_all_of_them() {
    let bundle = Bundle::new();
    bundle.add("six", &["six.py", "six.libs/x.so"]);
    for receipt in ["INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD.jws"] {
        bundle.write(&format!("six-1.dist-info/{receipt}"), "whatever");
    }
    bundle.write("__pycache__/six.cpython-311.pyc", "");
    let brought = bundle.recognised();
    assert_eq!(brought.refused, []);
    let leaving: Vec<_> = brought.leaving().into_iter().collect();
    let expected = [
        "six-1.dist-info/INSTALLER",
        "six-1.dist-info/METADATA",
        "six-1.dist-info/RECORD",
        "six-1.dist-info/RECORD.jws",
        "six-1.dist-info/REQUESTED",
        "six-1.dist-info/WHEEL",
        "six-1.dist-info/direct_url.json",
        "six-1.dist-info/uv_cache.json",
        "six.libs/x.so",
        "six.py",
    ];
    assert_eq!(leaving, expected);
}

#[test]
fn commands_are_made_from_entry_points_and_those_in_the_bundle_stay() {
    let bundle = Bundle::new();
    let points = "six-1.dist-info/entry_points.txt";
    bundle.write("bin/six", "#!/home/me/python\n");
    bundle.write(points, "[console_scripts]\nsix = six:main\n");
    bundle.add_with("six", &["six.py", points], "../../bin/six,sha256=x,1\n");
    let brought = bundle.recognised();
    assert_eq!(brought.distributions[0].commands[0].0, "six");
    assert!(!brought.leaving().contains("bin/six"));
    bundle.add_with("six", &["six.py", points], "bin/other,sha256=x,1\n");
    assert_eq!(bundle.reason(), Reason::Command("other".to_owned()), "a script of another kind");
}

#[test]
fn a_file_that_was_changed_stripped_or_lost_keeps_its_distribution_code() {
    let bundle = Bundle::new();
    bundle.add("six", &["six.py", "_six.so"]);
    bundle.add("other", &["other.py"]);
    bundle.write("_six.so", "_six");
    assert_eq!(bundle.reason(), Reason::Differs("_six.so".to_owned()), "stripped");
    bundle.write("_six.so", "_SIX.so");
    assert_eq!(bundle.reason(), Reason::Differs("_six.so".to_owned()), "of the same size");
    bundle.remove("_six.so");
    assert_eq!(bundle.reason(), missing("_six.so"));
    assert_eq!(bundle.moving(), ["other"]);
}

#[test]
fn a_size_that_is_not_the_files_is_no_match() {
    let bundle = Bundle::new();
    bundle.add("six", &["six.py"]);
    let record = bundle.0.path().join("six-1.dist-info/RECORD");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace(",6\n", ",06\n")).unwrap();
    assert_eq!(bundle.reason(), Reason::Differs("six.py".to_owned()));
    fs::write(&record, text.replace(",6\n", ",\n")).unwrap();
    assert_eq!(bundle.moving(), ["six"], "a row need not have one");
}

#[test]
fn a_link_is_no_file_of_a_distribution_wherever_it_leads() {
    let bundle = Bundle::new();
    bundle.add("six", &["six.py", "lib/x.py"]);
    let place = |path: &str| bundle.0.path().join(path);
    fs::rename(place("six.py"), place("real.py")).unwrap();
    symlink("real.py", place("six.py")).unwrap();
    assert_eq!(bundle.reason(), missing("six.py"));
    fs::rename(place("real.py"), place("six.py")).unwrap();
    fs::rename(place("lib"), place("real")).unwrap();
    symlink("real", place("lib")).unwrap();
    assert_eq!(bundle.reason(), missing("lib/x.py"));
}

#[test]
fn a_record_that_lists_what_is_outside_keeps_its_distribution_code() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x.py"), "x").unwrap();
    for bad in [
        format!("{}/x.py", outside.path().display()),
        "../x.py".to_owned(),
        "six/../../x.py".to_owned(),
        "six-1.data/data/share/x".to_owned(),
        "../../share/x".to_owned(),
    ] {
        let bundle = Bundle::new();
        bundle.write("six-1.data/data/share/x", "x");
        bundle.add_with("six", &["six.py"], &format!("{bad},{},1\n", hash_of(b"x").hash));
        assert_eq!(bundle.reason(), Reason::Outside(bad));
    }
}

#[test]
fn an_incomplete_dist_info_keeps_its_distribution_code() {
    for file in ["RECORD", "METADATA", "WHEEL"] {
        let bundle = Bundle::new();
        bundle.add("six", &["six.py"]);
        bundle.remove(&format!("six-1.dist-info/{file}"));
        assert_eq!(bundle.reason(), Reason::Lacks(file));
    }
    let bundle = Bundle::new();
    bundle.write("six-1.dist-info/METADATA", "");
    bundle.add("six", &["six.py"]);
    bundle.write("six-1.dist-info/METADATA", "Name: ../six\nVersion: 1\n");
    let hashed = hash_of(b"Name: ../six\nVersion: 1\n");
    let row = |path: &str| format!("six-1.dist-info/{path},{},{}\n", hashed.hash, hashed.size);
    bundle.write("six-1.dist-info/RECORD", &row("METADATA"));
    assert!(matches!(bundle.reason(), Reason::Metadata(_)), "a name that is no directory's");
}

#[test]
fn a_huge_record_is_not_read_and_rows_are_bounded_together() {
    let bundle = Bundle::new();
    bundle.add("six", &["six.py"]);
    let record = fs::File::options();
    let path = bundle.0.path().join("six-1.dist-info/RECORD");
    record.clone().write(true).open(&path).unwrap().set_len(64 << 30).unwrap();
    assert_eq!(bundle.reason(), Reason::TooLong { file: "RECORD", most: record::MAX_RECORD });
    let rows = |name: &str| {
        let half = record::MAX_ROWS / 2;
        (0..half).map(|n| format!("{name}/__pycache__/{n}.pyc,,\n")).collect::<String>()
    };
    bundle.add_with("a", &["a.py"], &rows("a"));
    bundle.add_with("b", &["b.py"], &rows("b"));
    bundle.add("six", &["six.py"]);
    let refused = bundle.recognised().refused;
    assert_eq!(refused, [("b-1.dist-info".to_owned(), Reason::TooManyRows(record::MAX_ROWS))]);
    assert_eq!(bundle.moving(), ["a", "six"]);
}

#[test]
fn too_many_distributions_all_stay() {
    let bundle = Bundle::new();
    for number in 0..=MAX_DISTRIBUTIONS {
        bundle.write(&format!("p{number}-1.dist-info/RECORD"), "");
    }
    let brought = bundle.recognised();
    assert!(brought.distributions.is_empty());
    assert!(
        brought.refused.iter().all(|(_, reason)| *reason == Reason::TooMany(MAX_DISTRIBUTIONS))
    );
    assert_eq!(brought.refused.len(), MAX_DISTRIBUTIONS + 1);
}

#[test]
fn a_namespace_package_moves_when_all_of_it_is_recognised() {
    let bundle = Bundle::new();
    bundle.add("google-auth", &["google/auth/__init__.py"]);
    bundle.add("google-cloud", &["google/cloud/__init__.py"]);
    bundle.add("six", &["six.py"]);
    assert_eq!(bundle.moving(), ["google-auth", "google-cloud", "six"]);
    bundle.write("google/own.py", "");
    let brought = bundle.recognised();
    assert_eq!(brought.distributions.len(), 1, "the function has a part of its own");
    assert!(brought.refused.iter().all(|(_, reason)| *reason == shared("google/own.py")));
    bundle.remove("google/own.py");
    bundle.write("google/cloud/__init__.py", "changed");
    assert_eq!(bundle.moving(), ["six"], "one of them was changed");
}

#[test]
fn what_stays_takes_with_it_what_shares_any_name_of_its_own() {
    let bundle = Bundle::new();
    bundle.add("a", &["a.py", "ab/a.py"]);
    bundle.add("b", &["ab/b.py", "bc/b.py"]);
    bundle.add("c", &["bc/c.py", "c.py"]);
    bundle.add("d", &["d.py"]);
    assert_eq!(bundle.moving(), ["a", "b", "c", "d"]);
    bundle.write("c.py", "changed");
    assert_eq!(bundle.moving(), ["d"]);
}

#[test]
fn distributions_that_list_one_file_stay() {
    let bundle = Bundle::new();
    bundle.add("a", &["ns/__init__.py", "ns/a.py"]);
    bundle.add("b", &["ns/__init__.py", "b.py"]);
    bundle.add("c", &["c.py"]);
    let brought = bundle.recognised();
    let claimed =
        Reason::Claimed { path: "ns/__init__.py".to_owned(), other: "a-1.dist-info".to_owned() };
    let expected = [("a-1.dist-info", shared("ns/__init__.py")), ("b-1.dist-info", claimed)];
    assert_eq!(brought.refused, expected.map(|(info, reason)| (info.to_owned(), reason)));
    assert_eq!(bundle.moving(), ["c"]);
}

#[test]
fn many_distributions_that_list_all_files_take_none_of_them() {
    let bundle = Bundle::new();
    let files: Vec<String> = (0..100).map(|n| format!("p/m{n}.py")).collect();
    let files: Vec<&str> = files.iter().map(|file| &**file).collect();
    (0..MAX_DISTRIBUTIONS).for_each(|n| bundle.add(&format!("d{n:03}"), &files));
    let brought = bundle.recognised();
    assert_eq!((brought.distributions.len(), brought.refused.len()), (0, MAX_DISTRIBUTIONS));
}

#[test]
fn a_long_chain_of_shared_names_is_followed_once() {
    let bundle = Bundle::new();
    for n in 0..MAX_DISTRIBUTIONS {
        bundle
            .add(&format!("d{n:03}"), &[&format!("t{n}/x{n}.py"), &format!("t{}/y{n}.py", n + 1)]);
    }
    assert_eq!(bundle.moving().len(), MAX_DISTRIBUTIONS);
    bundle.write("t0/own.py", "");
    assert_eq!(bundle.moving(), [""; 0]);
}

#[test]
fn entry_points_make_so_many_commands_and_no_more() {
    let points = |from: usize, count: usize| {
        let lines: String = (from..from + count).map(|n| format!("c{n} = p:f\n")).collect();
        format!("[console_scripts]\n{lines}")
    };
    let bundle = Bundle::new();
    for (name, count) in [("a", 600), ("b", 400), ("c", 1)] {
        let file = format!("{name}-1.dist-info/entry_points.txt");
        bundle.write(&file, &points(0, count));
        bundle.add(name, &[&format!("{name}.py"), &file]);
    }
    assert_eq!(bundle.reason(), Reason::TooManyCommands(commands::MAX_COMMANDS));
    assert_eq!(bundle.moving(), ["a", "b"]);
}

#[test]
fn names_that_are_needed_while_a_wheel_is_made_are_no_files_of_one() {
    for bad in [
        "bin",
        "six.py.rewritten",
        "other-1.dist-info/METADATA",
        "six-1.dist-info/RECORD/x",
        "six-1.dist-info/INSTALLER/x",
    ] {
        let bundle = Bundle::new();
        bundle.add_with("six", &["six.py"], &format!("{bad},{},1\n", hash_of(b"x").hash));
        assert_eq!(bundle.reason(), Reason::Outside(bad.to_owned()), "{bad}");
    }
    let bundle = Bundle::new();
    bundle.write(".dist-info/RECORD", "");
    bundle.add(&"n".repeat(200), &["n.py"]);
    assert_eq!(bundle.moving(), [""; 0]);
    assert!(matches!(bundle.reason(), Reason::Metadata(_)));
}

#[test]
fn a_file_whose_name_is_no_text_is_no_file_of_a_row() {
    use std::os::unix::ffi::OsStrExt as _;
    let bundle = Bundle::new();
    let name = std::ffi::OsStr::from_bytes(b"six/\xff.py");
    bundle.add("six", &["six/\u{fffd}.py"]);
    bundle.remove("six/\u{fffd}.py");
    fs::write(bundle.0.path().join(name), "six/\u{fffd}.py").unwrap();
    assert_eq!(bundle.reason(), missing("six/\u{fffd}.py"));
}

#[test]
fn a_module_of_the_functions_own_keeps_packages_of_its_name_beside_it() {
    for own in ["six.py", "six.cpython-311-x86_64-linux-gnu.so", "six/extra.py"] {
        let bundle = Bundle::new();
        bundle.add("six", &["six/__init__.py"]);
        bundle.write(own, "");
        assert_eq!(bundle.reason(), shared(own), "which of both is imported is Python's choice");
    }
}

#[test]
fn the_distribution_that_has_the_handler_is_the_function() {
    let bundle = Bundle::new();
    bundle.add("app", &["app.py"]);
    bundle.add("six", &["six.py"]);
    assert_eq!(bundle.reason(), Reason::Handler("app".to_owned()));
    assert_eq!(bundle.moving(), ["six"]);
}

#[test]
fn two_distributions_of_one_name_both_stay() {
    let bundle = Bundle::new();
    bundle.add("six", &["six.py"]);
    bundle.add("Six", &["six2.py"]);
    let brought = bundle.recognised();
    assert_eq!(brought.distributions, []);
    assert_eq!(brought.refused[0].1, Reason::SameName("six-1.dist-info".to_owned()));
}
