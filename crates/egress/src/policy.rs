//! The policy of one sandbox: its destinations, and the names it has looked up. What the operator
//! allows to all sandboxes is in [`crate::rules`].

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandbox::Destination;
use sandbox::network::is_host_name;
use sys::names::ResolveError;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use warden::defence::Defence;
use warden::isolation::Isolation;

use crate::addresses::FOR_NAMES;
use crate::inbox::Inbox;
use crate::names::{Names, Question, Response};
use crate::outside::{Outside, connect, end_in_order, own_addresses, permitted};
use crate::relay::relay;
use crate::rules::{Refusal, Rules};
use crate::shares::{Owner, Share};

/// Maximum number of lookups of one sandbox at a time; further ones wait.
const MAX_LOOKUPS: usize = 8;

/// Timeout of a lookup, waiting for others included: two tries of resolv.conf(5).
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle timeout of a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// How many refusals of one sandbox are logged: it can cause any number.
const LOGGED_REFUSALS: u32 = 10;

/// The result of a lookup.
type Resolution = Result<Vec<SocketAddr>, ResolveError>;

/// The bounds of every sandbox.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) rules: Rules,
    pub(crate) isolation: Isolation,
}

impl Bounds {
    /// The addresses among these that the rules permit.
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

/// The resources that all sandboxes share.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    pub(crate) bounds: Arc<Bounds>,
    pub(crate) outside: Outside,
    pub(crate) orders: Arc<Inbox>,
}

/// Decides about the lookups and connections of one sandbox.
#[derive(Debug)]
pub(crate) struct Policy {
    sandbox: u64,
    owner: Owner,
    destinations: Vec<Destination>,
    resources: Resources,
    names: Mutex<Names>,
    /// One permit for each lookup, because the host's resolver takes a thread for each.
    resolving: Arc<Semaphore>,
    /// Pending lookups by name: a client asks for the IPv4 and the IPv6 address at once.
    asked: Mutex<HashMap<String, Arc<OnceCell<Resolution>>>>,
    told: AtomicU32,
}

impl Policy {
    pub(crate) fn new(
        sandbox: u64,
        owner: Owner,
        destinations: Vec<Destination>,
        resources: Resources,
    ) -> Self {
        let resolving = Arc::new(Semaphore::new(MAX_LOOKUPS));
        let (names, asked) = (Mutex::default(), Mutex::default());
        let told = AtomicU32::new(0);
        Self { sandbox, owner, destinations, resources, names, resolving, asked, told }
    }

    /// Reserves one more connection, if the function may have one.
    pub(crate) fn reserve(&self) -> Option<Share> {
        let share = self.resources.outside.connections.take(&self.owner);
        if share.is_none() {
            self.tell("a connection was refused: its function has as many as it may");
        }
        share
    }

    /// Returns when all orders that had arrived before this call are carried out.
    pub(crate) async fn settled(&self) {
        self.resources.orders.settled().await;
    }

    /// Serves one connection to its end. Until then, closing either side resets it.
    pub(crate) async fn connection(&self, inside: &mut TcpStream) -> io::Result<()> {
        // The address that the sandbox connected to, which is local there.
        let wanted = inside.local_addr()?;
        let found = self.lead(wanted.ip().to_canonical(), wanted.port()).await?;
        let bounds = &self.resources.bounds;
        let permitted = bounds.permitted(&found, &own_addresses()?).map_err(|refusal| {
            let why = refusal.map_or_else(String::new, |refusal| refusal.to_string());
            self.tell(&format!("a connection to port {} was refused: {why}", wanted.port()));
            io::Error::from(io::ErrorKind::PermissionDenied)
        })?;
        let mut outside = connect(&permitted).await?;
        let _ = (inside.set_nodelay(true), outside.set_nodelay(true));
        relay(inside, &mut outside, IDLE_TIMEOUT, &self.resources.orders).await?;
        end_in_order(&outside)?;
        end_in_order(inside)
    }

