//! Hostile handlers stay inside their machine: each attack is carried out in one of a real worker, and those that would
//! do harm anywhere are carried out by a plain process as well, where they succeed. After each, a bystander in a machine
//! of the same family still answers, and their monitor is the same. `make escape` prints the table.

#![expect(clippy::print_stdout, reason = "the table is what one runs this for")]

mod list;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use e2e::index::Index;
use e2e::{Reply, Site, Value, Worker, can_run_machines, eventually, json};
use list::{ALL, Attack, Function};

const SOURCE: &str = include_str!("attacks.py");

/// What the host has to lose: a file that all users may read, and the worker's own process.
struct Bait {
    secret: String,
    victim: u32,
}

impl Bait {
    fn event(&self, attack: &Attack) -> Value {
        let Self { secret, victim } = self;
        let (what, code) = (attack.what, attack.argument);
        json!({"attack": what, "secret": secret, "victim": victim, "code": code, "address": code})
    }
}

fn settings(function: Function) -> &'static str {
    match function {
        Function::Patient => "timeout = \"300s\"\n# memory = \"128MB\"\n# scratch = \"2MB\"",
        Function::Brief => "timeout = \"1s\"",
    }
}

fn in_machine(settings: &str) -> String {
    format!(
        "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n# {settings}\n# ///\n{SOURCE}"
    )
}

/// What the caller of a machine is told that took too much memory.
const NO_MEMORY: &str = "it reached its memory limit";

/// What an attack has come to: what the handler says, or how its machine ended.
fn outcome(reply: &Reply) -> String {
    if reply.status == 200 {
        return said(&reply.json());
    }
    let error = reply.error();
    if error.contains(NO_MEMORY) {
        return NO_MEMORY.to_owned();
    }
    let signal = error.find("killed by ").map(|at| {
        let words = error[at + "killed by ".len()..].split(|c: char| !c.is_ascii_alphanumeric());
        words.take(1).collect::<String>()
    });
    signal.unwrap_or_else(|| format!("{}", reply.status))
}

fn said(answer: &Value) -> String {
    match (answer["got"].as_str(), answer.as_str()) {
        (Some(evidence), _) => format!("got {evidence}"),
        (None, Some(met)) => met.to_owned(),
        (None, None) => answer.to_string(),
    }
}

/// The same code in a process that nothing confines.
fn outside(event: &Value) -> String {
    let file = e2e::machine::manifest_dir().join("tests/machine_attacks/attacks.py");
    let ran = Command::new("python3").arg(file).arg(event.to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    serde_json::from_str(text.trim()).map_or_else(|_| format!("{ran:?}"), |answer| said(&answer))
}

fn monitors(worker: &Worker) -> Vec<u32> {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut all = worker.site().sandboxed();
    all.retain(|pid| name(pid).trim() == "wool-vmm");
    all
}

#[test]
fn every_attack_from_inside_a_machine_is_contained_there() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    for function in [Function::Patient, Function::Brief] {
        drop(worker.deploy(function.name(), &in_machine(settings(function))).expect(201));
    }
    let bystander = "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n# ///\n\
                     calls = 0\ndef handler(event, context):\n    global calls\n    calls += 1\n    return calls\n";
    drop(worker.try_out("bystander", bystander).expect(200));
    let family = monitors(&worker);
    assert_eq!(family.len(), 1, "one family, one monitor");
    let secret = worker.site().own().join("secret");
    fs::write(&secret, "a secret of the host").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
    let bait = Bait { secret: secret.to_str().unwrap().to_owned(), victim: worker.pid() };
    println!("| attack of a handler's in a machine | contained: | outside it has |");
    println!("| --- | --- | --- |");
    let mut wrong = Vec::new();
    for (number, attack) in ALL.iter().enumerate() {
        let event = bait.event(attack);
        let met = outcome(&worker.run(attack.function.name(), &event));
        let has = if attack.harms_anywhere { outside(&event) } else { "-".to_owned() };
        println!("| {} | {met} | {has} |", attack.name);
        if !attack.contained.contains(&met.as_str()) {
            wrong.push(format!("{}: {met} and not {:?}", attack.name, attack.contained));
        }
        if attack.harms_anywhere && !has.starts_with("got ") {
            wrong.push(format!("{}: {has} even outside", attack.name));
        }
        let calls = worker.run("bystander", &json!({})).expect(200).json();
        assert_eq!(calls, json!(number + 2), "{}: the bystander was begun anew", attack.name);
        assert_eq!(monitors(&worker), family, "{}: another monitor", attack.name);
    }
    println!("{} attacks by a handler in a machine", ALL.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    worker.assert_well();
}

#[test]
fn no_machine_finds_in_its_memory_what_another_or_an_earlier_call_has_kept() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let more = settings(Function::Patient);
    for name in ["kept", "sibling"] {
        drop(worker.deploy(name, &in_machine(more)).expect(201));
    }
    let resets = in_machine(&format!("{more}\n# reset = \"always\""));
    drop(worker.deploy("reset", &resets).expect(201));
    let run = |name: &str, attack: &str| {
        said(&worker.run(name, &json!({"attack": attack, "secret": ""})).expect(200).json())
    };
    assert_eq!(run("kept", "keep"), "kept");
    assert_eq!(run("sibling", "search"), "nothing");
    assert_eq!(run("reset", "search"), "nothing");
    assert_eq!(run("reset", "keep"), "kept");
    assert_eq!(run("reset", "search"), "nothing");
    // The search finds what is there.
    assert!(run("kept", "search").starts_with("got "), "it does not find its own");
    worker.assert_well();
}

