//! Pages for users that are made from declarations: the command line's from clap, the HTTP API's from its description.
//!
//! `UPDATE_DOCS=1 cargo test -p wool page` writes them anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use serde_json::Value;
use wool::cli::Cli;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->";

#[test]
fn the_command_line_page_has_every_command_and_option() {
    let mut cli = Cli::command();
    cli.build();
    let mut text = String::from("\n## Options of every command\n\n");
    text.push_str(&table(cli.get_arguments().filter(|arg| arg.is_global_set())));
    for command in cli.get_subcommands() {
        describe_command(&mut text, command);
    }
    check("command-line.md", &text);
}

/// What differs from the service, of operations that are answered.
const DIFFERENCES: &[(&str, &str)] = &[
    ("AddLayerVersionPermission", "kept and shown, and gives no rights: tokens do"),
    ("AddPermission", "kept and shown, and gives no rights: tokens do"),
    (
        "CreateFunction",
        "no images, VPC or file systems; code in S3 where the operator names a store; answers when the function is active",
    ),
    (
        "CreateEventSourceMapping",
        "queues of SQS alone, without filters; polled where the operator names a service",
    ),
    ("CreateFunctionUrlConfig", "configured and shown; nothing is served there yet"),
    ("DeleteAlias", "what is kept for the alias goes with it: policy, URL, settings of events"),
    ("DeleteFunction", "a version goes only when no alias points to it"),
    ("GetAccountSettings", "concurrency is the number of sandboxes that the worker may have"),
    ("GetFunction", "`Code.Location` is the worker, and no archive can be fetched there"),
    ("GetFunctionCodeSigningConfig", "no function has one"),
    (
        "GetLayerVersion",
        "of the token's tenant; `Content.Location` is the worker, and no archive can be fetched there",
    ),
    ("GetLayerVersionByArn", "as `GetLayerVersion`"),
    ("Invoke", "a client that hangs up ends the call"),
    ("InvokeWithResponseStream", "a Python generator yields the parts, or a program sends them"),
    ("ListFunctions", "also functions that `wool deploy` made"),
    (
        "PutFunctionConcurrency",
        "a limit alone: no sandbox is set aside, and the sum is not checked",
    ),
    (
        "PutFunctionEventInvokeConfig",
        "destinations are kept and shown, and nothing is sent to them",
    ),
    ("PutFunctionRecursionConfig", "kept and shown; no loop is looked for"),
    (
        "PutProvisionedConcurrencyConfig",
        "of half of the worker's sandboxes, shared out among tenants; `AWS_LAMBDA_INITIALIZATION_TYPE` stays `on-demand`",
    ),
    ("PutRuntimeManagementConfig", "`Auto` alone"),
    (
        "PublishLayerVersion",
        "content in S3 where the operator names a store; no links, no folder `lambswool`",
    ),
    ("PublishVersion", "a function has up to 1000 published versions"),
    ("TagResource", "functions alone"),
    ("UpdateEventSourceMapping", "the mapping stays with its function"),
    (
        "UpdateFunctionCode",
        "only of functions that this API made; code in S3 where the operator names a store",
    ),
    ("UpdateFunctionConfiguration", "only of functions that this API made"),
    (
        "UpdateFunctionEventInvokeConfig",
        "destinations are kept and shown, and nothing is sent to them",
    ),
    ("UpdateFunctionUrlConfig", "configured and shown; nothing is served there yet"),
];

#[test]
fn the_lambda_page_has_every_operation_and_what_differs() {
    let mut text = String::from(
        "\n| operation | answered | what differs, or why not |\n| --- | --- | --- |\n",
    );
    for operation in lambda_api::Operation::all() {
        let difference = DIFFERENCES.iter().find(|(name, _)| *name == operation.name);
        let refused = lambda_api::Fault::unsupported(operation).message().to_owned();
        let why = refused.split_once(": ").map_or("not yet", |(_, why)| why);
        let (answered, said) = match (doors::lambda::supports(operation.name), difference) {
            (true, difference) => ("yes", difference.map_or("", |(_, said)| *said)),
            (false, None) => ("no", why),
            (false, Some((name, _))) => panic!("{name} is not answered"),
        };
        writeln!(text, "| `{}` | {answered} | {said} |", operation.name).unwrap();
    }
    check("lambda.md", &text);
}

