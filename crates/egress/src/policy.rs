//! What one sandbox may reach, and the names that it knows.

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
use crate::names::{Names, Question, Said};
use crate::outside::{Outside, connect, end_in_order, own_addresses, permitted};
use crate::relay::relay;
use crate::rules::{Refusal, Rules};
use crate::shares::{Owner, Share};

/// Names of one sandbox that are resolved at once; beyond, they wait.
const RESOLVING: usize = 8;

/// How long a name may take to be resolved, its wait for others included: two tries of resolv.conf(5).
const RESOLVE: Duration = Duration::from_secs(10);

/// How long nothing may pass over a connection.
const IDLE: Duration = Duration::from_secs(600);

/// Refusals of one sandbox that are told: it can make as many as it likes.
const TOLD: u32 = 10;

/// Where a name has led.
type Resolved = Result<Vec<SocketAddr>, ResolveError>;

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

/// What every sandbox is served with.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) bounds: Arc<Bounds>,
    pub(crate) outside: Outside,
    pub(crate) orders: Arc<Inbox>,
}

/// See the module's own words.
#[derive(Debug)]
pub(crate) struct Policy {
    sandbox: u64,
    owner: Owner,
    destinations: Vec<Destination>,
    means: Means,
    names: Mutex<Names>,
    /// The host's resolver takes a thread for each.
    resolving: Arc<Semaphore>,
    /// Names that are asked for: a client asks for its IPv6 address, too.
    asked: Mutex<HashMap<String, Arc<OnceCell<Resolved>>>>,
    told: AtomicU32,
}

impl Policy {
    pub(crate) fn new(
        sandbox: u64,
        owner: Owner,
        destinations: Vec<Destination>,
        means: Means,
    ) -> Self {
        let resolving = Arc::new(Semaphore::new(RESOLVING));
        let (names, asked) = (Mutex::default(), Mutex::default());
        let told = AtomicU32::new(0);
        Self { sandbox, owner, destinations, means, names, resolving, asked, told }
    }

    /// The place of one more connection, where its function may have one.
    pub(crate) fn place(&self) -> Option<Share> {
        let place = self.means.outside.connections.take(&self.owner);
        if place.is_none() {
            self.tell("a connection was refused: its function has as many as it may");
        }
        place
    }

    /// Returns when whatever had been ordered before has been obeyed.
    pub(crate) async fn settled(&self) {
        self.means.orders.settled().await;
    }

    /// Serves one connection to its end. Until then, closing either side resets it.
    pub(crate) async fn connection(&self, inside: &mut TcpStream) -> io::Result<()> {
        // What the sandbox has connected to: the address is local there.
        let wanted = inside.local_addr()?;
        let found = self.lead(wanted.ip().to_canonical(), wanted.port()).await?;
        let bounds = &self.means.bounds;
        let permitted = bounds.permitted(&found, &own_addresses()?).map_err(|refusal| {
            let why = refusal.map_or_else(String::new, |refusal| refusal.to_string());
            self.tell(&format!("a connection to port {} was refused: {why}", wanted.port()));
            io::Error::from(io::ErrorKind::PermissionDenied)
        })?;
        let mut outside = connect(&permitted).await?;
        let _ = (inside.set_nodelay(true), outside.set_nodelay(true));
        relay(inside, &mut outside, IDLE, &self.means.orders).await?;
        end_in_order(&outside)?;
        end_in_order(inside)
    }

    /// Where an address of the sandbox's leads, when the list has it at this port.
    async fn lead(&self, address: IpAddr, port: u16) -> io::Result<Vec<SocketAddr>> {
        let listed = |host: &dyn Fn(&Destination) -> bool| {
            self.destinations.iter().any(|one| one.port == port && host(one))
        };
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let any = !self.means.bounds.isolation.has(Defence::EgressList);
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

    async fn resolve(&self, name: &str, port: u16) -> Resolved {
        let failed = |why: &str| ResolveError::Failed(why.to_owned());
        let outside = &self.means.outside;
        let asked = async {
            let turn = Arc::clone(&self.resolving).acquire_owned().await;
            let turn = turn.map_err(|_| failed("the sandbox is gone"))?;
            let share = outside.lookups.take(&self.owner);
            let share =
                share.ok_or_else(|| failed("its function has asked for too many at once"))?;
            outside.resolve(name, port, (turn, share)).await
        };
        timeout(RESOLVE, asked).await.unwrap_or_else(|_| Err(failed("no answer in time")))
    }

    /// The same; whoever asks meanwhile is told the same.
    async fn resolve_once(&self, name: &str, port: u16) -> Resolved {
        let asked = || self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(asked().entry(name.to_owned()).or_default());
        let found = cell.get_or_init(|| self.resolve(name, port)).await.clone();
        asked().remove(name);
        found
    }

    fn name_at(&self, address: Ipv4Addr) -> Option<Arc<str>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).name_at(address)
    }

    /// Answers one question; none where it is none.
    pub(crate) async fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
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
        let found = match self.resolve_once(name, listed.port).await {
            Ok(found) => found,
            Err(why) => {
                self.tell(&format!("{name}: {why}"));
                return match why {
                    ResolveError::NoName => Said::NoName,
                    ResolveError::NoAddress => Said::Nothing,
                    ResolveError::Failed(_) => Said::Failed,
                };
            }
        };
        let Ok(own) = own_addresses() else { return Said::Failed };
        let ports = self.destinations.iter().filter(|one| one.has_name(name)).map(|one| one.port);
        let mut why = None;
        for port in ports {
            let at_port: Vec<_> = found.iter().map(|to| SocketAddr::new(to.ip(), port)).collect();
            match self.means.bounds.permitted(&at_port, &own) {
                Ok(_) if !address => return Said::Nothing,
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
