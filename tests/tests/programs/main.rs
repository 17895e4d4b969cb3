//! Programs that people run, each after a public report of one that misbehaved, in every way in which an instance is made.
//! Each is right under a plain Python; its first comment says what is right.

use e2e::{Everywhere, Site, Value, Way, can_run, eventually, json};

mod interpreter;

#[test]
fn a_plain_program_is_right_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("sums", &json!({"numbers": [1, 2, 3]}), &json!(6));
}

#[test]
fn a_machine_tells_of_its_own_processor_and_memory() {
    let Some(ways) = Everywhere::new() else { return };
    let expected = json!({
        "processors": 1, "counted": [1, 1, 1, 1], "lists": ["0", "0", "0"], "topology": "0", "model": true, "usual": [],
        "memory": true, "pages": true, "free": true, "less": true, "cgroup": [true, true],
        "share": ["max", "100000"], "place": "0::/\n", "mounted": true, "times": true, "load": 5, "limits": true,
    });
    ways.answers_in(&Way::MACHINES, "machine_size", &json!({"bytes": 64_000_000}), &expected);
}

#[test]
fn a_variable_set_by_name_is_what_a_package_finds_at_its_import() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("variables_by_name", &json!({}), &json!(["svg", "shop", "1"]));
}

#[test]
fn a_project_with_its_modules_in_src_finds_them() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("project_with_src", &json!({}), &json!(9));
    let site = ways.worker(Way::Fork).site();
    let folder = e2e::machine::manifest_dir().join("tests/programs/project_with_src");
    let said = site.wool(&["deploy", folder.to_str().unwrap(), "--name", "told"]);
    assert!(said.stderr.contains("PYTHONPATH = \"src\""), "{}", said.stderr);
}

#[test]
fn a_source_in_another_encoding_and_an_empty_folder_are_taken_as_they_are() {
    let Some(ways) = Everywhere::new() else { return };
    let own = ways.worker(Way::Fork).site().own().join("encoded");
    std::fs::create_dir_all(own.join("out/empty")).unwrap();
    let source = b"# -*- coding: latin-1 -*-\nimport os\ndef handler(event, context):\n    return ['caf\xe9', os.listdir('out')]\n";
    std::fs::write(own.join("main.py"), source).unwrap();
    let said = ways.worker(Way::Fork).site().wool(&["deploy", own.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let answer = ways.worker(Way::Fork).run("encoded", &json!({})).expect(200).json();
    assert_eq!(answer, json!(["caf\u{e9}", ["empty"]]));
}

#[test]
fn a_handler_that_yields_is_refused_at_its_deploy() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for program in ["", "async "] {
        let source = format!("{program}def handler(event, context):\n    yield 1\n");
        let refused = worker.deploy("yields", &source).expect(422).error();
        assert!(refused.contains("yields.py:2: handler is a generator"), "{refused}");
    }
}

#[test]
fn a_package_for_other_systems_is_refused_in_the_users_own_terms() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source = "# /// script\n# dependencies = [\"pywin32==311\"]\n# ///\ndef handler(event, context): ...\n";
    let refused = worker.deploy("windows", source);
    if refused.status == 503 {
        return e2e::machine::skip("network", "needs network for a package");
    }
    let error = refused.expect(422).error();
    assert!(error.contains("pywin32 has no wheel for Python 3."), "{error}");
    assert!(error.contains("no source to build one from") && !error.contains("--"), "{error}");
}

#[test]
fn who_the_program_is_and_where_its_home_is_is_the_same_everywhere() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("who", &json!({}), &json!([true, "/tmp", "/tmp", 1000, 1000]));
}

/// What differs in a machine, by docs/user/limits.md.
const IN_A_MACHINE: [&str; 5] =
    ["host", "kernel", "processors", "group and session", "descriptors"];
/// What Python finds that a function starts: other arguments, flags and streams are its starter's.
const IN_A_CHILD: [&str; 6] = ["argv", "flags", "interpreter", "descriptors", "path", "streams"];
/// The host's, in containers.
const LIMITS_OF_THE_HOST: [&str; 2] = ["RLIMIT_NPROC", "RLIMIT_MEMLOCK"];

#[test]
fn an_instance_looks_the_same_inside_however_it_was_made() {
    let Some(ways) = Everywhere::new() else { return };
    let mut seen: Vec<(String, Vec<&str>, Value)> = Vec::new();
    for (among, event) in [(&Way::ALL[..], json!({})), (&Way::CONTAINERS, json!({"child": true}))] {
        ways.try_in(among, "inside", &event, |way, call, reply| {
            assert_eq!(reply.status, 200, "{way:?}: {}", reply.text());
            let mut inside = reply.json();
            for name in LIMITS_OF_THE_HOST {
                inside["limits"][name] = Value::Null;
            }
            if let Some(variables) = inside["environment"].as_object_mut() {
                // As many as there are processors.
                variables.retain(|name, _| !name.ends_with("_NUM_THREADS"));
            }
            let mut differs = Vec::new();
            if Way::MACHINES.contains(&way) {
                differs.extend(IN_A_MACHINE);
            }
            if event["child"] == true {
                differs.extend(IN_A_CHILD);
            }
            seen.push((format!("{way:?}, call {call}, {event}"), differs, inside));
        });
    }
    let mut found = String::new();
    let Some(((first, _, expected), others)) = seen.split_first() else { return };
    for (name, expected) in expected.as_object().unwrap() {
        for (way, differs, other) in others {
            if &other[name] != expected && !differs.contains(&&**name) {
                found += &format!("{name}\n  {way}: {}\n  {first}: {expected}\n", other[name]);
            }
        }
    }
    assert!(found.is_empty(), "{found}");
}

