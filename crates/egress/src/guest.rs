//! One sandbox, as the proxy serves it.
//!
//! ```text
//!              Open                    Pause                      Resume
//!   (nothing) ──────► serving ────────────────────► waiting ────────────────► serving
//!                        └──────────── Close ──────────┴─► everything ends, the sockets close
//! ```
//! While it waits, nothing is accepted and nothing is open outside; new connections wait in the
//! kernel's queue. Connections that a pause or a close ends are reset at both ends, so that no peer
//! takes half of a message for all of it.

use std::sync::Arc;
use std::time::Duration;

use sandbox::Destination;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::names::MAX_QUERY;
use crate::outside::end_abruptly;
use crate::policy::{Policy, Resources};
use crate::shares::Owner;

/// Maximum number of connections of one sandbox; further ones are reset.
const MAX_CONNECTIONS: usize = 128;

/// Maximum number of lookups of one sandbox at a time; further ones get no answer.
const MAX_LOOKUPS: usize = 16;

/// A served sandbox. Dropping it ends the service.
#[derive(Debug)]
pub(crate) struct Guest {
    gate: watch::Sender<Option<CancellationToken>>,
    gone: CancellationToken,
}

impl Guest {
    /// Begins to serve; `names` and `listeners` are sockets in the sandbox's network.
    pub(crate) fn serve(
        sandbox: u64,
        owner: Owner,
        destinations: Vec<Destination>,
        resources: Resources,
        names: Option<UdpSocket>,
        listeners: Vec<TcpListener>,
    ) -> Self {
        let (gate, opened) = watch::channel(Some(CancellationToken::new()));
        let policy = Arc::new(Policy::new(sandbox, owner, destinations, resources));
        let own = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for listener in listeners {
            let (policy, opened) = (Arc::clone(&policy), opened.clone());
            tokio::spawn(accept_forever(policy, listener, opened, Arc::clone(&own)));
        }
        let gone = CancellationToken::new();
        if let Some(socket) = names {
            tokio::spawn(answer_until(gone.clone(), policy, socket));
        }
        Self { gate, gone }
    }

    /// Ends its connections, and makes none until [`Guest::resume`].
    pub(crate) fn pause(&self) {
        if let Some(live) = self.gate.send_replace(None) {
            live.cancel();
        }
    }

    /// Accepts connections again.
    pub(crate) fn resume(&self) {
        self.pause();
        self.gate.send_replace(Some(CancellationToken::new()));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.pause();
        self.gone.cancel();
    }
}

