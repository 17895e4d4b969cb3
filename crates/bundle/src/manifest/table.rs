//! `[tool.lambswool]`, setting by setting.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sandbox::network::{DestinationError, MOST_DESTINATIONS, MOST_PORTS};
use sandbox::{Destination, Kind, Limits, Network, NoProcessors, Processors, Reset};
use toml::{Table, Value};

use super::{ManifestError, Overrides, quantity, variables};

pub(super) const KNOWN: [&str; 17] = [
    "binary",
    "concurrency",
    "egress",
    "cpu",
    "cpu_weight",
    "environment",
    "fallback",
    "handler",
    "import_cache",
    "isolation",
    "memory",
    "network",
    "pids",
    "python",
    "reset",
    "scratch",
    "timeout",
];

/// The settings of one table, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) limits: Limits,
    pub(super) timeout: Duration,
    pub(super) network: Network,
    pub(super) egress: Vec<Destination>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) python: Option<String>,
    pub(super) concurrency: u32,
    pub(super) binary: bool,
    pub(super) import_cache: bool,
    pub(super) handler: Option<String>,
    pub(super) kind: Kind,
    pub(super) reset: Reset,
}

impl Chosen {
    /// The settings of a function that says nothing itself.
    pub(super) fn over(over: Overrides) -> Self {
        Self {
            limits: Limits::default(),
            timeout: Duration::from_secs(30),
            network: Network::None,
            egress: Vec::new(),
            environment: BTreeMap::new(),
            python: None,
            concurrency: 64,
            binary: false,
            import_cache: true,
            handler: None,
            kind: over.kind.unwrap_or_default(),
            reset: over.reset.unwrap_or_default(),
        }
    }
}

/// Reads a table that stands in `file`. What belongs together is judged by what it will run in: what is said elsewhere counts.
pub(super) fn read(table: &Table, file: &str, over: Overrides) -> Result<Chosen, ManifestError> {
    let mut chosen = Chosen::over(over);
    let ours = table.get("isolation").map(|value| kind(value, table.get("fallback")));
    let runs_in = over.kind.or(ours.and_then(Result::ok)).unwrap_or_default();
    for (key, value) in table {
        let wrong = |reason: String| ManifestError::Value {
            file: file.to_owned(),
            key: key.clone(),
            value: value.to_string().trim().to_owned(),
            reason,
        };
        match key.as_str() {
            "memory" => chosen.limits.memory_bytes = memory(value, runs_in).map_err(wrong)?,
            "scratch" => chosen.limits.scratch_bytes = quantity::bytes(value).map_err(wrong)?,
            "cpu" => chosen.limits.cpu.quota = Some(cpu(value, runs_in).map_err(wrong)?),
            "cpu_weight" => {
                chosen.limits.cpu.weight = Some(cpu_weight(value, runs_in).map_err(wrong)?);
            }
            "pids" => chosen.limits.pids = number(value).map_err(wrong)?,
            "timeout" => chosen.timeout = quantity::duration(value).map_err(wrong)?,
            "network" => chosen.network = network(value, table).map_err(wrong)?,
            "egress" => chosen.egress = egress(value, table).map_err(wrong)?,
            "environment" => chosen.environment = environment(value).map_err(wrong)?,
            "python" => chosen.python = Some(text(value).map_err(wrong)?),
            "concurrency" => chosen.concurrency = number(value).map_err(wrong)?,
            "binary" => chosen.binary = boolean(value).map_err(wrong)?,
            "import_cache" => chosen.import_cache = boolean(value).map_err(wrong)?,
            "handler" => chosen.handler = Some(text(value).map_err(wrong)?),
            "isolation" => {
                let said = kind(value, table.get("fallback")).map_err(wrong)?;
                chosen.kind = over.kind.unwrap_or(said);
            }
            "fallback" => fallback(value, table.get("isolation")).map_err(wrong)?,
            "reset" => {
                let said = reset(value).map_err(wrong)?;
                if over.reset.is_none() {
                    fits(said, runs_in, over).map_err(wrong)?;
                    chosen.reset = said;
                }
            }
            _ => return Err(unknown(key, file)),
        }
    }
    Ok(chosen)
}

