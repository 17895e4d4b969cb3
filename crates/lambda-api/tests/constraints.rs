//! What is said of inputs that are wrong: the texts are those of the service, where they are known.

use lambda_api::{Fault, Input, route};
use serde_json::{Value, json};

const FUNCTION: &str = "/2015-03-31/functions/f";

fn read<'b>(method: &str, url: &str, body: &'b [u8]) -> Result<Input<'b>, Fault> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    route(method, path, query).unwrap().input(query, |_| None, body)
}

/// Of a request to change a function.
fn update(body: &Value) -> Result<Value, Fault> {
    let body = body.to_string();
    let input = read("PUT", &format!("{FUNCTION}/configuration"), body.as_bytes())?;
    Ok(Value::Object(input.members))
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Fault>, code: &str, message: &str) {
    let fault = result.unwrap_err();
    assert_eq!((fault.code(), fault.status(), fault.message()), (code, 400, message));
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, Fault>, violations: &[&str]) {
    let count = violations.len();
    let errors = if count == 1 { "error" } else { "errors" };
    let message = format!("{count} validation {errors} detected: {}", violations.join("; "));
    refused(result, "ValidationException", &message);
}

#[test]
fn all_violations_are_told_together() {
    let body = json!({"Timeout": 0, "MemorySize": 32_769, "TracingConfig": {"Mode": "Often"}});
    invalid(
        update(&body),
        &[
            "Value '32769' at 'memorySize' failed to satisfy constraint: Member must have value less \
             than or equal to 32768",
            "Value '0' at 'timeout' failed to satisfy constraint: Member must have value greater than \
             or equal to 1",
            "Value 'Often' at 'tracingConfig.mode' failed to satisfy constraint: Member must satisfy \
             enum value set: [Active, PassThrough]",
        ],
    );
}

