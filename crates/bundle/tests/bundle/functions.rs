//! Bundles, manifests and code layers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bundle::code::{Bundle, CodeError};
use bundle::manifest::{self, Manifest, ManifestError, Overrides, Settings};
use layers::python;
use packages::sources::Sources;
use sandbox::Kind;
use sandbox::wire::Convention;

use crate::machine::{BASE, STORE, holds, tag};

fn of_source(source: &str) -> Result<Manifest, ManifestError> {
    let bundle = Bundle::from_py(&STORE, "function", source.as_bytes()).unwrap();
    manifest::inspect(bundle.path(), &BASE.command(&STORE)).map(|found| found.manifest)
}

fn of_folder(files: &[(&str, &str)]) -> Result<Manifest, ManifestError> {
    let folder = folder(files);
    let bundle = Bundle::from_path(&STORE, folder.path()).unwrap();
    manifest::inspect(bundle.path(), &BASE.command(&STORE)).map(|found| found.manifest)
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn a_single_file_with_a_header_says_everything() {
    let manifest = of_source(
        "# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\"pandas==2.2.3\", \"Pillow\"]\n\
         # [tool.lambswool]\n# memory = \"256MB\"\n# timeout = \"5s\"\n# environment = { MODE = \"fast\" }\n# ///\n\
         import pandas\n\ndef handler(event, context):\n    return event\n",
    )
    .unwrap();
    assert_eq!((manifest.module.as_str(), manifest.function.as_str()), ("function", "handler"));
    assert_eq!(manifest.convention, Convention::Lambda);
    assert_eq!(manifest.requirements, ["pandas==2.2.3", "Pillow"]);
    assert_eq!(manifest.requires_python.as_deref(), Some(">=3.11"));
    assert_eq!(
        (manifest.limits.memory_bytes, manifest.timeout),
        (256 << 20, Duration::from_secs(5))
    );
    assert_eq!(manifest.environment["MODE"], "fast");
}

#[test]
fn nothing_of_a_function_is_run_to_inspect_it() {
    let marker = tempfile::tempdir().unwrap();
    let path = marker.path().join("ran");
    let manifest =
        of_source(&format!("open({path:?}, 'w')\ndef f(event):\n    return 1\n")).unwrap();
    assert_eq!((manifest.function.as_str(), manifest.convention), ("f", Convention::OpenLambda));
    assert!(!path.exists());
}

#[test]
fn functions_are_found_however_they_are_defined() {
    let function = |source: &str| of_source(source).map(|m| (m.function, m.convention)).unwrap();
    assert_eq!(function("async def handler(event, context): pass").0, "handler");
    assert_eq!(function("def handler(event): pass").1, Convention::OpenLambda);
    assert_eq!(function("handler = lambda event: 1").1, Convention::OpenLambda);
    assert_eq!(function("handler = lambda event, context: 1").1, Convention::Lambda);
    assert_eq!(function("from app import lambda_handler\n").0, "lambda_handler");
    assert_eq!(
        function("try:\n  import x\nexcept ImportError:\n  pass\nelse:\n  handler = x.make()\n").0,
        "handler"
    );
    assert_eq!(
        function("if True:\n  def f(event, context=None): pass\n"),
        ("f".to_owned(), Convention::Lambda)
    );
}

#[test]
fn what_is_wrong_is_told_with_file_and_line() {
    let error = |source: &str| of_source(source).unwrap_err().to_string();
    assert_eq!(
        error("def handler(event, context):\n    return (1\n"),
        "function.py:2: SyntaxError: '(' was never closed\n        return (1"
    );
    assert!(
        error("def main(): pass\n")
            .contains("looked for handler, lambda_handler, f; it defines main\n")
    );
    assert!(error("x = 1\n").contains("it defines no function\n"));
    assert!(error("\ndef handler(): pass\n").contains("function.py:2: handler takes no argument"));
    assert!(error("def f(a, b, c): pass\n").contains("takes 3 arguments"));
    assert!(
        error("# /// script\n# [tool.lambswool]\n# memroy = 1\n# ///\n")
            .contains("did you mean \"memory\"")
    );
    assert!(
        error("# /// script\n# dependencies = \n# ///\n")
            .starts_with("function.py: TOML parse error")
    );
    let below = error("import os\n\n# /// script\n# x = 1\n# dependencies = \n# ///\n");
    assert_eq!(
        below.lines().take(4).collect::<Vec<_>>(),
        [
            "function.py: TOML parse error at line 5, column 16",
            "  |",
            "5 | dependencies = ",
            "  |                ^"
        ]
    );
    let far = "\n".repeat(4_000_000) + "# /// script\n# x =\n# ///\n";
    let far = error(&far);
    assert!(far.contains("at line 4000002, column 4\n") && far.contains("| x =\n"), "{far}");
    let wrong = format!("# /// script\n# x = [{}\n# ///\n", "1,".repeat(10_000));
    let told = error(&wrong);
    assert!(told.starts_with("function.py: TOML parse error at line 2, ") && told.len() < 2000);
    let long = format!("# /// script\n# x = [{}]\n# ///\n", "1,".repeat(200_000));
    assert!(error(&long).starts_with("function.py holds more than 256 KiB of TOML"));
    assert!(error("x = '\0'").contains("function.py"));
}

#[test]
fn blank_lines_count_among_the_toml_that_is_parsed() {
    let handler = ("main.py", "def handler(event, context): pass\n");
    let blank = "\n".repeat(4 << 20);
    let error = |file| of_folder(&[handler, (file, &blank)]).unwrap_err();
    assert!(matches!(error("pyproject.toml"), ManifestError::LongTable { .. }));
    assert!(matches!(error("Pipfile"), ManifestError::LongTable { .. }));
    assert!(matches!(error("pylock.toml"), ManifestError::Elsewhere { .. }));
    let header = format!("# /// script\n{}# ///\n", "#\n".repeat(300 << 10));
    assert!(matches!(of_source(&header).unwrap_err(), ManifestError::LongTable { .. }));
}

#[test]
fn a_folder_tells_its_entry_and_its_dependencies() {
    let handler = "def handler(event, context): pass\n";
    let manifest =
        of_folder(&[("main.py", handler), ("helper.py", ""), ("requirements.txt", "six\n")])
            .unwrap();
    assert_eq!((manifest.module.as_str(), manifest.requirements), ("main", vec!["six".to_owned()]));
    let project = "[project]\nname = \"x\"\nrequires-python = \">=3.11\"\ndependencies = [\"attrs>=20\"]\n\
                   [tool.lambswool]\nhandler = \"web.api.run\"\nbinary = true\n";
    let manifest = of_folder(&[
        ("web/api.py", "def run(event): pass\n"),
        ("web/__init__.py", ""),
        ("pyproject.toml", project),
    ])
    .unwrap();
    assert_eq!(
        (manifest.module.as_str(), manifest.function.as_str(), manifest.binary),
        ("web.api", "run", true)
    );
    assert_eq!(
        (manifest.requirements, manifest.convention),
        (vec!["attrs>=20".to_owned()], Convention::OpenLambda)
    );
    let error = of_folder(&[("a.py", handler), ("b.py", handler)]).unwrap_err();
    assert!(matches!(error, ManifestError::NoEntry { .. }), "{error}");
}

#[test]
fn a_function_says_in_its_files_where_its_packages_come_from() {
    let project = "constraint-dependencies = [\"six<1.17\"]\n\
                   [[index]]\nname = \"corp\"\nurl = \"https://corp.example/simple\"\nexplicit = true\n\
                   [sources]\nsix = { index = \"corp\" }\n";
    let in_tool = project.replace("[[index]]", "[[tool.uv.index]]");
    let in_tool = format!("[tool.uv]\n{}", in_tool.replace("[sources]", "[tool.uv.sources]"));
    let bundle = folder(&[
        ("main.py", "def handler(event, context): pass\n"),
        ("pyproject.toml", &in_tool),
        ("requirements.txt", "six\n-c limits.txt\n"),
        ("limits.txt", "six<1.16\n"),
    ]);
    let mut expected = Sources::read(&project.parse().unwrap(), "pyproject.toml").unwrap();
    expected.constrain(vec!["six<1.16".to_owned()]);
    let settings = Settings::read(bundle.path(), Overrides::default()).unwrap();
    assert_eq!(*settings.sources(), expected);
}

#[test]
fn what_a_function_says_in_vain_is_told() {
    let warnings = |files: &[(&str, &str)]| {
        let bundle = folder(files);
        Settings::read(bundle.path(), Overrides::default()).unwrap().warnings().join("\n")
    };
    let handler = ("main.py", "def handler(event, context): pass\n");
    let project = ("pyproject.toml", "[project]\nname = \"x\"\ndependencies = [\"six\"]\n");
    for (lock, export) in
        [("uv.lock", "uv export"), ("poetry.lock", "poetry export"), ("pdm.lock", "pdm export")]
    {
        let told = warnings(&[handler, project, (lock, "")]);
        assert!(told.contains(lock) && told.contains(export), "{told}");
        assert_eq!(warnings(&[handler, project, (lock, ""), ("requirements.txt", "six")]), "");
    }
    for file in ["setup.py", "environment.yml", "environment.yaml", "requirements.in"] {
        let told = warnings(&[handler, (file, "")]);
        assert!(told.starts_with(file) && told.contains("requirements.txt"), "{told}");
        assert_eq!(warnings(&[handler, (file, ""), ("requirements.txt", "six")]), "");
    }
    let script =
        ("main.py", "# /// script\n# dependencies = [\"six\"]\n# ///\ndef f(event): pass\n");
    assert!(warnings(&[script, ("main.py.lock", "")]).contains("into the header"));
    let set =
        "# /// script\n# [tool.lambswool]\n# environment = { PYTHONHASHSEED = 0, A = 1 }\n# ///\n";
    let told = warnings(&[("main.py", set)]);
    assert!(told.contains("PYTHONHASHSEED has no effect") && !told.contains('\n'), "{told}");
    assert_eq!(warnings(&[handler, project]), "");
}

#[test]
fn dependencies_that_only_another_tool_reads_are_not_passed_over() {
    let handler = ("main.py", "def handler(event, context): pass\n");
    let dynamic = "[project]\nname = \"x\"\ndynamic = [\"version\", \"dependencies\"]\n";
    let poetry = "[tool.poetry.dependencies]\npython = \"^3.11\"\nsix = \"^1.16\"\n";
    let pipfile = "[packages]\nsix = \"*\"\n";
    let cases = [
        ("pyproject.toml", dynamic, "under `dependencies`"),
        ("pyproject.toml", poetry, "poetry export"),
        ("Pipfile", pipfile, "pipenv requirements"),
    ];
    for (file, text, instead) in cases {
        let error = of_folder(&[handler, (file, text)]).unwrap_err().to_string();
        assert!(error.starts_with(file) && error.contains(instead), "{error}");
        let listed = [handler, (file, text), ("requirements.txt", "six==1.17.0\n")];
        assert_eq!(of_folder(&listed).unwrap().requirements, ["six==1.17.0"]);
    }
    let hash = "a".repeat(64);
    let pylock = format!(
        "lock-version = \"1.0\"\n[[packages]]\nname = \"six\"\nversion = \"1.16.0\"\nwheels = [{{ hashes = {{ sha256 = \"{hash}\" }} }}]\n"
    );
    let project = ("pyproject.toml", "[project]\nname = \"x\"\ndependencies = [\"six\"]\n");
    let locked = of_folder(&[handler, project, ("pylock.toml", &pylock)]).unwrap();
    assert_eq!(locked.requirements, [format!("six==1.16.0 --hash=sha256:{hash}")]);
    // The same lines in a requirements file are resolved: nothing says that they are all.
    let lines = locked.requirements[0].as_str();
    for (file, text, is_locked) in
        [("pylock.toml", pylock.as_str(), true), ("requirements.txt", lines, false)]
    {
        let settings =
            Settings::read(folder(&[handler, (file, text)]).path(), Overrides::default());
        assert_eq!(settings.unwrap().is_locked(), is_locked, "{file}");
    }
    // However it is too long, the same command is advised as for its lock.
    let warned = folder(&[handler, project, ("uv.lock", "")]);
    let warned = Settings::read(warned.path(), Overrides::default()).unwrap().warnings().join("\n");
    let export = warned.split('`').nth(1).unwrap();
    assert!(export.contains("--no-emit-project"), "{export}");
    for long in [format!("x = [{}]", "1,".repeat(200_000)), "x".repeat(5 << 20)] {
        let error = of_folder(&[handler, ("pylock.toml", &long)]).unwrap_err().to_string();
        assert!(error.contains(&format!("`{export}`")), "{error}");
    }
    let nothing = "[project]\nname = \"x\"\ndynamic = [\"version\"]\n[tool.poetry.dependencies]\npython = \"^3.11\"\n";
    let none = [
        handler,
        ("pyproject.toml", nothing),
        ("Pipfile", "[packages]\n[dev-packages]\nsix = \"*\"\n"),
    ];
    assert!(of_folder(&none).unwrap().requirements.is_empty());
}

#[test]
fn settings_in_two_places_are_refused_unless_they_say_the_same() {
    let read = |header: &str, project: &str| {
        let source =
            format!("# /// script\n# dependencies = []\n{header}# ///\ndef f(event): pass\n");
        let project = format!("[project]\nname = \"x\"\n{project}");
        of_folder(&[("main.py", source.as_str()), ("pyproject.toml", project.as_str())])
    };
    let machine = "[tool.lambswool]\nisolation = \"microvm\"\ntimeout = \"5s\"\n";
    let error = read("# [tool.lambswool]\n# memory = \"64MB\"\n", machine).unwrap_err();
    assert!(matches!(error, ManifestError::TwoPlaces { .. }), "{error}");
    let error = error.to_string();
    for said in ["main.py", "pyproject.toml", "keep one of the two"] {
        assert!(error.contains(said), "{error}");
    }
    // In any order.
    let same = "# [tool.lambswool]\n# timeout = \"5s\"\n# isolation = \"microvm\"\n";
    let empty = "[tool.lambswool]\n";
    for (header, project) in [
        (same, machine),
        (same, empty),
        (same, ""),
        ("# [tool.lambswool]\n", machine),
        ("", machine),
        // What is another tool's is not concerned.
        ("# [tool.uv]\n# prerelease = \"allow\"\n", machine),
    ] {
        let manifest = read(header, project).unwrap();
        let chosen = (manifest.kind, manifest.timeout);
        assert_eq!(chosen, (Kind::Microvm, Duration::from_secs(5)), "{header}{project}");
    }
}

#[test]
fn the_python_that_a_function_needs_is_known_before_one_is_chosen() {
    let of = |header: &str| {
        let bundle =
            Bundle::from_py(&STORE, "x", format!("# /// script\n{header}# ///\n").as_bytes())
                .unwrap();
        Settings::read(bundle.path(), Overrides::default()).unwrap().python()
    };
    let request = of("# requires-python = \">=3.12\"\n").unwrap();
    assert!(request.accepts("3.12.1") && !request.accepts("3.11.7"));
    let error =
        python::find(&of("# requires-python = \">=3.99\"\n").unwrap()).unwrap_err().to_string();
    assert!(error.contains(">=3.99"), "{error}");
    assert!(of("# [tool.lambswool]\n# python = \"2.7\"\n").is_err());
    // Not a path, and no advice to write one.
    let error = of("# [tool.lambswool]\n# python = \"/bin/sh\"\n").unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("/bin/sh") && why.contains("names a version"), "{why}");
    assert!(!why.contains("/usr/bin") && !error.to_string().contains(&why), "{error}: {why}");
    let marked = tempfile::tempdir().unwrap();
    let source =
        "\u{feff}# /// script\n# requires-python = \">=3.12\"\n# ///\ndef handler(e, c): pass\n";
    std::fs::write(marked.path().join("main.py"), source).unwrap();
    let request = Settings::read(marked.path(), Overrides::default()).unwrap().python().unwrap();
    assert!(request.accepts("3.12.0") && !request.accepts("3.11.0"));
}