fn unknown(key: &str, file: &str) -> ManifestError {
    let nearest = KNOWN
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
    let near = nearest.filter(|known| strsim::jaro_winkler(known, key) > 0.75);
    ManifestError::UnknownKey {
        file: file.to_owned(),
        key: key.to_owned(),
        hint: near.map(|known| format!(" (did you mean {known:?}?)")).unwrap_or_default(),
        known: KNOWN.join(", "),
    }
}

fn memory(value: &Value, runs_in: Kind) -> Result<u64, String> {
    let bytes = quantity::bytes(value)?;
    memory_fits(bytes, runs_in)?;
    Ok(bytes)
}

pub(super) fn memory_fits(bytes: u64, runs_in: Kind) -> Result<(), String> {
    // Below this the interpreter itself does not fit.
    let least = 16 << 20;
    // A machine has addresses for little more, and its libraries need some of them.
    let most_of_machine = 2 << 30;
    if bytes < least {
        return Err("at least 16MB are needed".to_owned());
    }
    if !runs_in.is_container() && bytes > most_of_machine {
        return Err("a micro-VM has 2GB at most: ask for less, or run it in a container".to_owned());
    }
    Ok(())
}

fn cpu(value: &Value, runs_in: Kind) -> Result<Processors, String> {
    let number = value.as_float().or_else(|| Some(value.as_integer()? as f64));
    let processors = number.ok_or(NoProcessors).and_then(Processors::try_from);
    in_a_container(runs_in)?;
    processors.map_err(|error| error.to_string())
}

fn cpu_weight(value: &Value, runs_in: Kind) -> Result<u16, String> {
    in_a_container(runs_in)?;
    // 100 is what a function has that asks for nothing.
    let weight = value.as_integer().filter(|weight| (1..=100).contains(weight));
    weight.and_then(|weight| u16::try_from(weight).ok()).ok_or_else(|| {
        "write a number from 1 to 100: a function can stand behind others, not before them"
            .to_owned()
    })
}

/// Machines that come from one reference share a process, and the kernel would count them together.
fn in_a_container(runs_in: Kind) -> Result<(), String> {
    if runs_in.is_container() {
        return Ok(());
    }
    let why = "the processors of a micro-VM cannot be limited yet";
    Err(format!("{why}: leave this out, or run it in a container"))
}

fn number(value: &Value) -> Result<u32, String> {
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    let number = number.ok_or_else(|| NUMBER_IS_OF.to_owned())?;
    number_fits(number)?;
    Ok(number)
}

/// Processes, threads, instances.
pub(super) fn number_fits(number: u32) -> Result<(), String> {
    if (1..=10_000).contains(&number) { Ok(()) } else { Err(NUMBER_IS_OF.to_owned()) }
}

const NUMBER_IS_OF: &str = "write a number from 1 to 10000";

fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "write true or false".to_owned())
}

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "write a text in quotes".to_owned())
}

fn network(value: &Value, table: &Table) -> Result<Network, String> {
    match value.as_str() {
        Some("none") => Ok(Network::None),
        Some("egress") if table.contains_key("egress") => Ok(Network::Egress),
        Some("egress") => Err(format!("say where to, {EGRESS}")),
        Some("host") => Ok(Network::Host),
        _ => Err("write \"none\", \"egress\" or \"host\"".to_owned()),
    }
}

const EGRESS: &str = "as in egress = [\"api.example.com:443\", \"192.0.2.0/24:5432\"]";

/// Where a function may connect to.
fn egress(value: &Value, table: &Table) -> Result<Vec<Destination>, String> {
    if table.get("network").and_then(Value::as_str) != Some("egress") {
        return Err("it goes with network = \"egress\"".to_owned());
    }
    let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let texts: Vec<&str> = texts.ok_or_else(|| format!("write a list of texts, {EGRESS}"))?;
    let parsed =
        texts.into_iter().map(|text| text.parse().map_err(|e: DestinationError| e.to_string()));
    let destinations = parsed.collect::<Result<Vec<Destination>, _>>()?;
    egress_fits(&destinations)?;
    Ok(destinations)
}

