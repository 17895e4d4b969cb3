//! The guest "inside" a fake instance. The name of the handler's module, with a number after a
//! colon, says how it behaves:
//!
//! | module | when called |
//! | --- | --- |
//! | `echo` (and any other name) | returns the body as it came |
//! | `sleep:MS` | returns after that time |
//! | `environment:MS` | returns, after that time, its environment variables as JSON |
//! | `uses:A+B/C` | reports that loading imported A and B, and the first call C; see below |
//! | `print` | writes a line while loading and one while called, then returns |
//! | `flood:BYTES` | writes that much output in frames of 64 KiB, then returns |
//! | `newlines:COUNT` | writes so many empty lines in frames of 64 KiB, then returns |
//! | `drum:COUNT` | writes that many pieces of output of a byte each, then returns |
//! | `repeat:COUNT` | reports that many times that it imported nothing, then returns |
//! | `chatter:BYTES` | writes that much output *before* it reads its call |
//! | `large:BYTES` | returns that much |
//! | `parts:COUNT` | yields what it was called with so many times |
//! | `raise` | raises |
//! | `exits` | says that AWS's interpreter would have ended |
//! | `exit:CODE` | exits |
//! | `oom` | is killed for its memory |
//! | `exit-after:MS` | returns, and exits later |
//! | `garbage` | answers with bytes that are no frame |
//! | `nonsense` | answers with a frame that is no message |
//! | `another` | answers an invocation that was never made |
//! | `unloadable` | does not load |
//! | `never-loads` | does not answer to being loaded |
//! | `dies-loading` | is killed while loading |
//!
//! `uses` reports only when it is asked to, and only modules that its zygote had not imported; each
//! takes ten milliseconds.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::process::Process;
use crate::Death;
use crate::wire::{Decoder, Failure, Frame, Load, LogStream, Reply, Request};

const PIECE: usize = 64 << 10;

/// Runs the guest. `had` are the modules that its zygote had imported.
pub(super) async fn run(stream: UnixStream, process: Arc<Process>, had: Vec<String>) {
    let decoder = Decoder::new(u32::MAX as usize);
    let mut guest = Guest { stream, decoder, process, had };
    let death = match guest.serve().await {
        Ok(death) => death,
        Err(_) => Death::Exited(0),
    };
    guest.process.end(death);
}

struct Guest {
    stream: UnixStream,
    decoder: Decoder,
    process: Arc<Process>,
    had: Vec<String>,
}

impl Guest {
    /// The modules that loading imports, and those that the first call imports.
    fn uses(&self, load: &Load) -> (Vec<String>, Vec<String>) {
        let Some(("uses", names)) = load.module.split_once(':') else { return Default::default() };
        let (loading, calling) = names.split_once('/').unwrap_or((names, ""));
        let new = |names: &str| {
            let names = names.split('+').map(str::to_owned);
            names.filter(|name| !name.is_empty() && !self.had.contains(name)).collect()
        };
        (new(loading), new(calling))
    }

