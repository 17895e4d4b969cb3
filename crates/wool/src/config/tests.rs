use std::time::Duration;

use super::*;
use function::quantity::{Bytes, Span};

fn combine(file: &str, variables: &[(&str, &str)], flags: &Flags) -> Result<Config, ConfigError> {
    let variable =
        |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Config::combine(Some((Path::new("c.toml"), file.to_owned())), variable, flags)
}

#[test]
fn a_flag_beats_a_variable_and_a_variable_beats_the_file() {
    let file = "listen = '127.0.0.1:1'\nqueue = 5\nidle = 30\nrun_body = '1MiB'";
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let variables = [("WOOL_LISTEN", "127.0.0.1:2"), ("WOOL_QUEUE", "7"), ("WOOL_ZYGOTES", "none")];
    let config = combine(file, &variables, &flags).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.queue, 7);
    assert_eq!(config.zygotes(), ZygotePolicy::None);
    assert_eq!(config.idle, Span(Duration::from_secs(30)));
    assert_eq!(config.run_body, Bytes(1 << 20));
}

#[test]
fn an_unknown_key_is_an_error_that_names_the_known_ones() {
    let refused = combine("lisen = '127.0.0.1:1'", &[], &Flags::default()).unwrap_err().to_string();
    assert!(refused.contains("lisen") && refused.contains("listen"), "{refused}");
}

#[test]
fn a_setting_that_does_not_fit_is_named_with_where_it_was_said() {
    let said = |file: &str, variables: &[(&str, &str)], listen: Option<&str>| {
        let flags = Flags { listen: listen.map(str::to_owned), ..Flags::default() };
        combine(file, variables, &flags).unwrap_err().to_string()
    };
    let queue = ("WOOL_QUEUE", "7");
    assert!(said("idle = 1", &[queue], Some("foo")).starts_with("--listen does not fit: "));
    let slots = said("idle = 1", &[queue, ("WOOL_SLOTS", "-1")], None);
    assert!(slots.starts_with("WOOL_SLOTS does not fit: ") && slots.contains("-1"), "{slots}");
    let file = said("idle = 1\nqueue = 'x'", &[("WOOL_SLOTS", "1")], None);
    assert!(file.starts_with("queue in c.toml does not fit: "), "{file}");
}

#[test]
fn a_setting_with_which_nothing_could_be_done_is_refused() {
    for (file, setting) in
        [("client_timeout = 0", "client_timeout"), ("sandboxes = 0", "sandboxes")]
    {
        let refused = combine(file, &[], &Flags::default()).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{setting} = 0")), "{refused}");
        assert!(combine(&file.replace('0', "1"), &[], &Flags::default()).is_ok(), "{setting}");
    }
}

#[test]
fn a_variable_that_is_no_setting_is_refused() {
    let refused = |names: &[&str]| refuse_unknown(names.iter().map(OsString::from));
    let known =
        ["WOOL_CACHE_MEMORY", "WOOL_STATE", "WOOL_TOKEN_FILE", "WOOL_LOG", "WOOLLY", "PATH"];
    assert!(refused(&known).is_ok());
    let error =
        refused(&["WOOL_CACHE_MEMORY", "WOOL_SLTOS", "WOOL_MEMROY"]).unwrap_err().to_string();
    assert!(error.starts_with("WOOL_MEMROY, WOOL_SLTOS: no such setting"), "{error}");
}

#[test]
fn this_machine_may_be_listened_on_by_its_name() {
    let listen = |text: &str| combine(&format!("listen = '{text}'"), &[], &Flags::default());
    assert_eq!(listen("localhost:81").unwrap().listen.to_string(), "127.0.0.1:81");
    for bad in ["8470", "localhost", "localhost:", "localhost:99999", "example.org:80", ""] {
        let refused = listen(bad).unwrap_err().to_string();
        assert!(refused.contains(&format!("{bad:?}")) && refused.contains("[::1]:"), "{refused}");
    }
}

#[test]
fn an_address_that_others_can_reach_is_refused_without_tls() {
    let listen = |text: &str| combine(&format!("listen = '{text}'"), &[], &Flags::default());
    for other in ["0.0.0.0:1", "[::]:1", "192.168.1.5:1", "[::ffff:127.0.0.1]:1"] {
        let refused = listen(other).unwrap_err();
        assert!(matches!(refused, ConfigError::NoTls(_)), "{refused}");
        assert!(refused.to_string().contains("wool tls self-signed"), "{refused}");
    }
    for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:0"] {
        assert!(listen(loopback).is_ok(), "{loopback}");
    }
    let tls = "listen = '0.0.0.0:8470'\ntls_certificate = 'c.pem'\ntls_key = 'k.pem'";
    assert!(combine(tls, &[], &Flags::default()).is_ok());
    let half = combine("tls_key = 'k.pem'", &[], &Flags::default()).unwrap_err();
    assert!(matches!(half, ConfigError::HalfOfTls));
}