pub(super) fn egress_fits(destinations: &[Destination]) -> Result<(), String> {
    let ports: BTreeSet<u16> = destinations.iter().map(|destination| destination.port).collect();
    match (destinations.len(), ports.len()) {
        (0, _) => Err(format!("say where to, {EGRESS}; or set network = \"none\"")),
        (1..=MOST_DESTINATIONS, ..=MOST_PORTS) => Ok(()),
        _ => {
            Err(format!("at most {MOST_DESTINATIONS} destinations at {MOST_PORTS} different ports"))
        }
    }
}

fn kind(value: &Value, fallback: Option<&Value>) -> Result<Kind, String> {
    match (value.as_str(), fallback) {
        (Some("container"), _) => Ok(Kind::Container),
        (Some("microvm"), None) => Ok(Kind::Microvm),
        (Some("microvm"), Some(_)) => Ok(Kind::MicrovmOrContainer),
        _ => Err("write \"container\" or \"microvm\"".to_owned()),
    }
}

/// What a machine without micro-VMs runs the function in.
fn fallback(value: &Value, isolation: Option<&Value>) -> Result<(), String> {
    match (value.as_str(), isolation.and_then(Value::as_str)) {
        (Some("container"), Some("microvm")) => Ok(()),
        (Some("container"), _) => Err("it goes with isolation = \"microvm\"".to_owned()),
        _ => Err("the only value is \"container\"".to_owned()),
    }
}

fn reset(value: &Value) -> Result<Reset, String> {
    match value.as_str() {
        Some("never") => Ok(Reset::Never),
        Some("always") => Ok(Reset::Always),
        _ => Err("write \"never\" or \"always\"".to_owned()),
    }
}

/// Refuses to promise a reset of what will be a container, or may be one: it would be left out in silence.
fn fits(reset: Reset, runs_in: Kind, over: Overrides) -> Result<(), String> {
    let instead = match (reset, runs_in, over.kind) {
        (Reset::Never, ..) | (Reset::Always, Kind::Microvm, _) => return Ok(()),
        (Reset::Always, _, None) => "set isolation = \"microvm\", and no fallback",
        (Reset::Always, _, Some(_)) => {
            "it was told to run in one: leave that out, or say reset never as well"
        }
    };
    Err(format!("a container cannot be reset: {instead}"))
}