#[test]
fn equal_code_has_one_layer_and_tells_the_sandboxes_paths() {
    let source = "def handler(event, context):\n    return 1\n";
    let layer = |bundle: Bundle| bundle.seal(&STORE, &BASE).unwrap();
    let single = layer(Bundle::from_py(&STORE, "main", source.as_bytes()).unwrap());
    let folder = folder(&[
        ("main.py", source),
        ("__pycache__/junk.pyc", "x"),
        (".git/HEAD", "x"),
        ("v/pyvenv.cfg", ""),
    ]);
    assert_eq!(layer(Bundle::from_dir(&STORE, folder.path()).unwrap()), single);
    let archive = folder.path().join("bundle.tar.gz");
    let packed = std::process::Command::new("tar")
        .arg("-C")
        .arg(folder.path())
        .arg("-czf")
        .arg(&archive)
        .arg("main.py")
        .status();
    assert!(packed.unwrap().success());
    assert_eq!(layer(Bundle::from_path(&STORE, &archive).unwrap()), single);
    assert_ne!(
        layer(
            Bundle::from_py(&STORE, "main", &b"def handler(event, context): pass\n"[..]).unwrap()
        ),
        single
    );

    let compiled = STORE.layer_path(&single).join(format!("__pycache__/main.{}.pyc", tag()));
    assert!(holds(&compiled, "/var/task/main.py"));
}

#[test]
fn a_bundle_that_is_refused_or_dropped_leaves_nothing() {
    let incoming = || {
        let own = format!("incoming-{}-", std::process::id());
        let names = fs::read_dir(STORE.layers().join("code")).unwrap();
        names.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains(&own)).count()
    };
    let folder = folder(&[("main.py", "")]);
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
    let error = Bundle::from_dir(&STORE, folder.path()).unwrap_err();
    assert!(matches!(&error, CodeError::Link { entry } if entry == "link"), "{error}");
    let bundle = Bundle::from_py(&STORE, "x", &b"x = 1"[..]).unwrap();
    let path = bundle.path().to_owned();
    assert!(path.exists() && incoming() > 0);
    drop(bundle);
    assert!(!path.exists());
    assert!(matches!(
        Bundle::from_path(&STORE, Path::new("/etc/hostname")),
        Err(CodeError::UnknownKind { .. })
    ));
    assert!(
        Bundle::from_path(&STORE, Path::new("/nowhere/x.py"))
            .unwrap_err()
            .to_string()
            .contains("/nowhere/x.py")
    );
}