#[test]
fn the_http_api_page_has_every_route_and_object() {
    let api = serde_json::to_value(doors::native::openapi()).unwrap();
    let mut text = String::new();
    let mut sections: Vec<&str> = routes(&api).map(|(_, _, route)| tag(route)).collect();
    sections.sort_by_key(|section| SECTIONS.iter().position(|known| known == section));
    sections.dedup();
    for section in sections {
        writeln!(text, "\n## {}", capitalised(section)).unwrap();
        for (path, method, route) in routes(&api).filter(|(_, _, route)| tag(route) == section) {
            describe_route(&mut text, path, method, route);
        }
    }
    text.push_str("\n## Objects\n");
    for (name, schema) in api["components"]["schemas"].as_object().unwrap() {
        describe_object(&mut text, name, schema);
    }
    check("http-api.md", &text);
}

/// Compares the generated part of a page, or writes it.
fn check(page: &str, made: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user").join(page);
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (there, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
    } else {
        assert_eq!(there, made, "run `UPDATE_DOCS=1 cargo test -p wool page`");
    }
}

// --- the command line ----------------------------------------------------------------------------

fn describe_command(text: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap().to_owned();
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let level = "#".repeat(name.split(' ').count());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string().replace("Usage: ", "");
    let about = wrapped(&format!("{about}."));
    writeln!(text, "\n{level} {name}\n\n{about}\n\n```text\n{usage}\n```").unwrap();
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| is_told(arg)).collect();
    if !own.is_empty() {
        write!(text, "\n{}", table(own.into_iter())).unwrap();
    }
    match command.get_after_help() {
        // Its settings have a page of their own.
        Some(_) if command.get_name() == "up" => {
            text.push_str("\n[Configuration](configuration.md) lists the settings.\n");
        }
        Some(more) => writeln!(text, "\n```text\n{more}\n```").unwrap(),
        None => {}
    }
    for below in command.get_subcommands() {
        describe_command(text, below);
    }
}

fn is_told(arg: &Arg) -> bool {
    let from_clap = ["help", "version"].contains(&arg.get_id().as_str());
    !arg.is_hide_set() && !arg.is_global_set() && !from_clap
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = String::from("| | meaning |\n| --- | --- |\n");
    for arg in args {
        let mut meaning = sentences(&arg.get_help().map(ToString::to_string).unwrap_or_default());
        let names = arg.get_possible_values();
        let names: Vec<_> = names.iter().map(|value| format!("`{}`", value.get_name())).collect();
        // A switch is off unless it is given.
        let takes_values = arg.get_action().takes_values();
        if !names.is_empty() && takes_values {
            write!(meaning, " One of {}.", names.join(", ")).unwrap();
        }
        let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
        let defaults = defaults.collect::<Vec<_>>().join(",");
        if !defaults.is_empty() && takes_values {
            write!(meaning, " Default: `{defaults}`.").unwrap();
        }
        if let Some(variable) = arg.get_env() {
            write!(meaning, " Variable: `{}`.", variable.to_string_lossy()).unwrap();
        }
        writeln!(text, "| `{}` | {} |", written(arg), cell(&meaning)).unwrap();
    }
    text
}

/// An option's help, whose default stands in brackets, as sentences.
fn sentences(help: &str) -> String {
    match help.strip_suffix(']').and_then(|help| help.split_once(" [default: ")) {
        Some((help, default)) => format!("{help}. Default: {default}."),
        None => format!("{help}."),
    }
}