fn environment(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let table = value.as_table().ok_or("write a table: environment = { NAME = \"value\" }")?;
    let mut environment = BTreeMap::new();
    for (name, value) in table {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
            _ => return Err(format!("{name} must be a text, a number, true or false")),
        };
        variables::check(name, &value)?;
        environment.insert(name.clone(), value);
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Chosen, String> {
        over(text, None, None)
    }

    fn over(text: &str, kind: Option<Kind>, reset: Option<Reset>) -> Result<Chosen, String> {
        let over = Overrides { kind, reset };
        read(&text.parse().unwrap(), "main.py", over).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_read() {
        let chosen = of("memory = \"1GB\"\ntimeout = 2\npids = 8\nscratch = 16\nnetwork = \"none\"\npython = \"3.12\"\n\
                         concurrency = 3\nbinary = true\nhandler = \"a.b\"\nenvironment = { A = \"x\", N = 1 }\n")
        .unwrap();
        assert_eq!(
            (chosen.limits.memory_bytes, chosen.limits.scratch_bytes, chosen.limits.pids),
            (1 << 30, 16 << 20, 8)
        );
        assert_eq!(
            (chosen.timeout, chosen.concurrency, chosen.binary),
            (Duration::from_secs(2), 3, true)
        );
        assert_eq!(
            chosen.environment,
            [("A", "x"), ("N", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        );
        assert_eq!(
            (chosen.python.unwrap(), chosen.handler.unwrap()),
            ("3.12".to_owned(), "a.b".to_owned())
        );
    }

    #[test]
    fn settings_as_the_pages_show_them_can_be_deployed() {
        let mut pages = vec!["README.md".to_owned()];
        for entry in std::fs::read_dir(root().join("docs/user")).unwrap() {
            pages.push(format!("docs/user/{}", entry.unwrap().file_name().display()));
        }
        let texts: Vec<String> = pages.iter().map(|page| read_page(page)).collect();
        let blocks = texts.iter().flat_map(|text| text.split("```toml\n").skip(1));
        let blocks = blocks.filter_map(|rest| rest.split_once("```"));
        let tables: Vec<&str> = blocks
            .filter_map(|(block, _)| block.split_once("[tool.lambswool]\n"))
            .map(|(_, table)| table)
            .collect();
        assert!(tables.len() >= KNOWN.len(), "{tables:?}");
        for table in tables {
            assert!(of(table).is_ok(), "{:?}: {table}", of(table));
        }
    }

    #[test]
    fn the_functions_page_has_a_section_with_an_example_for_each_setting() {
        let page = read_page("docs/user/functions.md");
        let sections: Vec<&str> = page.split("\n### ").skip(1).collect();
        for key in KNOWN {
            let of_key = |section: &&&str| section.starts_with(&format!("{key}\n"));
            let section = sections.iter().find(of_key);
            let section = section.unwrap_or_else(|| panic!("{key} has no section"));
            assert!(section.contains(&format!("\n{key} = ")), "{key} has no example");
        }
    }

    fn root() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn read_page(page: &str) -> String {
        std::fs::read_to_string(root().join(page)).unwrap()
    }

    #[test]
    fn a_micro_vm_is_asked_for_with_or_without_a_way_out() {
        let chosen = of("isolation = \"microvm\"\nreset = \"always\"").unwrap();
        assert_eq!((chosen.kind, chosen.reset), (Kind::Microvm, Reset::Always));
        let chosen = of("isolation = \"microvm\"\nfallback = \"container\"").unwrap();
        assert_eq!((chosen.kind, chosen.reset), (Kind::MicrovmOrContainer, Reset::Never));
        assert_eq!(of("isolation = \"container\"").unwrap().kind, Kind::Container);
        // What falls back to a container could not be reset there.
        let both = "isolation = \"microvm\"\nfallback = \"container\"\nreset = \"always\"";
        assert!(of(both).unwrap_err().contains("cannot be reset"));
    }

    #[test]
    fn what_is_said_elsewhere_is_what_settings_are_judged_by() {
        let [container, machine] = [Kind::Container, Kind::Microvm].map(Some);
        let chosen = over("reset = \"always\"", machine, None).unwrap();
        assert_eq!((chosen.kind, chosen.reset), (Kind::Microvm, Reset::Always));
        let falls_back = "isolation = \"microvm\"\nfallback = \"container\"\nreset = \"always\"";
        assert_eq!(over(falls_back, machine, None).unwrap().kind, Kind::Microvm);
        // Not in silence: what was pristine at each call would not be any more.
        let pristine = "isolation = \"microvm\"\nreset = \"always\"";
        let refused = over(pristine, container, None).unwrap_err();
        assert!(
            refused.contains("cannot be reset") && refused.contains("reset never"),
            "{refused}"
        );
        let chosen = over(pristine, container, Some(Reset::Never)).unwrap();
        assert_eq!((chosen.kind, chosen.reset), (Kind::Container, Reset::Never));
        assert_eq!(over("", machine, Some(Reset::Always)).unwrap().reset, Reset::Always);
        // Limits that only one of them has.
        for (setting, word) in [("cpu = 2", "limited"), ("memory = \"4GB\"", "2GB at most")] {
            let in_machine = format!("isolation = \"microvm\"\n{setting}");
            assert!(over(setting, container, None).is_ok());
            assert!(over(&in_machine, container, None).is_ok(), "{setting}");
            let refused = over(setting, machine, None).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn a_network_is_asked_for_with_a_list_of_where_to() {
        let list = |list: &str| of(&format!("network = \"egress\"\negress = {list}"));
        let chosen = list("[\"API.example.com:443\", \"192.0.2.7/24:5432\"]").unwrap();
        let to: Vec<String> = chosen.egress.iter().map(ToString::to_string).collect();
        assert_eq!(chosen.network, Network::Egress);
        assert_eq!(to, ["api.example.com:443", "192.0.2.0/24:5432"]);
        assert_eq!(of("network = \"host\"").unwrap().network, Network::Host);
        let many: Vec<_> = (1..=13).map(|port| format!("\"example.com:{port}\"")).collect();
        for (bad, word) in [
            ("[]", "say where to"),
            ("\"example.com:443\"", "a list of texts"),
            ("[\"example.com\"]", "names no port"),
            ("[\"https://example.com:443\"]", "neither a host name"),
            (&format!("[{}]", many.join(", ")), "at most"),
        ] {
            let error = list(bad).unwrap_err();
            assert!(error.starts_with("main.py: egress") && error.contains(word), "{error}");
        }
        let both = "network = \"none\"\negress = [\"example.com:443\"]";
        assert!(of(both).unwrap_err().contains("it goes with"));
    }

    #[test]
    fn processors_are_asked_for_as_a_number_and_only_of_containers() {
        let cpu = of("cpu = 0.5\ncpu_weight = 50").unwrap().limits.cpu;
        assert_eq!((cpu.quota.unwrap().thousandths(), cpu.weight), (500, Some(50)));
        assert_eq!(of("cpu = 2").unwrap().limits.cpu.quota.unwrap().number(), 2.0);
        for one in ["cpu = 2", "cpu_weight = 50"] {
            let error = of(&format!("{one}\nisolation = \"microvm\"")).unwrap_err();
            assert!(error.contains("cannot be limited yet"), "{error}");
        }
    }

    #[test]
    fn a_micro_vm_is_not_promised_more_memory_than_it_has_addresses_for() {
        for more in ["", "\nfallback = \"container\""] {
            let of_machine =
                |memory| of(&format!("memory = \"{memory}\"\nisolation = \"microvm\"{more}"));
            assert_eq!(of_machine("2GB").unwrap().limits.memory_bytes, 2 << 30);
            let error = of_machine("2049MB").unwrap_err();
            assert!(error.starts_with("main.py: memory") && error.contains("2GB"), "{error}");
        }
        assert_eq!(of("memory = \"4GB\"").unwrap().limits.memory_bytes, 4 << 30);
    }

    #[test]
    fn a_refused_name_of_a_variable_is_answered_with_what_is_taken() {
        for name in ["a.b-c", "A:B"] {
            assert!(of(&format!("environment = {{ \"{name}\" = 1 }}")).is_ok(), "{name}");
        }
        let error = of("environment = { \"A B\" = 1 }").unwrap_err();
        assert!(error.contains("visible ASCII characters other than `=`"), "{error}");
    }

    #[test]
    fn an_unknown_setting_is_answered_with_the_nearest_and_all_known() {
        let error = of("memroy = 1").unwrap_err();
        assert!(error.contains("did you mean \"memory\"") && error.contains("timeout"), "{error}");
        assert!(!of("zzz = 1").unwrap_err().contains("did you mean"));
    }

    #[test]
    fn a_wrong_value_names_the_setting_and_what_it_must_be() {
        for bad in [
            "memory = \"1MB\"",
            "timeout = \"x\"",
            "pids = 0",
            "network = \"internet\"",
            "network = \"egress\"",
            "egress = [\"example.com:443\"]",
            "isolation = \"vm\"",
            "fallback = \"container\"",
            "reset = \"always\"",
            "binary = 1",
            "environment = [1]",
            "environment = { A = [] }",
            "environment = { \"A B\" = 1 }",
            "environment = { \"A=B\" = 1 }",
            "environment = { \"\\u0007\" = 1 }",
            "concurrency = -1",
            "cpu = 0",
            "cpu = \"50%\"",
            "cpu_weight = 0",
            "cpu_weight = 101",
            "python = 3.12",
        ] {
            let error = of(bad).unwrap_err();
            assert!(
                error.starts_with(&format!("main.py: {}", bad.split_once(" = ").unwrap().0)),
                "{error}"
            );
        }
    }
}