/// A build in the source itself that makes a wheel of one module.
const BACKEND: &str = r#"
import os, zipfile

def build_wheel(directory, settings=None, metadata=None):
    file = "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, file), "w") as wheel:
        wheel.writestr("evil.py", MODULE)
        wheel.writestr("evil-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        wheel.writestr("evil-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("evil-1.0.dist-info/RECORD", "")
    return file
"#;

#[test]
fn what_a_package_tries_in_the_reference_machine_is_contained_there() {
    if !can_run_machines() {
        return;
    }
    let (index, site) = (Index::open(), Site::new());
    let secret = site.own().join("secret");
    fs::write(&secret, "a secret of the host").unwrap();
    let bait = Bait { secret: secret.to_str().unwrap().to_owned(), victim: std::process::id() };
    let tried: Vec<&Attack> = ALL.iter().filter(|attack| attack.harms_anywhere).collect();
    let events: Vec<Value> = tried.iter().map(|attack| bait.event(attack)).collect();
    let events = Value::from(json!(events).to_string());
    let module = format!(
        "{SOURCE}\nimport json\nMET = [handler(one, None) for one in json.loads({events})]\n"
    );
    let backend = BACKEND.replace("MODULE", &Value::from(module).to_string());
    let project =
        "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";
    index
        .add("evil", &[("pyproject.toml", project.as_bytes()), ("backend.py", backend.as_bytes())]);
    let source = format!(
        "# /// script\n# dependencies = [\"evil\"]\n# [tool.uv]\n# index-url = \"{}\"\n# [tool.lambswool]\n\
         # isolation = \"microvm\"\n# ///\nimport sys\nbefore = 'evil' in sys.modules\nimport evil\n\
         def handler(event, context):\n    return [before, evil.MET]\n",
        index.url()
    );
    let worker = site.up_with(&[("WOOL_HANDLER_CACHE", "false"), ("WOOL_INDEXES", &index.url())]);
    drop(worker.deploy("victim", &source).expect(201));
    let mut met = Value::Null;
    eventually("the reference machine has imported it", || {
        let answer = worker.run("victim", &json!({})).expect(200).json();
        met = answer[1].clone();
        answer[0] == true
    });
    for (attack, met) in tried.iter().zip(met.as_array().unwrap()) {
        let met = said(met);
        println!("a package in the reference machine: {}: {met}", attack.name);
        assert!(attack.contained.contains(&met.as_str()), "{}: {met}", attack.name);
    }
    worker.assert_well();
}