/// As it is written in a command.
fn written(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> =
        short.into_iter().chain(arg.get_long().map(|long| format!("--{long}"))).collect();
    match (names.is_empty(), arg.get_action().takes_values()) {
        (true, _) => values,
        (false, true) => format!("{} {values}", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

// --- the HTTP API --------------------------------------------------------------------------------

/// In the order of the page.
const SECTIONS: [&str; 6] = ["calls", "functions", "secrets", "packages", "access", "worker"];

fn routes(api: &Value) -> impl Iterator<Item = (&String, &String, &Value)> {
    let paths = api["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, methods)| {
        methods.as_object().unwrap().iter().map(move |(method, route)| (path, method, route))
    })
}

fn tag(route: &Value) -> &str {
    route["tags"][0].as_str().unwrap()
}

fn describe_route(text: &mut String, path: &str, method: &str, route: &Value) {
    let summary = wrapped(route["summary"].as_str().unwrap_or_default());
    writeln!(text, "\n### {} {path}\n\n{summary}", method.to_uppercase()).unwrap();
    if let Some(more) = route["description"].as_str() {
        writeln!(text, "\n{}", wrapped(more)).unwrap();
    }
    match route["security"][0]["token"][0].as_str() {
        Some(scope) => writeln!(text, "\nScope: `{scope}`.").unwrap(),
        None => text.push_str("\nNo token is needed.\n"),
    }
    let parameters = route["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !parameters.is_empty() {
        text.push_str("\n| parameter | in | type | meaning |\n| --- | --- | --- | --- |\n");
    }
    for one in parameters {
        let [name, place] = ["name", "in"].map(|key| one[key].as_str().unwrap_or_default());
        let meaning = cell(one["description"].as_str().unwrap_or_default());
        writeln!(text, "| `{name}` | {place} | {} | {meaning} |", kind(&one["schema"])).unwrap();
    }
    if let Some(content) = route["requestBody"]["content"].as_object() {
        let types: Vec<String> = content.keys().map(|name| format!("`{name}`")).collect();
        let body = route["requestBody"]["description"].as_str().unwrap_or("the body");
        let words = wrapped(&format!("Body: {body}, as {}.", types.join(", ")));
        writeln!(text, "\n{words}").unwrap();
    }
    text.push_str("\n| status | meaning | body |\n| --- | --- | --- |\n");
    for (status, reply) in route["responses"].as_object().unwrap() {
        let content = reply["content"].as_object();
        // Errors have one body, which the page tells of at its beginning.
        let content = content.filter(|_| status.as_str() < "400");
        let bodies = content.into_iter().flatten().map(|(name, body)| {
            let kind = kind(&body["schema"]);
            if name == "application/json" { kind } else { format!("`{name}`") }
        });
        let bodies = bodies.collect::<Vec<_>>().join(", ");
        let meaning = cell(reply["description"].as_str().unwrap_or_default());
        writeln!(text, "| {status} | {meaning} | {bodies} |").unwrap();
    }
}

fn describe_object(text: &mut String, name: &str, schema: &Value) {
    let words = wrapped(schema["description"].as_str().unwrap_or_default());
    writeln!(text, "\n### {name}\n\n{words}").unwrap();
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().map(|value| format!("`{}`", value.as_str().unwrap())).collect();
        writeln!(text, "\nOne of {}.", values.join(", ")).unwrap();
    }
    if let Some(one_of) = schema["oneOf"].as_array() {
        text.push_str("\nOne of these:\n\n");
        for one in one_of {
            let words = one["description"].as_str().unwrap_or_default();
            writeln!(text, "- {}: {words}", variant(one)).unwrap();
        }
    }
    let parts = schema["allOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
    for part in parts {
        if part["$ref"].is_string() {
            writeln!(text, "\nAll fields of {}, and these:", kind(part)).unwrap();
        }
        let Some(fields) = part["properties"].as_object() else { continue };
        text.push_str("\n| field | type | meaning |\n| --- | --- | --- |\n");
        for (field, schema) in fields {
            let words = cell(described(schema));
            writeln!(text, "| `{field}` | {} | {words} |", kind(schema)).unwrap();
        }
    }
}

/// A variant of an enumeration: its name, and what stands in it.
fn variant(one: &Value) -> String {
    if let Some(values) = one["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    let fields = one["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, schema)| format!("`{{\"{name}\": {}}}`", kind(schema)));
    fields.collect::<Vec<_>>().join(", ")
}

/// What a schema, or the one that it may be, says of itself.
fn described(schema: &Value) -> &str {
    let own = schema["description"].as_str();
    let inner = schema["oneOf"].as_array().into_iter().flatten();
    own.or_else(|| inner.filter_map(|one| one["description"].as_str()).next()).unwrap_or_default()
}

/// A schema's type in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(one_of) = schema["oneOf"].as_array() {
        let kinds = one_of.iter().map(kind).filter(|kind| kind != "null");
        return kinds.collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
    }
    let of_items = || format!("list of {}", kind(&schema["items"]));
    let named = |name: &str| match name {
        "array" => of_items(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => named(name),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.map(named).collect::<Vec<_>>().join(" or ")
        }
        _ => "any JSON".to_owned(),
    }
}

// --- text ----------------------------------------------------------------------------------------

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Paragraphs of lines that are no longer than a page's.
fn wrapped(text: &str) -> String {
    let paragraph = |text: &str| {
        let mut lines = vec![String::new()];
        for word in text.split_whitespace() {
            let line = lines.last_mut().unwrap();
            if line.is_empty() {
                line.push_str(word);
            } else if line.chars().count() + 1 + word.chars().count() <= 98 {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines.join("\n")
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}
