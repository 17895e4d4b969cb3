//! Events given on the command line, and results on their way out.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use rustix::io::ioctl_fionread;

use super::terminal::pass_on;
use crate::cli::Event;

/// An event with its content type.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) content_type: String,
}

/// Reads the event that was asked for.
pub(super) fn read(event: &Event) -> Result<Body> {
    let (bytes, guessed) = match event.event.as_deref() {
        None => (Bytes::new(), "application/json"),
        Some("-") => {
            let mut all = Vec::new();
            io::stdin().lock().read_to_end(&mut all).context("cannot read the event from stdin")?;
            (Bytes::from(all), "application/json")
        }
        Some(text) => match text.strip_prefix('@') {
            Some(file) => {
                let all = std::fs::read(file)
                    .with_context(|| format!("cannot read the event from {file}"))?;
                (Bytes::from(all), content_type_of(Path::new(file)))
            }
            None => (Bytes::from(text.to_owned()), "application/json"),
        },
    };
    let content_type = event.content_type.clone().unwrap_or_else(|| guessed.to_owned());
    Ok(Body { bytes, content_type })
}

/// The warning when stdin holds something and no event was given: a person who pipes one in means it.
///
/// It is not read unasked. Under cron or CI a pipe may stay open without a byte, and the input of a shell's loop is the loop's.
pub(super) fn passed_over(event: &Event, stdin: impl AsFd) -> Option<&'static str> {
    // Not of a terminal, where a person types ahead, nor of a device: /dev/null is empty.
    let waits = event.event.is_none()
        && !stdin.as_fd().is_terminal()
        && ioctl_fionread(&stdin).is_ok_and(|bytes| bytes > 0);
    waits.then_some(
        "warning: stdin was not read, and the event was empty; for stdin as the event give `-`: … | wool invoke NAME -",
    )
}

fn content_type_of(file: &Path) -> &'static str {
    let extension =
        file.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "json" => "application/json",
        "csv" => "text/csv",
        "txt" | "md" => "text/plain; charset=utf-8",
        "html" => "text/html",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}

/// Writes a result where it was asked for.
pub(super) fn write(event: &Event, result: &[u8], content_type: &str) -> Result<()> {
    if let Some(file) = &event.output {
        return std::fs::write(file, result)
            .with_context(|| format!("cannot write {}", file.display()));
    }
    let readable =
        content_type.starts_with("text/") || content_type.starts_with("application/json");
    if io::stdout().is_terminal() && !readable {
        bail!(
            "the result is {} bytes of {content_type}: write it to a file with --output FILE, or redirect stdout",
            result.len()
        );
    }
    pass_on(result)?;
    if readable && !result.ends_with(b"\n") { pass_on(b"\n") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn event(text: &str) -> Event {
        Event { event: Some(text.to_owned()), ..Event::default() }
    }

    #[test]
    fn an_event_is_text_or_a_file() {
        let text = read(&event("{\"a\": 1}")).unwrap();
        assert_eq!(
            (&text.bytes[..], text.content_type.as_str()),
            (&b"{\"a\": 1}"[..], "application/json")
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("photo.JPG");
        std::fs::write(&file, [0xff, 0xd8]).unwrap();
        let photo = read(&event(&format!("@{}", file.display()))).unwrap();
        assert_eq!(
            (&photo.bytes[..], photo.content_type.as_str()),
            (&[0xff, 0xd8][..], "image/jpeg")
        );
        let missing = read(&event("@/nonexistent")).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent"));
    }

    #[test]
    fn what_is_piped_in_and_not_read_is_told_and_waited_for_by_nobody() {
        let nothing = Event::default();
        let (read, mut write) = io::pipe().unwrap();
        assert_eq!(passed_over(&nothing, &read), None, "a pipe that is open, and empty");
        write.write_all(b"{}").unwrap();
        assert!(passed_over(&nothing, &read).unwrap().contains("wool invoke NAME -"));
        assert_eq!(passed_over(&event("-"), &read), None);
        assert_eq!(passed_over(&event("{}"), &read), None);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"{}").unwrap();
        assert_eq!(passed_over(&nothing, &file), None, "it was read to its end");
        file.rewind().unwrap();
        assert!(passed_over(&nothing, &file).is_some());
        assert_eq!(passed_over(&nothing, std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn a_content_type_that_was_said_wins() {
        let said = Event { content_type: Some("text/csv".to_owned()), ..event("a,b") };
        assert_eq!(read(&said).unwrap().content_type, "text/csv");
    }
}