#[test]
fn what_is_required_and_missing_is_null() {
    let null = "failed to satisfy constraint: Member must not be null";
    let missing =
        ["functionName", "role", "code"].map(|name| format!("Value null at '{name}' {null}"));
    let missing = missing.each_ref().map(String::as_str);
    invalid(read("POST", "/2015-03-31/functions", b""), &missing);
    invalid(read("POST", "/2015-03-31/functions", br#"{"Role":null}"#), &missing);
    let body = json!({"EphemeralStorage": {}});
    invalid(update(&body), &[&format!("Value null at 'ephemeralStorage.size' {null}")]);
    invalid(
        read("GET", "/2018-10-31/layers?find=LayerVersion", b""),
        &[&format!("Value null at 'arn' {null}")],
    );
}

#[test]
fn texts_have_lengths_and_patterns() {
    invalid(
        update(&json!({"Handler": "a b"})),
        &["Value 'a b' at 'handler' failed to satisfy constraint: Member must satisfy regular \
           expression pattern: [^\\s]+"],
    );
    // Characters are counted, and a text that is too long is tried on no pattern.
    assert!(update(&json!({"Description": "é".repeat(256)})).is_ok());
    let long = "a b".repeat(100);
    invalid(
        update(&json!({"Handler": long})),
        &[&format!(
            "Value '{long}' at 'handler' failed to satisfy constraint: Member must have length less \
             than or equal to 128"
        )],
    );
    invalid(
        update(&json!({"KMSKeyArn": "key"})),
        &["Value 'key' at 'kMSKeyArn' failed to satisfy constraint: Member must satisfy regular \
           expression pattern: (arn:(aws[a-zA-Z-]*)?:[a-z0-9-.]+:.*)|()"],
    );
    invalid(
        read("GET", "/2015-03-31/functions/f%20f", b""),
        &[
            "Value 'f f' at 'functionName' failed to satisfy constraint: Member must satisfy regular \
           expression pattern: (arn:(aws[a-zA-Z-]*)?:lambda:)?((eusc-)?[a-z]{2}((-gov)|(-iso([a-z]?\
           )))?-[a-z]+-\\d{1}:)?(\\d{12}:)?(function:)?([a-zA-Z0-9-_\\.]+)(:(\\$LATEST(\\.PUBLISHED)?|\
           [a-zA-Z0-9-_]+))?",
        ],
    );
    invalid(
        read("GET", "/2015-03-31/functions?MaxItems=0", b""),
        &[
            "Value '0' at 'maxItems' failed to satisfy constraint: Member must have value greater than \
           or equal to 1",
        ],
    );
}

#[test]
fn elements_of_lists_and_maps_are_spoken_of_together() {
    // As recorded of CreateFunctionUrlConfig.
    let body = json!({"AuthType": "NONE", "Cors": {"AllowMethods": ["GET", "POST", "OPTIONS"]}});
    invalid(
        read("POST", "/2021-10-31/functions/f/url", body.to_string().as_bytes()),
        &[
            "Value '[GET, POST, OPTIONS]' at 'cors.allowMethods' failed to satisfy constraint: Member \
           must satisfy constraint: [Member must have length less than or equal to 6, Member must \
           have length greater than or equal to 0, Member must satisfy regular expression pattern: \
           .*, Member must not be null]",
        ],
    );
    // As recorded of CreateAlias.
    let alias = |weights: Value| {
        let routing = json!({"AdditionalVersionWeights": weights});
        let body = json!({"Name": "a", "FunctionVersion": "1", "RoutingConfig": routing});
        let url = format!("{FUNCTION}/aliases");
        read("POST", &url, body.to_string().as_bytes()).map(|input| input.members)
    };
    invalid(
        alias(json!({"1": 1.5})),
        &[
            "Value '{1=1.5}' at 'routingConfig.additionalVersionWeights' failed to satisfy constraint: \
           Map value must satisfy constraint: [Member must have value less than or equal to 1.0, \
           Member must have value greater than or equal to 0.0]",
        ],
    );
    invalid(
        alias(json!({"one": 0.5})),
        &["Value '{one=0.5}' at 'routingConfig.additionalVersionWeights' failed to satisfy \
           constraint: Map keys must satisfy constraint: [Member must have length less than or equal \
           to 1024, Member must have length greater than or equal to 1, Member must satisfy regular \
           expression pattern: [0-9]+, Member must not be null]"],
    );
    assert!(alias(json!({"1": 0, "2": null})).is_ok());
    invalid(
        update(&json!({"Layers": [null]})),
        &[
            "Value '[null]' at 'layers' failed to satisfy constraint: Member must satisfy constraint: \
           [Member must have length less than or equal to 2048, Member must have length greater than \
           or equal to 1, Member must satisfy regular expression pattern: ((arn:(aws[a-zA-Z-]*)?:\
           lambda:(eusc-)?[a-z]{2}((-gov)|(-iso([a-z]?)))?-[a-z]+-\\d{1}:\\d{12}:layer:[a-zA-Z0-9-_]+\
           :[0-9]+)|(arn:[a-zA-Z0-9-]+:lambda:::awslayer:[a-zA-Z0-9-_]+)), Member must not be null]",
        ],
    );
    invalid(
        update(&json!({"FileSystemConfigs": [{"Arn": "", "LocalMountPath": "/mnt/a"}, {}]})),
        &[
            "Value '[{arn=, localMountPath=/mnt/a}, {}]' at 'fileSystemConfigs' failed to satisfy \
             constraint: Member must have length less than or equal to 1",
            "Value '' at 'fileSystemConfigs.1.member.arn' failed to satisfy constraint: Member must \
             satisfy regular expression pattern: arn:aws[a-zA-Z-]*:elasticfilesystem:(eusc-)?[a-z]{2}\
             ((-gov)|(-iso([a-z]?)))?-[a-z]+-\\d{1}:\\d{12}:access-point/fsap-[a-f0-9]{17}$|^arn:aws\
             [-a-z]*:s3files:[0-9a-z-:]+:file-system/fs-[0-9a-f]{17,40}/access-point/fsap-[0-9a-f]\
             {17,40}",
            "Value null at 'fileSystemConfigs.2.member.arn' failed to satisfy constraint: Member must \
             not be null",
            "Value null at 'fileSystemConfigs.2.member.localMountPath' failed to satisfy constraint: \
             Member must not be null",
        ],
    );
}

#[test]
fn what_is_secret_is_not_repeated() {
    invalid(
        update(&json!({"Environment": {"Variables": {"1": "secret"}}})),
        &["Value at 'environment.variables' failed to satisfy constraint: Map keys must satisfy \
           constraint: [Member must satisfy regular expression pattern: [a-zA-Z]([a-zA-Z0-9_])+, \
           Member must not be null]"],
    );
    let url = "/2025-12-01/durable-execution-callbacks/AAAA/succeed";
    invalid(
        read("POST", url, &vec![b'x'; 1_048_577]),
        &[
            "Value at 'result' failed to satisfy constraint: Member must have length less than or equal \
           to 1048576",
        ],
    );
}

#[test]
fn other_types_than_the_models_are_refused() {
    for (body, message) in [
        (json!({"Timeout": "3"}), "STRING_VALUE can not be converted to an Integer"),
        (json!({"Timeout": true}), "TRUE_VALUE can not be converted to an Integer"),
        (json!({"Timeout": 3e10}), "NUMBER_VALUE can not be converted to an Integer"),
        (json!({"Timeout": 1_u64 << 63}), "NUMBER_VALUE can not be converted to an Integer"),
        (json!({"Handler": 3}), "NUMBER_VALUE can not be converted to a String"),
        (json!({"Handler": ["a"]}), "Start of list found where not expected"),
        (json!({"Handler": {}}), "Start of structure or map found where not expected."),
        (json!({"Layers": "a"}), "Expected list or null"),
        (json!({"Layers": {}}), "Start of structure or map found where not expected."),
        (json!({"Environment": 5}), "Unexpected value type in payload"),
        (json!({"Environment": {"Variables": []}}), "Start of list found where not expected"),
        (json!([]), "Start of list found where not expected"),
        (json!("{}"), "Unexpected value type in payload"),
    ] {
        refused(update(&body), "SerializationException", message);
    }
    let code = |zip: &str| {
        let body = json!({"ZipFile": zip}).to_string();
        read("PUT", &format!("{FUNCTION}/code"), body.as_bytes()).map(|input| input.members.len())
    };
    assert_eq!(code("").unwrap(), 2);
    for zip in ["UEsDBA", "UEsDBA=", "UEsD BA==", "UEs_BA==", "é"] {
        refused(code(zip), "SerializationException", "A blob of the body is not valid base64");
    }
    let version = read("GET", "/2018-10-31/layers/l/versions/one", b"");
    refused(version, "SerializationException", "STRING_VALUE can not be converted to a Long");
    let items = read("GET", "/2015-03-31/functions?MaxItems=many", b"");
    refused(items, "SerializationException", "STRING_VALUE can not be converted to an Integer");
    for body in [b"{" as &[u8], b"{}x", b"\xff", b"{\"a\":1e999}", &[b'['; 100_000]] {
        let fault = read("POST", "/2015-03-31/functions", body).unwrap_err();
        assert_eq!((fault.code(), fault.status()), ("SerializationException", 400));
        assert!(fault.message().starts_with("Could not parse request body into json: "));
    }
}

#[test]
fn what_does_not_count_is_passed_over() {
    let body = json!({
        "Timeout": 3.9,
        "Description": null,
        "FunctionName": "other",
        "Unknown": [1],
        "Environment": {"Variables": {"aa": "1", "bb": null}, "More": {}},
    });
    let read_members = update(&body).unwrap();
    assert_eq!(
        read_members,
        json!({
            "FunctionName": "f",
            "Timeout": 3,
            "Environment": {"Variables": {"aa": "1"}},
        })
    );
    // The body of an operation that has none is not even JSON.
    let members = read(
        "DELETE",
        "/2017-03-31/tags/arn%3Aaws%3Alambda%3Aus-east-1%3A123456789012%3A\
                        function%3Af?tagKeys=a&other=1&tagKeys=b+c",
        b"}",
    )
    .unwrap()
    .members;
    assert_eq!(members["TagKeys"], json!(["a", "b c"]));
}

#[test]
fn a_payload_stays_bytes_and_headers_are_members() {
    let found =
        route("POST", "/2015-03-31/functions/f/invocations", "Qualifier=%24LATEST").unwrap();
    let headers = |name: &str| match name {
        "X-Amz-Log-Type" => Some("Tail"),
        _ => None,
    };
    let input = found.input("Qualifier=%24LATEST", headers, b"\xff not JSON").unwrap();
    assert_eq!(input.payload, b"\xff not JSON");
    let expected = json!({"FunctionName": "f", "LogType": "Tail", "Qualifier": "$LATEST"});
    assert_eq!(Value::Object(input.members), expected);
    let input = found.input("", |name| (name == "X-Amz-Invocation-Type").then_some("Later"), b"");
    invalid(
        input,
        &[
            "Value 'Later' at 'invocationType' failed to satisfy constraint: Member must satisfy enum \
           value set: [Event, RequestResponse, DryRun]",
        ],
    );
    // No bytes are a payload, too, where one is required.
    assert!(read("POST", "/2014-11-13/functions/f/invoke-async", b"").is_ok());
}

#[test]
fn a_message_repeats_no_more_than_a_part_of_the_input() {
    let arn = "x".repeat(100_000);
    let fault = update(&json!({"Layers": [arn], "KMSKeyArn": arn})).unwrap_err();
    assert!(fault.message().len() < 4000, "{}", fault.message().len());
    let filters = vec![json!({"Pattern": "x".repeat(4097)}); 9_000];
    let body = json!({"FunctionName": "f", "FilterCriteria": {"Filters": filters}}).to_string();
    let fault = read("POST", "/2015-03-31/event-source-mappings", body.as_bytes()).unwrap_err();
    assert!(fault.message().starts_with("100 validation errors detected: "), "{fault}");
    assert!(fault.message().len() < 9000, "{}", fault.message().len());
}

#[test]
fn members_are_read_into_the_callers_structure() {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Update {
        function_name: String,
        timeout: Option<u32>,
        role: Option<String>,
    }
    let url = format!("{FUNCTION}/configuration");
    let found: Update = read("PUT", &url, br#"{"Timeout":3}"#).unwrap().read().unwrap();
    assert_eq!((&*found.function_name, found.timeout, found.role), ("f", Some(3), None));
}
