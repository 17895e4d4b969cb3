//! A request for each operation, which botocore serialised: `requests.py` made the file.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lambda_api::{Operation, route};
use serde_json::Value;

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap()
}

#[test]
fn every_request_of_botocore_is_routed_and_read() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("requests.json")).unwrap();
    let mut seen = BTreeSet::new();
    for row in &rows {
        let name = text(row, "operation");
        let found = route(text(row, "method"), text(row, "path"), text(row, "query"));
        let found = found.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(found.operation.name, name);
        let body = match row["payload"].as_str() {
            Some(payload) => STANDARD.decode(payload).unwrap(),
            None => text(row, "body").as_bytes().to_vec(),
        };
        let header = |wanted: &str| {
            let headers = row["headers"].as_object().unwrap();
            let mut found = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.next().and_then(|(_, value)| value.as_str())
        };
        let input = found.input(text(row, "query"), header, &body);
        let input = input.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(Value::Object(input.members), row["members"], "{name}");
        let payload: &[u8] = if row["payload"].is_null() { &[] } else { &body };
        assert_eq!(input.payload, payload, "{name}");
        seen.insert(name);
    }
    let all: BTreeSet<&str> = Operation::all().iter().map(|operation| operation.name).collect();
    assert_eq!(seen, all);
}
