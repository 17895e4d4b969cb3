//! One sandbox, as the proxy serves it.
//!
//! ```text
//!              Open                    Pause                      Resume
//!   (nothing) ──────► serving ────────────────────► waiting ────────────────► serving
//!                        └──────────── Close ──────────┴─► everything ends, the sockets close
//! ```
//! While it waits, nothing is accepted and nothing is open outside. Who connects meanwhile waits in the kernel's queue.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use sandbox::Destination;
use sandbox::network::is_host_name;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use warden::defence::Defence;
use warden::isolation::Isolation;

use crate::addresses::FOR_NAMES;
use crate::names::{LONGEST, Names, Question, Said};
use crate::outside::{connect, own_addresses, permitted, resolve};
use crate::relay::relay;
use crate::rules::{Refusal, Rules};

/// Connections of one sandbox at once; beyond, they are reset.
const CONNECTIONS: usize = 128;

/// Questions of one sandbox at once; beyond, they get no answer.
const QUESTIONS: usize = 16;

/// Names of one sandbox that are resolved at once; beyond, they wait.
const RESOLVING: usize = 8;

/// How long nothing may pass over a connection.
const IDLE: Duration = Duration::from_secs(600);

/// Refusals of one sandbox that are told: it can make as many as it likes.
const TOLD: u32 = 10;

/// What holds for every sandbox.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) rules: Rules,
    pub(crate) isolation: Isolation,
}

impl Bounds {
    /// Those of some addresses that may be connected to.
    fn permitted(
        &self,
        found: &[SocketAddr],
        own: &[IpAddr],
    ) -> Result<Vec<SocketAddr>, Option<Refusal>> {
        if !self.isolation.has(Defence::EgressRules) {
            return Ok(found.to_vec());
        }
        permitted(&self.rules, found, own)
    }
}

/// A sandbox that is served. It is no longer when this is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    gate: watch::Sender<Option<CancellationToken>>,
}

impl Guest {
    /// Begins to serve: `names` and `listeners` are in the sandbox's network.
    pub(crate) fn serve(
        sandbox: u64,
        destinations: Vec<Destination>,
        bounds: Arc<Bounds>,
        most: Arc<Semaphore>,
        names: Option<UdpSocket>,
        listeners: Vec<TcpListener>,
    ) -> Self {
        let (gate, opened) = watch::channel(Some(CancellationToken::new()));
        let policy = Arc::new(Policy {
            sandbox,
            destinations,
            bounds,
            names: Mutex::default(),
            resolving: Semaphore::new(RESOLVING),
            told: AtomicU32::new(0),
        });
        let own = Arc::new(Semaphore::new(CONNECTIONS));
        for listener in listeners {
            let (policy, opened) = (Arc::clone(&policy), opened.clone());
            let permits = [Arc::clone(&own), Arc::clone(&most)];
            tokio::spawn(accept_forever(policy, listener, opened, permits));
        }
        if let Some(socket) = names {
            tokio::spawn(answer_forever(policy, socket, opened));
        }
        Self { gate }
    }

    /// Ends its connections, and makes none until [`Guest::resume`].
    pub(crate) fn pause(&self) {
        if let Some(live) = self.gate.send_replace(None) {
            live.cancel();
        }
    }

    /// Serves again.
    pub(crate) fn resume(&self) {
        self.pause();
        self.gate.send_replace(Some(CancellationToken::new()));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.pause();
    }
}

