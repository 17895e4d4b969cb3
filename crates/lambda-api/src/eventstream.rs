//! The frames that `InvokeWithResponseStream` answers in, as `application/vnd.amazon.eventstream`.
//!
//! ```text
//!   total length │ headers' length │ CRC-32 of these 8 │ headers │ payload │ CRC-32 of all before
//!        u32     │       u32       │        u32        │                   │         u32
//!
//!   header: length of the name u8 │ name │ type u8 = 7, text │ length u16 │ text
//! ```
//! Numbers are big-endian. A stream is any number of chunks and then one `InvokeComplete`, also
//! when the function failed.

use serde::Serialize;

/// The content type of the answer.
pub const CONTENT_TYPE: &str = "application/vnd.amazon.eventstream";

/// In bytes, of the payload of one frame. Clients refuse more than 16 MiB.
const MAX_PAYLOAD: usize = 8 << 20;

/// How an invocation ended. The log is the base64 of its last 4 KiB, for `X-Amz-Log-Type: Tail`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Complete {
    /// `Unhandled`, of a function that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// What failed: JSON, as the body of `Invoke` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_details: Option<String>,
    /// The end of the log, as Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_result: Option<String>,
}

/// Bytes of the function's answer, in one frame or, when they are very long, in several.
#[must_use]
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let pieces = bytes.chunks(MAX_PAYLOAD);
    pieces.flat_map(|piece| frame("PayloadChunk", "application/octet-stream", piece)).collect()
}

/// The last frame. Details of more than 8 MiB are left out.
#[must_use]
pub fn complete(end: &Complete) -> Vec<u8> {
    let details = end.error_details.clone().filter(|details| details.len() <= MAX_PAYLOAD);
    let end = Complete { error_details: details, ..end.clone() };
    let json = serde_json::to_vec(&end).expect("texts are JSON");
    frame("InvokeComplete", "application/json", &json)
}

fn frame(event: &str, content_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in
        [(":event-type", event), (":content-type", content_type), (":message-type", "event")]
    {
        headers.push(u8::try_from(name.len()).expect("these names are short"));
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend(u16::try_from(value.len()).expect("these values are short").to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).expect("a frame is bounded").to_be_bytes();
    let mut frame = Vec::with_capacity(16 + headers.len() + payload.len());
    frame.extend(length(16 + headers.len() + payload.len()));
    frame.extend(length(headers.len()));
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(headers);
    frame.extend_from_slice(payload);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two chunks and an end, of this encoder. botocore 1.44.8 read these bytes when the test was
    /// written: its `EventStreamBuffer`, which verifies both checksums, gave three messages, and
    /// its `EventStream` for `InvokeWithResponseStream` the payloads and the two members below.
    const GOLDEN: &str = "0000006f0000005af5fe871f0b3a6576656e742d7479706507000c5061796c6f61644368756e6b0d3a636f6e\
        74656e742d747970650700186170706c69636174696f6e2f6f637465742d73747265616d0d3a6d6573736167\
        652d747970650700056576656e747b2261223a7547cb150000006d0000005a8f3ed47f0b3a6576656e742d74\
        79706507000c5061796c6f61644368756e6b0d3a636f6e74656e742d747970650700186170706c6963617469\
        6f6e2f6f637465742d73747265616d0d3a6d6573736167652d747970650700056576656e74ff317dacdc5c6b\
        000000a80000005449739ed30b3a6576656e742d7479706507000e496e766f6b65436f6d706c6574650d3a63\
        6f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d74797065\
        0700056576656e747b224572726f72436f6465223a22556e68616e646c6564222c224572726f724465746169\
        6c73223a227b5c226572726f724d6573736167655c223a5c22c3a95c227d227d552fc72c";

    #[test]
    fn frames_are_those_that_clients_read() {
        let mut stream = chunk(b"{\"a\":");
        stream.extend(chunk(b"\xff1}"));
        stream.extend(complete(&Complete {
            error_code: Some("Unhandled".to_owned()),
            error_details: Some("{\"errorMessage\":\"é\"}".to_owned()),
            log_result: None,
        }));
        let hex: String = stream.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    #[test]
    fn a_long_answer_is_several_frames_and_none_is_none() {
        assert!(chunk(b"").is_empty());
        let long = vec![b'x'; MAX_PAYLOAD + 1];
        let frames = chunk(&long);
        let first = u32::from_be_bytes(frames[..4].try_into().unwrap()) as usize;
        let overhead = first - MAX_PAYLOAD;
        assert_eq!(frames.len(), long.len() + 2 * overhead);
        let details = Some("x".repeat(MAX_PAYLOAD + 1));
        let end = complete(&Complete { error_details: details, ..Complete::default() });
        assert!(end.ends_with(&complete(&Complete::default())[12..]));
    }
}