    /// The real addresses behind a sandbox's address, if the list has it at this port.
    async fn lead(&self, address: IpAddr, port: u16) -> io::Result<Vec<SocketAddr>> {
        let listed = |host: &dyn Fn(&Destination) -> bool| {
            self.destinations.iter().any(|one| one.port == port && host(one))
        };
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let any = !self.resources.bounds.isolation.has(Defence::EgressList);
        match address {
            IpAddr::V4(made_up) if FOR_NAMES.contains(&made_up) => match self.name_at(made_up) {
                Some(name) if listed(&|one| one.has_name(&name)) => {
                    self.resolve(&name, port).await.map_err(io::Error::other)
                }
                _ => Err(refused),
            },
            _ if any || listed(&|one| one.has_address(address)) => {
                Ok(vec![SocketAddr::new(address, port)])
            }
            _ => Err(refused),
        }
    }

    async fn resolve(&self, name: &str, port: u16) -> Resolution {
        let failed = |why: &str| ResolveError::Failed(why.to_owned());
        let outside = &self.resources.outside;
        let asked = async {
            let turn = Arc::clone(&self.resolving).acquire_owned().await;
            let turn = turn.map_err(|_| failed("the sandbox is gone"))?;
            let share = outside.lookups.take(&self.owner);
            let share =
                share.ok_or_else(|| failed("its function has asked for too many at once"))?;
            outside.resolve(name, port, (turn, share)).await
        };
        timeout(RESOLVE_TIMEOUT, asked).await.unwrap_or_else(|_| Err(failed("no answer in time")))
    }

    /// Resolves a name; concurrent lookups of the same name share one result.
    async fn resolve_once(&self, name: &str, port: u16) -> Resolution {
        let asked = || self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(asked().entry(name.to_owned()).or_default());
        let found = cell.get_or_init(|| self.resolve(name, port)).await.clone();
        asked().remove(name);
        found
    }

    fn name_at(&self, address: Ipv4Addr) -> Option<Arc<str>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).name_at(address)
    }

    /// Answers one query; none where the packet is no query.
    pub(crate) async fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let question = Question::read(question)?;
        let said = self.say(&question.name, question.address).await;
        question.answer(said)
    }

    async fn say(&self, name: &str, address: bool) -> Response {
        let listed = self.destinations.iter().find(|one| one.has_name(name));
        let Some(listed) = listed.filter(|_| is_host_name(name)) else {
            self.tell(&format!("{name:?} is in no destination of its `egress`"));
            return Response::NoName;
        };
        let found = match self.resolve_once(name, listed.port).await {
            Ok(found) => found,
            Err(why) => {
                self.tell(&format!("{name}: {why}"));
                return match why {
                    ResolveError::NoName => Response::NoName,
                    ResolveError::NoAddress => Response::Nothing,
                    ResolveError::Failed(_) => Response::Failed,
                };
            }
        };
        let Ok(own) = own_addresses() else { return Response::Failed };
        let ports = self.destinations.iter().filter(|one| one.has_name(name)).map(|one| one.port);
        let mut why = None;
        for port in ports {
            let at_port: Vec<_> = found.iter().map(|to| SocketAddr::new(to.ip(), port)).collect();
            match self.resources.bounds.permitted(&at_port, &own) {
                Ok(_) if !address => return Response::Nothing,
                Ok(_) => {
                    let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                    return names.address_of(name).map_or(Response::Failed, Response::Address);
                }
                Err(refusal) => why = refusal,
            }
        }
        let why = why.map_or_else(String::new, |refusal| refusal.to_string());
        self.tell(&format!("{name} leads nowhere that may be reached: {why}"));
        Response::NoName
    }

    /// Logs a refusal, up to [`LOGGED_REFUSALS`] times.
    fn tell(&self, what: &str) {
        if self.told.fetch_add(1, Ordering::Relaxed) < LOGGED_REFUSALS {
            eprintln!("wool-egress: sandbox {}: {what}", self.sandbox);
        }
    }
}
