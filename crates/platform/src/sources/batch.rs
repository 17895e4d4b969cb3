//! Messages of a queue as an event of AWS Lambda's, and what a function's answer says of them.

use std::collections::{BTreeMap, HashSet};

use aws::sqs::{Attribute, Message};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Source;

/// Most bytes of an event: AWS Lambda's own limit of a call.
const EVENT_BYTES: usize = 6 << 20;

/// A record of an event: <https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html>.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    message_id: &'a str,
    receipt_handle: &'a str,
    body: &'a str,
    attributes: &'a BTreeMap<String, String>,
    message_attributes: BTreeMap<&'a str, Value>,
    md5_of_body: &'a str,
    event_source: &'static str,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: &'a str,
    aws_region: &'a str,
}

/// Messages that one call gets, and the event that they are.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) messages: Vec<Message>,
    pub(super) event: Vec<u8>,
}

/// The messages in batches, each an event that is not too long. A message that alone is too long is an event of its own.
pub(super) fn batches(source: &Source, messages: Vec<Message>) -> Vec<Batch> {
    const HEAD: &[u8] = b"{\"Records\":[";
    const TAIL: &[u8] = b"]}";
    let mut all: Vec<Batch> = Vec::new();
    for message in messages {
        let record = serde_json::to_vec(&record(source, &message)).unwrap_or_default();
        match all.last_mut() {
            Some(last) if last.event.len() + record.len() + TAIL.len() < EVENT_BYTES => {
                last.event.push(b',');
                last.event.extend(record);
                last.messages.push(message);
            }
            _ => all.push(Batch { messages: vec![message], event: [HEAD, &record].concat() }),
        }
    }
    all.iter_mut().for_each(|batch| batch.event.extend(TAIL));
    all
}

fn record<'a>(source: &'a Source, message: &'a Message) -> Record<'a> {
    let attribute = |(name, value): (&'a String, &'a Attribute)| {
        let mut shown = json!(value);
        shown["stringListValues"] = json!([]);
        shown["binaryListValues"] = json!([]);
        (name.as_str(), shown)
    };
    Record {
        message_id: &message.message_id,
        receipt_handle: &message.receipt_handle,
        body: &message.body,
        attributes: &message.attributes,
        message_attributes: message.message_attributes.iter().map(attribute).collect(),
        md5_of_body: &message.md5_of_body,
        event_source: "aws:sqs",
        event_source_arn: &source.queue_arn,
        aws_region: &source.region,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reported {
    #[serde(default)]
    batch_item_failures: Option<Vec<ReportedItem>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedItem {
    item_identifier: String,
}

/// The messages that a function has done with, by its answer. Where it may name those that failed: all others; none, if its
/// answer names what was not in the batch, or cannot be read.
pub(super) fn done<'a>(source: &Source, batch: &'a Batch, answer: &[u8]) -> Vec<&'a Message> {
    let all = || batch.messages.iter().collect();
    if !source.reports || answer.is_empty() {
        return all();
    }
    let Ok(reported) = serde_json::from_slice::<Option<Reported>>(answer) else {
        return Vec::new();
    };
    let failures = reported.and_then(|reported| reported.batch_item_failures).unwrap_or_default();
    let failed: HashSet<&str> = failures.iter().map(|one| one.item_identifier.as_str()).collect();
    let is_known = |id: &&str| batch.messages.iter().any(|message| message.message_id == **id);
    if !failed.iter().all(is_known) {
        return Vec::new();
    }
    let is_done = |message: &&Message| !failed.contains(message.message_id.as_str());
    batch.messages.iter().filter(is_done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(reports: bool) -> Source {
        Source {
            queue_arn: "arn:aws:sqs:us-east-1:000000000000:q".to_owned(),
            region: "us-east-1".to_owned(),
            reports,
            ..Source::default()
        }
    }

    fn message(id: &str, body: &str) -> Message {
        Message { message_id: id.to_owned(), body: body.to_owned(), ..Message::default() }
    }

    #[test]
    fn an_event_has_a_record_of_each_message() {
        let number = Attribute {
            string_value: Some("7".to_owned()),
            binary_value: None,
            data_type: "Number".to_owned(),
        };
        let first = Message {
            receipt_handle: "r".to_owned(),
            md5_of_body: "m".to_owned(),
            attributes: BTreeMap::from([("SentTimestamp".to_owned(), "1".to_owned())]),
            message_attributes: BTreeMap::from([("n".to_owned(), number)]),
            ..message("a", "ü\"")
        };
        let batches = batches(&source(false), vec![first, message("b", "")]);
        let event: Value = serde_json::from_slice(&batches[0].event).unwrap();
        assert_eq!(batches.len(), 1);
        assert_eq!(
            event["Records"][0],
            json!({
                "messageId": "a", "receiptHandle": "r", "body": "ü\"", "md5OfBody": "m",
                "attributes": { "SentTimestamp": "1" },
                "messageAttributes": { "n": {
                    "stringValue": "7", "dataType": "Number",
                    "stringListValues": [], "binaryListValues": [],
                } },
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:q",
                "awsRegion": "us-east-1",
            })
        );
        assert_eq!(event["Records"][1]["messageId"], "b");
    }

    #[test]
    fn no_event_is_longer_than_a_call_may_be() {
        let long = "x".repeat(EVENT_BYTES / 2);
        let all = ["a", "b", "c"].map(|id| message(id, &long));
        let all = batches(&source(false), all.into_iter().chain([message("d", "")]).collect());
        let counts: Vec<usize> = all.iter().map(|batch| batch.messages.len()).collect();
        assert_eq!(counts, [1, 1, 2]);
        for batch in &all {
            assert!(batch.event.len() <= EVENT_BYTES);
            assert!(serde_json::from_slice::<Value>(&batch.event).is_ok());
        }
        assert!(batches(&source(false), Vec::new()).is_empty());
    }

    #[test]
    fn only_what_an_answer_names_comes_again() {
        let messages = ["a", "b", "c"].map(|id| message(id, ""));
        let batch = batches(&source(true), messages.into()).remove(0);
        let done = |reports, answer: &str| -> Vec<String> {
            let done = done(&source(reports), &batch, answer.as_bytes());
            done.iter().map(|message| message.message_id.clone()).collect()
        };
        let (all, none) = (["a", "b", "c"], [""; 0]);
        for answer in
            ["", "null", "{}", "{\"batchItemFailures\":[]}", "{\"batchItemFailures\":null}"]
        {
            assert_eq!(done(true, answer), all, "{answer}");
        }
        let failed =
            |id: &str| format!("{{\"batchItemFailures\":[{{\"itemIdentifier\":\"{id}\"}}]}}");
        assert_eq!(done(true, &failed("b")), ["a", "c"]);
        // All of them failed: the answer does not say which.
        for answer in [&failed("z"), &failed(""), "7", "[1]", "{\"batchItemFailures\":[{}]}", "no"]
        {
            assert_eq!(done(true, answer), none, "{answer}");
        }
        assert_eq!(done(false, &failed("b")), all);
    }
}
