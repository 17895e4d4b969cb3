//! AWS Lambda's API with the service's own clients, which are told the endpoint and nothing else.

mod programs;
mod services;

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Site, Worker, can_run, machine};
use services::{ObjectStore, Queues};

/// Runs a file of tests against a worker, as their user would: the endpoint and a token are in the environment.
fn run(file: &str) {
    run_if(file, &[], &[], |_| true);
}

/// The same, with further settings of the worker and further variables, if the worker can run them.
fn run_if(
    file: &str,
    settings: &[(&str, String)],
    variables: &[(&str, String)],
    can: impl Fn(&Worker) -> bool,
) {
    if !can_run() {
        return;
    }
    let Some(python) = python() else {
        machine::skip("boto3", "needs boto3: `make test` puts it into .venv");
        return;
    };
    let site = Site::new();
    let [admin, caller, other] = [
        &["token", "create", "admin", "--scope", "admin"][..],
        &["token", "create", "caller", "--scope", "invoke", "--functions", "only-*"],
        &["token", "create", "other", "--scope", "deploy,invoke,read", "--tenant", "other"],
    ]
    .map(|words| site.wool(words).ok().trim().to_owned());
    let mut all = vec![("WOOL_EGRESS", "reach-*"), ("WOOL_EGRESS_ALLOW", "127.0.0.1")];
    all.extend(settings.iter().map(|(name, value)| (*name, value.as_str())));
    let worker = site.up_with(&all);
    if !can(&worker) {
        return;
    }
    drop(worker.deploy("native", "def handler(event, context):\n    return event\n").expect(201));
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda").join(file);
    let said = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(tests)
        .envs([
            ("AWS_ENDPOINT_URL_LAMBDA", worker.url()),
            ("AWS_SESSION_TOKEN", &admin),
            ("CALLERS_TOKEN", &caller),
            ("OTHERS_TOKEN", &other),
            ("AWS_ACCESS_KEY_ID", "any"),
            ("AWS_SECRET_ACCESS_KEY", "any"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_MAX_ATTEMPTS", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ])
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("WOOL_LOG", log_of(&worker))
        .env("WORKER_LOG", worker.site().own().join("worker.log"))
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success(), "{words}\n{}", String::from_utf8_lossy(&said.stderr));
    assert!(words.contains(" passed"), "{words}");
    let log = worker.log();
    assert!(!log.contains("panicked"), "{log}");
    drop(worker.get("/healthz").expect(200));
}

fn log_of(worker: &Worker) -> PathBuf {
    worker.site().state().join("logs")
}

/// The Python that has the clients: that of the checkout, or whichever is on PATH.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    [own, PathBuf::from("python3")].into_iter().find(|program| {
        let imports = Command::new(program).args(["-c", "import boto3, pytest"]).output();
        imports.is_ok_and(|it| it.status.success())
    })
}

#[test]
fn functions_are_made_called_changed_and_removed_with_boto3() {
    run("test_functions.py");
}

#[test]
fn versions_and_aliases_are_published_and_moved_with_boto3() {
    run("test_versions.py");
}

#[test]
fn layers_are_published_and_run_with_boto3_and_the_command_line() {
    run("test_layers.py");
}

#[test]
fn a_caller_does_no_more_than_its_token_allows_with_boto3() {
    run("test_callers.py");
}

#[test]
fn a_policy_is_kept_and_shown_with_boto3() {
    run("test_policy.py");
}

#[test]
fn function_urls_are_configured_and_shown_with_boto3() {
    run("test_urls.py");
}

#[test]
fn events_are_tried_as_often_and_as_long_as_was_set_with_boto3() {
    run("test_event_invoke.py");
}

#[test]
fn no_more_calls_of_a_function_run_than_are_reserved_with_boto3() {
    run("test_concurrency.py");
}

#[test]
fn instances_that_were_promised_are_there_before_a_call_with_boto3() {
    run("test_provisioned.py");
}

#[test]
fn boto3_is_there_though_no_archive_brings_it() {
    let needs = "# /// script\n# dependencies = [\"boto3\"]\n# ///\ndef handler(event): ...\n";
    run_if("test_runtime.py", &[], &[], |worker| worker.deploys_from_index("needs", needs));
}

#[test]
fn code_is_fetched_from_a_store_of_objects_with_boto3() {
    if let Some(store) = ObjectStore::start() {
        let url = [("OBJECTS_URL", store.url())];
        run_if("test_objects.py", &store.settings(), &url, |_| true);
    }
}

#[test]
fn a_function_gets_the_messages_of_a_queue_with_boto3() {
    let Some(queues) = python().and_then(|python| Queues::start(&python)) else { return };
    let endpoint = [("WOOL_LAMBDA_ENDPOINTS", format!("sqs={}", queues.url()))];
    run_if("test_sources.py", &endpoint, &[("QUEUES_URL", queues.url())], |_| true);
}

#[test]
fn programs_ask_for_their_events_with_boto3() {
    let built = tempfile::tempdir().unwrap();
    let go = built.path().join("bootstrap");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/go");
    let said = Command::new("go")
        .args(["build", "-tags", "lambda.norpc", "-mod=readonly", "-o"])
        .arg(&go)
        .env("CGO_ENABLED", "0")
        .current_dir(source)
        .output();
    let mut variables = Vec::new();
    match said {
        Ok(said) if said.status.success() => {
            variables.push(("GO_PROGRAM", go.display().to_string()))
        }
        _ => machine::skip("go", "needs Go, and aws-lambda-go from its proxy"),
    }
    let find = ["-c", "import awslambdaric; print(awslambdaric.__file__)"];
    let found = python().and_then(|python| Command::new(python).args(find).output().ok());
    let found = found.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    match found {
        Some(file) if !file.is_empty() => variables.push(("AWSLAMBDARIC", file)),
        _ => machine::skip("awslambdaric", "needs awslambdaric: `make test` puts it into .venv"),
    }
    variables.extend(programs::rust());
    variables.extend(programs::node());
    run_if("test_programs.py", &[], &variables, |_| true);
}

#[test]
fn settings_that_have_one_value_are_answered_with_boto3() {
    run("test_constants.py");
}

#[test]
fn chalice_powertools_and_mangum_work_unchanged() {
    run("test_tools.py");
}