/// As psutil looks for processes: by their numbers in `/proc`.
#[test]
fn a_machine_lists_its_process_by_its_number() {
    let Some(ways) = Everywhere::new() else { return };
    let expected = json!([true, true, [true, "0"], true, true]);
    ways.answers_in(&Way::MACHINES, "processes", &json!({}), &expected);
}

#[test]
fn what_a_program_wrote_before_it_died_in_native_code_is_in_its_log() {
    let Some(ways) = Everywhere::new() else { return };
    ways.try_in(&Way::ALL, "dies", &json!({}), |way, _, reply| {
        assert_eq!(reply.status, 502, "{way:?}: {}", reply.text());
        assert!(reply.error().contains("SIGSEGV"), "{way:?}: {}", reply.error());
        let name = format!("dies-{way:?}").to_lowercase();
        let is_there =
            || ways.worker(way).logs(&name).iter().any(|line| line["text"] == "what it had to say");
        eventually(&format!("{way:?} has its last words"), is_there);
    });
}

#[test]
fn a_program_finds_all_of_the_c_library() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("c_library", &json!({}), &json!({}));
    let name = |own: &str| json!([own, 443, 6, 443]);
    ways.answers_in(&Way::CONTAINERS, "names_of_a_host", &json!({}), &name("127.0.1.1"));
    ways.answers_in(&Way::MACHINES, "names_of_a_host", &json!({}), &name("127.0.1.2"));
}

#[test]
fn a_package_whose_compiled_code_needs_the_vector_library_works() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("sound", &json!({}), &json!([22050, 11025, 440, true]));
}

#[test]
fn a_container_has_its_streams_under_their_usual_names() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers_in(&Way::CONTAINERS, "streams_by_name", &json!({}), &json!({}));
}

/// What small operations answer otherwise in a machine: each is in SPECIFICATION, section 10, or in docs/user/limits.md.
const OTHERWISE: [&str; 7] = [
    "chown other",
    "copy_file_range",
    // A copy of a tree with a named pipe and a socket in it fails: in a machine there are none.
    "copytree",
    "mkfifo",
    "sock dgram",
    "unix",
    "xattr",
];

#[test]
fn small_operations_answer_alike_in_containers_and_machines() {
    let Some(ways) = Everywhere::new() else { return };
    let (mut expected, mut found) = (Value::Null, String::new());
    let among = [Way::Fork, Way::Clone, Way::Reset];
    ways.try_in(&among, "small_operations", &json!({}), |way, call, reply| {
        assert_eq!(reply.status, 200, "{way:?}: {}", reply.text());
        match (way, call) {
            (Way::Fork, 0) => expected = reply.json(),
            // A second call of the same process finds what the first has left: descriptors, handlers, its niceness.
            (Way::Fork | Way::Clone, 1..) => {}
            _ => {
                for (name, answer) in reply.json().as_object().unwrap() {
                    if &expected[name] != answer && !OTHERWISE.contains(&&**name) {
                        found += &format!(
                            "{name}, {way:?}: {answer}, in a container {}\n",
                            expected[name]
                        );
                    }
                }
            }
        }
    });
    assert!(found.is_empty(), "{found}");
}

#[test]
fn a_program_sees_its_own_processors_and_memory_in_a_container() {
    let Some(ways) = Everywhere::new() else { return };
    let (memory, lists) = (256 << 20, ["0\n", "0\n", "0\n"]);
    let missing = "No such file or directory";
    let read_only = "Read-only file system";
    ways.answers_in(
        &Way::CONTAINERS,
        "resources",
        &json!(null),
        &json!({
            "processors": 1, "flags": true, "count": 1, "online": lists, "directories": ["cpu0"],
            "core": true, "memory": [memory, memory / 8 * 7, 0], "stat": ["cpu", "cpu0"],
            "booted": true, "load": "0.00 0.00 0.00 1/1 1\n", "uptime": true,
            "memory.max": format!("{memory}\n"), "limit_in_bytes": format!("{memory}\n"),
            "cpu.max": "50000 100000\n", "quota": "50000\n", "groups": ["/"],
            "others": [missing, missing, missing, missing], "self": "1",
            "written": [read_only, read_only, read_only],
        }),
    );
}

#[test]
fn onnx_runtime_runs_a_model_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("onnx_model", &json!({}), &json!([[3.0, 0.0], "CPUExecutionProvider"]));
}

#[test]
fn duckdb_sizes_itself_by_what_the_function_has() {
    let Some(ways) = Everywhere::new() else { return };
    // Four fifths of it, as DuckDB's manual says.
    ways.answers("duckdb_sort", &json!({}), &json!("204.7 MiB"));
    // A sort that takes more: it spills to the scratch that the function asks for.
    let sorted = json!(["204.7 MiB", 6_000_000]);
    ways.answers("duckdb_sort", &json!({"work": true}), &sorted);
}