/// Until the guest is gone.
async fn accept_forever(
    policy: Arc<Policy>,
    listener: TcpListener,
    mut opened: watch::Receiver<Option<CancellationToken>>,
    permits: [Arc<Semaphore>; 2],
) {
    loop {
        let live = match opened.wait_for(Option::is_some).await {
            Ok(live) => live.clone().unwrap_or_default(),
            Err(_) => return,
        };
        let stream = tokio::select! {
            () = live.cancelled() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // No descriptors: the queue stays, and some will be free again.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let held: Result<Vec<_>, _> =
            permits.iter().map(|permit| Arc::clone(permit).try_acquire_owned()).collect();
        let Ok(held) = held else {
            reset(&stream);
            continue;
        };
        let policy = Arc::clone(&policy);
        tokio::spawn(async move {
            let mut stream = stream;
            let served = live.run_until_cancelled(policy.connection(&mut stream)).await;
            if !matches!(served, Some(Ok(()))) {
                reset(&stream);
            }
            drop(held);
        });
    }
}

/// Closes it so that the other end sees that it was not the end of what was to come.
fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

/// Until the guest is gone.
async fn answer_forever(
    policy: Arc<Policy>,
    socket: UdpSocket,
    mut opened: watch::Receiver<Option<CancellationToken>>,
) {
    let socket = Arc::new(socket);
    let permits = Arc::new(Semaphore::new(QUESTIONS));
    let mut bytes = [0; LONGEST];
    loop {
        let (length, from) = tokio::select! {
            changed = opened.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            received = socket.recv_from(&mut bytes) => match received {
                Ok(received) => received,
                Err(_) => continue,
            },
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (policy, socket, question) =
            (Arc::clone(&policy), Arc::clone(&socket), bytes[..length].to_vec());
        tokio::spawn(async move {
            if let Some(answer) = policy.answer(&question).await {
                let _ = socket.send_to(&answer, from).await;
            }
            drop(permit);
        });
    }
}

/// What one sandbox may reach, and the names that it knows.
#[derive(Debug)]
struct Policy {
    sandbox: u64,
    destinations: Vec<Destination>,
    bounds: Arc<Bounds>,
    names: Mutex<Names>,
    /// The host's resolver takes a thread for each.
    resolving: Semaphore,
    told: AtomicU32,
}

impl Policy {
    /// Serves one connection to its end.
    async fn connection(&self, inside: &mut TcpStream) -> io::Result<()> {
        // What the sandbox has connected to: the address is local there.
        let wanted = inside.local_addr()?;
        let found = self.lead(wanted.ip().to_canonical(), wanted.port()).await?;
        let permitted = self.bounds.permitted(&found, &own_addresses()?).map_err(|refusal| {
            let why = refusal.map_or_else(String::new, |refusal| refusal.to_string());
            self.tell(&format!("a connection to port {} was refused: {why}", wanted.port()));
            io::Error::from(io::ErrorKind::PermissionDenied)
        })?;
        let mut outside = connect(&permitted).await?;
        let _ = (inside.set_nodelay(true), outside.set_nodelay(true));
        let relayed = relay(inside, &mut outside, IDLE).await;
        if relayed.is_err() {
            reset(&outside);
        }
        relayed
    }

    /// Where an address of the sandbox's leads, when the list has it at this port.
    async fn lead(&self, address: IpAddr, port: u16) -> io::Result<Vec<SocketAddr>> {
        let listed = |host: &dyn Fn(&Destination) -> bool| {
            self.destinations.iter().any(|one| one.port == port && host(one))
        };
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let any = !self.bounds.isolation.has(Defence::EgressList);
        match address {
            IpAddr::V4(made_up) if FOR_NAMES.contains(&made_up) => match self.name_at(made_up) {
                Some(name) if listed(&|one| one.has_name(&name)) => self.resolve(&name, port).await,
                _ => Err(refused),
            },
            _ if any || listed(&|one| one.has_address(address)) => {
                Ok(vec![SocketAddr::new(address, port)])
            }
            _ => Err(refused),
        }
    }

    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let _turn = self.resolving.acquire().await.map_err(io::Error::other)?;
        resolve(name, port).await
    }

    fn name_at(&self, address: Ipv4Addr) -> Option<Arc<str>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).name_at(address)
    }

    /// Answers one question; none where it is none.
    async fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let question = Question::read(question)?;
        let said = self.say(&question.name, question.address).await;
        question.answer(said)
    }

    async fn say(&self, name: &str, address: bool) -> Said {
        let listed = self.destinations.iter().find(|one| one.has_name(name));
        let Some(listed) = listed.filter(|_| is_host_name(name)) else {
            self.tell(&format!("{name:?} is in no destination of its `egress`"));
            return Said::NoName;
        };
        if !address {
            return Said::Nothing;
        }
        let found = match self.resolve(name, listed.port).await {
            Ok(found) => found,
            // The resolver does not tell "no such name" from "no answer" in a way that has a number.
            Err(error) => {
                self.tell(&format!("{name} was not found: {error}"));
                return Said::NoName;
            }
        };
        let Ok(own) = own_addresses() else { return Said::Failed };
        let ports = self.destinations.iter().filter(|one| one.has_name(name)).map(|one| one.port);
        let mut why = None;
        for port in ports {
            let at_port: Vec<_> = found.iter().map(|to| SocketAddr::new(to.ip(), port)).collect();
            match self.bounds.permitted(&at_port, &own) {
                Ok(_) => {
                    let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                    return names.address_of(name).map_or(Said::Failed, Said::Address);
                }
                Err(refusal) => why = refusal,
            }
        }
        let why = why.map_or_else(String::new, |refusal| refusal.to_string());
        self.tell(&format!("{name} leads nowhere that may be reached: {why}"));
        Said::NoName
    }

    /// Tells the operator, a few times.
    fn tell(&self, what: &str) {
        if self.told.fetch_add(1, Ordering::Relaxed) < TOLD {
            eprintln!("wool-egress: sandbox {}: {what}", self.sandbox);
        }
    }
}
