//! The two listeners, and the limits of a connection: descriptors, time, memory.
//!
//! ```text
//!   accept ─► seat? ─► HTTP/1.1 until it ends, is idle too long, has to leave, or the worker stops
//!               │ none
//!               └──► 503 within a moment, and the connection closed
//! ```
//!
//! A connection that has to leave while a request is being answered leaves after that answer. One
//! whose request is incomplete or was not admitted made no call: it is closed at once. One that does
//! not read its answer is closed, too ([`Paced`]).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header::CONNECTION};
use axum::response::IntoResponse as _;
use axum::serve::Listener;
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::door::connections::{Connections, Seat, Visit};
use crate::door::heads::{Heads, Watched};
use crate::door::slow_reader::Paced;
use crate::error::ApiError;
use platform::access::Remote;

/// Connections that the kernel keeps until they are accepted; it takes at most `net.core.somaxconn` of them.
const BACKLOG: u32 = 4096;

/// How long a refused connection may take to read why.
const REFUSING: Duration = Duration::from_secs(2);

/// Largest header of a request, and how much of a body is read ahead, in bytes.
const BUFFER: usize = 64 << 10;

/// What stands behind a door, and its limits.
#[derive(Debug)]
pub struct Behind {
    /// Answers the requests.
    pub router: Router,
    /// Most connections.
    pub most: usize,
    /// Connections beyond these that may be open at a time, while they are refused or close.
    pub spare: usize,
    /// Time for the whole header of a request, and for an answer that waits to be read.
    pub patience: Duration,
}

/// Listens on an address.
///
/// # Errors
/// When the address is taken or is none of this machine's.
pub fn bind_tcp(address: SocketAddr) -> Result<TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of a worker that has just ended would keep the port for a minute.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit it: a client that follows a log and vanishes may never be
        // written to.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| busy_port(address, error))
}

/// Listens on a socket to which only this user may connect, and the members of a group if one is given.
/// The kernel names the peer of each connection all the same.
///
/// # Errors
/// When it cannot be made there.
pub fn bind_unix(path: &Path, group: Option<u32>) -> Result<UnixListener> {
    let directory = path.parent().unwrap_or(path);
    let bind = || {
        let socket = UnixSocket::new_stream()?;
        socket.bind(path).map(|()| socket)
    };
    let socket = bind().with_context(|| {
        format!(
            "cannot make the socket {}: a shorter --state DIR helps when the path is too long",
            path.display()
        )
    })?;
    let protected = protect(path, if group.is_some() { 0o660 } else { 0o600 }, group)
        .and_then(|()| protect(directory, if group.is_some() { 0o710 } else { 0o700 }, group));
    protected.with_context(|| match group {
        Some(group) => format!(
            "cannot give {} to the group {group} of admin_group: the worker's account must be a member",
            path.display()
        ),
        None => format!("cannot close {} to others", path.display()),
    })?;
    socket.listen(BACKLOG).with_context(|| format!("cannot listen at {}", path.display()))
}

fn protect(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

fn busy_port(listen: SocketAddr, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "something already listens on {listen}: stop it, choose another port with --listen {ip}:PORT, or take a free one with --listen {ip}:0",
            ip = if listen.is_ipv6() {
                format!("[{}]", listen.ip())
            } else {
                listen.ip().to_string()
            }
        ),
        _ => anyhow::Error::new(error).context(format!("cannot listen on {listen}")),
    }
}

/// Serves until `stop`, then returns when the last answer is out. Dropping it cuts the connections that are left.
/// Each request carries the [`Remote`] that `remote_of` returns for its connection.
pub async fn serve<L: Listener>(
    mut listener: L,
    behind: Behind,
    stop: CancellationToken,
    remote_of: impl Fn(&L::Io, &L::Addr) -> Remote,
) {
    let Behind { router, most, spare, patience } = behind;
    let connections = Connections::new(most);
    // However fast they come, no more descriptors than these.
    let descriptors = Arc::new(Semaphore::new(most + spare));
    let mut open = JoinSet::new();
    loop {
        let arrival = async {
            let descriptor = Arc::clone(&descriptors).acquire_owned().await;
            (descriptor, listener.accept().await)
        };
        let (descriptor, (stream, address)) = tokio::select! {
            () = stop.cancelled() => break,
            arrived = arrival => arrived,
            Some(_) = open.join_next() => continue,
        };
        let (router, leave) = (router.clone(), stop.child_token());
        let remote = remote_of(&stream, &address);
        let seat = connections.seat(leave.clone());
        open.spawn(async move {
            match seat {
                Some(seat) => {
                    let heads = Heads::default();
                    let stream = Watched::new(Paced::new(stream, patience), heads.clone());
                    let behind = (router, remote, heads);
                    attend(TokioIo::new(stream), behind, &seat, &leave, patience).await;
                }
                None => refuse(TokioIo::new(stream)).await,
            }
            drop(descriptor);
        });
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Serves one connection until it ends. Its errors are seen by its client alone.
async fn attend(
    stream: impl hyper::rt::Read + hyper::rt::Write + Unpin,
    (router, remote, heads): (Router, Remote, Heads),
    seat: &Arc<Seat>,
    leave: &CancellationToken,
    patience: Duration,
) {
    let answer = service_fn(|request: Request<Incoming>| {
        let visit = Visit::to(seat);
        let checked = heads.check(request.headers());
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(remote.clone());
        request.extensions_mut().insert(visit.clone());
        let answer = TowerToHyperService::new(router.clone()).call(request);
        async move {
            let answer = match checked {
                Ok(()) => answer.await?,
                Err(refused) => {
                    // Where its body ends is not to be known: nothing is read behind it.
                    let mut answer = refused.into_response();
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    answer
                }
            };
            Ok::<_, Infallible>(answer.map(|body| Answer { body, visit }))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(BUFFER);
    let mut connection = pin!(http.serve_connection(stream, answer));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = leave.cancelled() => {}
    }
    if seat.is_busy() {
        connection.as_mut().graceful_shutdown();
        drop(connection.await);
    }
}

async fn refuse(stream: impl hyper::rt::Read + hyper::rt::Write + Unpin) {
    let answer = service_fn(async |_: Request<Incoming>| {
        Ok::<_, Infallible>(ApiError::too_many_connections().into_response())
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(stream, answer);
    drop(tokio::time::timeout(REFUSING, connection).await);
}

/// The body of an answer. With it ends the visit.
#[derive(Debug)]
struct Answer {
    body: Body,
    visit: Visit,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.visit.end();
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