/// Accepts connections until the guest is dropped.
async fn accept_forever(
    policy: Arc<Policy>,
    listener: TcpListener,
    mut opened: watch::Receiver<Option<CancellationToken>>,
    own: Arc<Semaphore>,
) {
    loop {
        let live = match opened.wait_for(Option::is_some).await {
            Ok(live) => live.clone().unwrap_or_default(),
            Err(_) => return,
        };
        let mut stream = tokio::select! {
            () = live.cancelled() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors: the queue stays, and some descriptors will be free again.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        if end_abruptly(&stream).is_err() {
            continue;
        }
        // The sandbox may have been paused and resumed before this connection was made, by orders
        // that are still unread.
        policy.settled().await;
        let Some(live) = opened.borrow().clone() else { continue };
        let Ok(held) = Arc::clone(&own).try_acquire_owned() else { continue };
        let Some(share) = policy.reserve() else { continue };
        let policy = Arc::clone(&policy);
        tokio::spawn(async move {
            tokio::select! {
                // Checked first: an order to end the connection must be known before its end is
                // interpreted.
                biased;
                () = live.cancelled() => {}
                _ = policy.connection(&mut stream) => {}
            }
            drop((stream, held, share));
        });
    }
}

/// Answers lookups until the guest is dropped, which also drops pending ones.
async fn answer_until(gone: CancellationToken, policy: Arc<Policy>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let permits = Arc::new(Semaphore::new(MAX_LOOKUPS));
    let mut bytes = [0; MAX_QUERY];
    while let Some(received) = gone.run_until_cancelled(socket.recv_from(&mut bytes)).await {
        let Ok((length, from)) = received else { continue };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (policy, socket, question) =
            (Arc::clone(&policy), Arc::clone(&socket), bytes[..length].to_vec());
        let answered = async move {
            if let Some(answer) = policy.answer(&question).await {
                let _ = socket.send_to(&answer, from).await;
            }
            drop(permit);
        };
        tokio::spawn(gone.clone().run_until_cancelled_owned(answered));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use simple_dns::{CLASS, Name, Packet, Question, RCODE, TYPE};
    use sys::names::ResolveError;

    use super::*;
    use crate::inbox::Inbox;
    use crate::outside::{Lookup, Outside};
    use crate::policy::Bounds;
    use crate::shares::Shares;

    /// Room for eight lookups and eight connections at a time.
    fn resources(lookup: Lookup) -> Resources {
        let (ours, _) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let outside = Outside { connections: Shares::new(8), lookups: Shares::new(8), lookup };
        let orders = Arc::new(Inbox::new(ours).unwrap());
        Resources { bounds: Arc::new(Bounds::default()), outside, orders }
    }

    fn list() -> Vec<Destination> {
        vec!["*.example.com:443".parse().unwrap()]
    }

    /// A guest that only looks up names, and the address of its name server.
    async fn asking(owner: &str, resources: &Resources) -> (Guest, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let owner = Owner::new(owner);
        (Guest::serve(1, owner, list(), resources.clone(), Some(socket), Vec::new()), at)
    }

    /// Sends a lookup; the answer comes to the returned socket.
    async fn ask(at: SocketAddr, name: &str, kind: TYPE) -> UdpSocket {
        let mut packet = Packet::new_query(7);
        let name = Name::new_unchecked(name);
        packet.questions.push(Question::new(name, kind.into(), CLASS::IN.into(), false));
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&packet.build_bytes_vec().unwrap(), at).await.unwrap();
        socket
    }

    async fn answer(socket: UdpSocket) -> (RCODE, usize) {
        let mut bytes = [0; MAX_QUERY];
        let length = socket.recv(&mut bytes).await.unwrap();
        let packet = Packet::parse(&bytes[..length]).unwrap();
        (packet.rcode(), packet.answers.len())
    }

    /// Releases blocked lookups when the test ends, however it ends: a runtime waits for its
    /// threads.
    struct Answering(&'static AtomicBool);

    impl Drop for Answering {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Waits for a condition that only depends on other tasks.
    async fn until(what: &str, mut there: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !there() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_failure_of_the_resolver_is_not_reported_as_a_missing_name() {
        let resources = resources(|name, port| match name.split('.').next() {
            Some("there") => Ok(vec![SocketAddr::from(([8, 8, 8, 8], port))]),
            Some("missing") => Err(ResolveError::NoName),
            Some("bare") => Err(ResolveError::NoAddress),
            _ => Err(ResolveError::Failed("no server answers".to_owned())),
        });
        let (guest, at) = asking("acme/f", &resources).await;
        for (name, expected) in [
            ("there.example.com", RCODE::NoError),
            ("missing.example.com", RCODE::NameError),
            ("bare.example.com", RCODE::NoError),
            ("broken.example.com", RCODE::ServerFailure),
            ("there.example.org", RCODE::NameError),
        ] {
            // A client takes the better of two answers: both say the same.
            for kind in [TYPE::A, TYPE::AAAA] {
                let addresses = usize::from(name == "there.example.com" && kind == TYPE::A);
                let said = answer(ask(at, name, kind).await).await;
                assert_eq!(said, (expected, addresses), "{name} {kind:?}");
            }
        }
        drop(guest);
    }

    #[tokio::test]
    async fn queries_end_with_their_sandbox_and_lookups_keep_their_shares() {
        static ANSWERED: AtomicBool = AtomicBool::new(false);
        fn slow(_: &str, _: u16) -> Result<Vec<SocketAddr>, ResolveError> {
            while !ANSWERED.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(ResolveError::NoName)
        }
        let answering = Answering(&ANSWERED);
        let resources = resources(slow);
        let (guest, at) = asking("acme/f", &resources).await;
        let _asks = ask(at, "slow.example.com", TYPE::A).await;
        let lookups = Arc::clone(&resources.outside.lookups);
        until("nothing is looked up", || lookups.taken() == 1).await;
        drop(guest);
        // A pending lookup would hold the socket, and by it the sandbox's network.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(std::net::UdpSocket::bind(at).is_ok(), "the socket is held");
        assert_eq!(lookups.taken(), 1, "its thread is still taken");
        drop(answering);
        until("the share is held", || lookups.taken() == 0).await;
    }

    #[tokio::test]
    async fn a_function_with_slow_names_leaves_lookups_to_others() {
        static ANSWERED: AtomicBool = AtomicBool::new(false);
        fn slow(name: &str, _: u16) -> Result<Vec<SocketAddr>, ResolveError> {
            while name.starts_with("slow") && !ANSWERED.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(ResolveError::NoName)
        }
        let answering = Answering(&ANSWERED);
        let resources = resources(slow);
        let mut many = Vec::new();
        for sandbox in 0..8 {
            let (guest, at) = asking("acme/slow", &resources).await;
            let asks = ask(at, &format!("slow-{sandbox}.example.com"), TYPE::A).await;
            // A sandbox has a share, or is refused at once.
            if sandbox < 3 {
                until("it gets no share", || resources.outside.lookups.taken() > sandbox).await;
                many.push((guest, Some(asks)));
            } else {
                assert_eq!(answer(asks).await, (RCODE::ServerFailure, 0), "{sandbox}");
                assert_eq!(resources.outside.lookups.taken(), 3);
                many.push((guest, None));
            }
        }
        for other in ["acme/other", "zeta/slow"] {
            let (_guest, at) = asking(other, &resources).await;
            let said = answer(ask(at, "quick.example.com", TYPE::A).await).await;
            assert_eq!(said, (RCODE::NameError, 0), "{other}");
        }
        drop(answering);
        for (guest, asks) in many {
            if let Some(asks) = asks {
                assert_eq!(answer(asks).await, (RCODE::NameError, 0));
            }
            drop(guest);
        }
    }

    #[tokio::test]
    async fn connections_beyond_a_functions_share_are_reset_and_anothers_are_not() {
        let resources = resources(|_, _| Err(ResolveError::NoName));
        let policy = |owner: &str| Policy::new(1, Owner::new(owner), list(), resources.clone());
        let (one, another) = (policy("acme/f"), policy("acme/f"));
        let shares = [&one, &another, &one].map(Policy::reserve);
        assert!(shares.iter().all(Option::is_some));
        assert!(one.reserve().is_none() && another.reserve().is_none());
        assert!(policy("acme/g").reserve().is_some());
        drop(shares);
        assert!(another.reserve().is_some());
    }
}
