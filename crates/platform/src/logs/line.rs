//! One line of a log file: `2026-11-21T21:15:38.123Z 6f9c…-… stdout the text`.

use std::str::FromStr;
use std::time::SystemTime;

use sandbox::wire::LogStream;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

/// The stream of lines in which the worker tells of a call.
pub const WORKER: &str = "worker";

/// One line that a function wrote, or that tells of a call of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// When the worker received it, RFC 3339 with milliseconds.
    pub time: String,
    /// During which invocation; `-` while the code was being imported.
    pub invocation: String,
    /// `stdout`, `stderr`, or `worker` where the worker tells of a call, such as how it failed.
    pub stream: String,
    /// The line, without its end.
    pub text: String,
}

/// The line is not one of ours.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("not a line of a log")]
pub struct ParseError;

impl Entry {
    /// As it stands in the file, without the line's end.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {} {} {}", self.time, self.invocation, self.stream, self.text)
    }
}

impl FromStr for Entry {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        let mut parts = line.splitn(4, ' ').map(str::to_owned);
        let (Some(time), Some(invocation), Some(stream)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseError);
        };
        Ok(Self { time, invocation, stream, text: parts.next().unwrap_or_default() })
    }
}

/// Whether a line of a file is an [`Entry`], without parsing it.
pub(super) fn is_entry(line: &[u8]) -> bool {
    line.iter().filter(|byte| **byte == b' ').nth(1).is_some()
}

/// A time as the logs have it.
pub fn stamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// Appends a piece of output as lines. Bytes that are no UTF-8 are replaced.
pub(super) fn render(
    out: &mut Vec<u8>,
    at: SystemTime,
    invocation: &str,
    stream: LogStream,
    text: &[u8],
) {
    let stream = match stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
        LogStream::Worker => WORKER,
    };
    let invocation = if invocation.is_empty() { "-" } else { invocation };
    let prefix = format!("{} {invocation} {stream} ", stamp(at));
    let text = String::from_utf8_lossy(text);
    for line in text.strip_suffix('\n').unwrap_or(&text).split('\n') {
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(line.trim_end_matches('\r').as_bytes());
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn every_line_of_a_piece_carries_the_invocation() {
        let mut out = Vec::new();
        let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        render(&mut out, at, "abc", LogStream::Stderr, b"one\n\ntwo words\xff\r\n");
        render(&mut out, at, "", LogStream::Stdout, b"loading");
        let text = String::from_utf8(out).unwrap();
        let entries: Vec<Entry> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(entries[0].to_text(), "2023-11-14T22:13:20.123Z abc stderr one");
        assert_eq!(entries[1].text, "");
        assert_eq!(entries[2].text, "two words\u{fffd}");
        assert_eq!((entries[3].invocation.as_str(), entries[3].stream.as_str()), ("-", "stdout"));
        assert_eq!(entries.len(), 4);
        assert!(text.lines().all(|line| is_entry(line.as_bytes())));
        for cut_off in ["", "2023-11-14T22:13", "2023-11-14T22:13:20.123Z abc"] {
            assert_eq!(is_entry(cut_off.as_bytes()), cut_off.parse::<Entry>().is_ok(), "{cut_off}");
        }
    }
}