#[test]
fn indexes_are_a_list_or_one_text_and_hold_no_credentials() {
    let file = "indexes = ['corp=https://c.example/simple', 'https://d.example/simple']";
    let listed = combine(file, &[], &Flags::default()).unwrap();
    let words = ("WOOL_INDEXES", "corp=https://c.example/simple https://d.example/simple");
    let said = combine("", &[words], &Flags::default()).unwrap();
    assert_eq!((listed.indexes.0.len(), &listed.indexes), (2, &said.indexes));
    let commas = ("WOOL_INDEXES", "corp=https://c.example/simple,https://d.example/simple");
    assert_eq!(combine("", &[commas], &Flags::default()).unwrap().indexes, listed.indexes);
    let secret = combine("indexes = 'https://me:hunter2@c.example'", &[], &Flags::default());
    let secret = secret.unwrap_err().to_string();
    assert!(secret.contains("UV_INDEX_CORP_PASSWORD"), "{secret}");
    let local = combine("package_urls = ['/wheels']", &[], &Flags::default()).unwrap_err();
    assert!(local.to_string().contains("package_urls"), "{local}");
}

#[test]
fn zygotes_are_refused_where_nothing_can_be_forked() {
    let general = ("WOOL_CONTAINER_RECIPE", "general");
    let config = combine("", &[general], &Flags::default()).unwrap();
    assert_eq!(
        (config.internals.container_recipe, config.zygotes()),
        (Isolation::GENERAL, ZygotePolicy::None)
    );
    let refused = combine("zygotes = 'root'", &[general], &Flags::default()).unwrap_err();
    assert!(matches!(refused, ConfigError::NothingForks(Isolation::GENERAL)), "{refused}");
    assert!(
        combine("zygotes = 'root'\n[internals]\ncontainer_recipe = 'sock'", &[], &Flags::default())
            .is_ok()
    );
    let misspelt =
        combine("[internals]\ncontainer_recipe = 'docker'", &[], &Flags::default()).unwrap_err();
    assert!(misspelt.to_string().contains("lean, sock or general"), "{misspelt}");
}

#[test]
fn processors_are_numbers_in_a_file_and_texts_in_a_variable() {
    let config =
        combine("cpu_default = 0.5", &[("WOOL_CPU_MAX", "1.5")], &Flags::default()).unwrap();
    let bounds = config.cpu_bounds();
    assert_eq!(bounds.default.unwrap().number(), 0.5);
    assert_eq!(bounds.most.unwrap().number(), 1.5);
    let refused = combine("cpu_default = '50%'", &[], &Flags::default()).unwrap_err().to_string();
    assert!(refused.contains("0.5 for half of one"), "{refused}");
    assert!(combine("", &[], &Flags { strict: true, ..Flags::default() }).unwrap().strict);
}

#[test]
fn a_static_tree_has_to_be_named() {
    let refused = combine("zygotes = 'static'", &[], &Flags::default()).unwrap_err();
    assert!(refused.to_string().contains("zygote_seed"), "{refused}");
    let named = combine(
        "zygotes = 'static'\n[internals]\nzygote_seed = 'tree.json'",
        &[],
        &Flags::default(),
    );
    assert_eq!(named.unwrap().zygotes(), ZygotePolicy::Static);
}

#[test]
fn every_setting_has_a_variable() {
    let optional = combine(
        "",
        &[("WOOL_CREATIONS", "3"), ("WOOL_PYTHON", "3.12"), ("WOOL_ZYGOTE_BYTES", "1GiB")],
        &Flags::default(),
    );
    let config = optional.unwrap();
    assert_eq!((config.internals.creations, config.python.as_deref()), (Some(3), Some("3.12")));
    assert_eq!(config.internals.zygote_bytes, Some(Bytes(1 << 30)));
    assert_eq!((Config::DECLARED.len(), Internals::DECLARED.len()), (43, 15));
}

#[test]
fn more_rules_than_the_proxy_takes_are_refused_by_the_name_of_their_setting() {
    for (setting, variable) in
        [("egress_allow", "WOOL_EGRESS_ALLOW"), ("egress_deny", "WOOL_EGRESS_DENY")]
    {
        let list = |entries: usize| vec!["10.0.0.0/8"; entries].join(",");
        let read = |entries| combine("", &[(variable, &list(entries))], &Flags::default());
        assert!(read(MAX_RULES).is_ok());
        let refused = read(MAX_RULES + 1).unwrap_err().to_string();
        assert!(refused.starts_with(setting) && refused.contains("512"), "{refused}");
    }
}

#[test]
fn what_is_no_pattern_or_rule_is_refused_with_an_example() {
    for (text, example) in [
        ("egress = [\"[\"]", "report-*"),
        ("egress_allow = [\"example.com:443\"]", "10.0.0.0/8"),
        ("egress_deny = 7", "a list of texts"),
    ] {
        let refused = combine(text, &[], &Flags::default()).unwrap_err();
        assert!(refused.to_string().contains(example), "{refused}");
    }
}

/// Errors name a setting of the table in this form.
#[test]
fn a_setting_of_internals_is_taken_as_an_error_names_it() {
    let config = combine("internals.run_bodies = '2GiB'", &[], &Flags::default()).unwrap();
    assert_eq!(config.internals.run_bodies, Some(Bytes(2 << 30)));
    let refused = combine("run_bodies = '2GiB'", &[], &Flags::default()).unwrap_err();
    assert!(refused.to_string().contains("run_bodies"), "{refused}");
}
