//! Queues of SQS, by its JSON protocol:
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/Welcome.html>.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::signed::{Client, Failure};

/// Most messages of one request: the service's own limit.
pub const BATCH: usize = 10;

/// A message that was received. Others do not get it until the queue's time for that is over.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Message {
    /// Its name, which the service gave it.
    pub message_id: String,
    /// What it is deleted by.
    pub receipt_handle: String,
    /// MD5 of the body, in hexadecimal.
    #[serde(default, rename = "MD5OfBody")]
    pub md5_of_body: String,
    /// The text that was sent.
    #[serde(default)]
    pub body: String,
    /// What the service says of it, such as `SentTimestamp`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// What its sender says of it.
    #[serde(default)]
    pub message_attributes: BTreeMap<String, Attribute>,
}

/// A value that the sender of a message gave it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "PascalCase", serialize = "camelCase"))]
pub struct Attribute {
    /// A text or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    /// Bytes, as Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<String>,
    /// `String`, `Number` or `Binary`, with a label behind a dot where it has one.
    pub data_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Received {
    #[serde(default)]
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    queue_url: String,
}

impl Client {
    /// What a queue is called in other requests.
    ///
    /// # Errors
    /// When there is no such queue, or the service does not answer.
    pub fn queue_url(&self, account: &str, queue: &str) -> Result<String, Failure> {
        let asked = json!({ "QueueName": queue, "QueueOwnerAWSAccountId": account });
        let Found { queue_url } = self.ask("GetQueueUrl", &asked, Duration::ZERO)?;
        Ok(queue_url)
    }

    /// Up to so many messages of a queue; waits that long for the first one.
    ///
    /// # Errors
    /// When the service refuses, or does not answer.
    pub fn receive(
        &self,
        queue_url: &str,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Message>, Failure> {
        let asked = json!({
            "QueueUrl": queue_url,
            "MaxNumberOfMessages": most.clamp(1, BATCH),
            "WaitTimeSeconds": wait.as_secs(),
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        });
        let Received { messages } = self.ask("ReceiveMessage", &asked, wait)?;
        Ok(messages)
    }

    /// Deletes messages, by what they were received with.
    ///
    /// # Errors
    /// When the service refuses, or does not answer. What was not deleted comes again.
    pub fn delete(&self, queue_url: &str, receipts: &[&str]) -> Result<(), Failure> {
        for some in receipts.chunks(BATCH) {
            let entry = |(at, receipt)| json!({ "Id": format!("m{at}"), "ReceiptHandle": receipt });
            let entries: Vec<Value> = some.iter().enumerate().map(entry).collect();
            let asked = json!({ "QueueUrl": queue_url, "Entries": entries });
            let _: Value = self.ask("DeleteMessageBatch", &asked, Duration::ZERO)?;
        }
        Ok(())
    }

    fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        operation: &str,
        asked: &Value,
        wait: Duration,
    ) -> Result<T, Failure> {
        let target = format!("AmazonSQS.{operation}");
        let headers =
            [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target.as_str())];
        let mut answer = self.send("POST", "/", &headers, asked.to_string().as_bytes(), wait)?;
        let body = self.read(&mut answer)?;
        if answer.status() == 200 {
            let read = serde_json::from_slice(&body);
            return read.map_err(|error| self.strange(error.to_string()));
        }
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |key: &str| said.get(key).and_then(Value::as_str).map(str::to_owned);
        let code = text("__type").unwrap_or_else(|| answer.status().as_str().to_owned());
        // The name of a namespace stands before it.
        let code = code.rsplit('#').next().unwrap_or_default().to_owned();
        let message = text("message").or_else(|| text("Message")).unwrap_or_default();
        Err(Failure::Refused { code, message })
    }
}