    /// Serves until the guest dies or the channel fails.
    async fn serve(&mut self) -> io::Result<Death> {
        self.say(&Reply::Ready { pid: 1 }, b"").await?;
        let Some((Request::Load(load), _)) = self.hear().await? else {
            return Ok(Death::Exited(0));
        };
        let (verb, number) = behaviour(&load);
        match verb {
            "never-loads" => std::future::pending().await,
            "dies-loading" => return Ok(Death::Signal(11)),
            "unloadable" => self.say(&failed("", "ImportError"), b"").await?,
            "print" => self.print("", b"loading\n").await?,
            _ => {}
        }
        let (loading, calling) = self.uses(&load);
        if load.observe {
            self.say(&Reply::Imports {}, loading.join("\n").as_bytes()).await?;
        }
        let imports = u32::try_from(loading.len()).unwrap_or(u32::MAX);
        let milliseconds = 10.0 * f64::from(imports);
        if imports > 0 {
            tokio::time::sleep(Duration::from_secs_f64(milliseconds / 1e3)).await;
        }
        let milliseconds = 0.1 + milliseconds;
        self.say(&Reply::Loaded { milliseconds }, b"").await?;
        if verb == "chatter" {
            self.print_much("", b'.', number).await?;
        }
        let mut observe = load.observe;
        while let Some((request, body)) = self.hear().await? {
            let Request::Invoke { id, content_type, .. } = request else {
                return Ok(Death::Exited(0));
            };
            let done = Reply::Done { id: id.clone(), content_type };
            match verb {
                "sleep" | "environment" => {
                    tokio::time::sleep(Duration::from_millis(number as u64)).await;
                }
                "print" => self.print(&id, b"called\n").await?,
                "flood" => self.print_much(&id, b'.', number).await?,
                "newlines" => self.print_much(&id, b'\n', number).await?,
                "drum" => {
                    let piece = Reply::Log { id: id.clone(), stream: LogStream::Stdout };
                    self.say_often(&piece, b".", number).await?;
                }
                "repeat" => self.say_often(&Reply::Imports {}, b"", number).await?,
                "exit" => return Ok(Death::Exited(i32::try_from(number).unwrap_or(i32::MAX))),
                "oom" => return Ok(Death::OutOfMemory),
                _ => {}
            }
            if std::mem::take(&mut observe) {
                self.say(&Reply::Imports {}, calling.join("\n").as_bytes()).await?;
            }
            match verb {
                "parts" => {
                    let part = Reply::Part { id: id.clone() };
                    self.say_often(&part, &body, number).await?;
                    self.say(&done, b"").await?;
                }
                "raise" => self.say(&failed(&id, "ValueError"), b"").await?,
                "exits" => self.say(&failed(&id, "Runtime.ExitError"), b"").await?,
                "full" => self.say(&failed(&id, "numpy.MemoryError"), b"").await?,
                "large" => self.say(&done, &vec![b'x'; number]).await?,
                "garbage" => self.stream.write_all(&[0xff; 64]).await?,
                "nonsense" => {
                    let mut frame = Vec::new();
                    Frame::encode(br#"{"kind":"nonsense"}"#, b"", &mut frame)
                        .map_err(io::Error::other)?;
                    self.stream.write_all(&frame).await?;
                }
                "another" => {
                    let other =
                        Reply::Done { id: "another".to_owned(), content_type: String::new() };
                    self.say(&other, b"").await?;
                }
                "environment" => {
                    let variables = serde_json::to_vec(&load.environment)?;
                    self.say(&done, &variables).await?;
                }
                _ => self.say(&done, &body).await?,
            }
            if verb == "exit-after" {
                tokio::time::sleep(Duration::from_millis(number as u64)).await;
                return Ok(Death::Exited(0));
            }
        }
        Ok(Death::Exited(0))
    }

    async fn hear(&mut self) -> io::Result<Option<(Request, Vec<u8>)>> {
        let mut buffer = vec![0; PIECE];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
                self.process.runs().await;
                return Request::decode(frame).map(Some).map_err(io::Error::other);
            }
            match self.stream.read(&mut buffer).await? {
                0 => return Ok(None),
                count => self.decoder.push(&buffer[..count]),
            }
        }
    }

    async fn say(&mut self, reply: &Reply, body: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        reply.encode(body, &mut bytes).map_err(io::Error::other)?;
        self.stream.write_all(&bytes).await
    }

    async fn print(&mut self, id: &str, text: &[u8]) -> io::Result<()> {
        self.say(&Reply::Log { id: id.to_owned(), stream: LogStream::Stdout }, text).await
    }

    async fn say_often(&mut self, reply: &Reply, body: &[u8], times: usize) -> io::Result<()> {
        let mut one = Vec::new();
        reply.encode(body, &mut one).map_err(io::Error::other)?;
        self.stream.write_all(&one.repeat(times)).await
    }

    async fn print_much(&mut self, id: &str, byte: u8, bytes: usize) -> io::Result<()> {
        let piece = vec![byte; PIECE];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(PIECE);
            self.print(id, &piece[..now]).await?;
            left -= now;
        }
        Ok(())
    }
}

fn behaviour(load: &Load) -> (&str, usize) {
    match load.module.split_once(':') {
        Some((verb, number)) => (verb, number.parse().unwrap_or(0)),
        None => (&load.module, 0),
    }
}

fn failed(id: &str, error_type: &str) -> Reply {
    let traceback = vec!["  File \"/var/task/main.py\", line 1, in handler\n".to_owned()];
    let failure = Failure {
        error_type: error_type.to_owned(),
        message: "as asked".to_owned(),
        traceback,
        ..Failure::default()
    };
    Reply::Failed { id: id.to_owned(), failure }
}
