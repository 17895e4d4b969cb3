//! Landing a fork of a zygote in a slot.
//!
//! ```text
//!   Slot::prepare ─► Slot ── ask (message + descriptors) ─► the zygote lands a child ─► READY on the slot's channel
//!                     │                                                                  │ kernel's credentials, pidfd
//!                     │                                            impostor? uid ◄───────┤
//!                     │                                            warden: Landed ◄──────┘ uid again, cgroups, /proc
//!                     └── dropped at any point: released                    ▼
//!                                                                        Landed
//! ```
//! A READY counts only if the kernel says that its sender has the slot's uid and is in the slot's
//! cgroups. After that, no ancillary data is read from the channel any more.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use sandbox::wire::{Decoder, Reply};
use sandbox::{Death, ProviderError, SandboxId};
use sys::process::PidFd;
use sys::scm;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use warden::defence::Defence;
use warden::protocol::{Answer, Command, Host, Limits, Network};

use crate::client::{Client, unexpected};
use crate::handle::Handle;
use crate::watch::watch;

/// How long a zygote may take to answer. A fork takes a millisecond, under heavy load a hundred.
const FORK_TIMEOUT: Duration = Duration::from_secs(10);

/// The steps of a landing, as bits; `guest/native/landing.c` has the same numbers. The kernel's own
/// `CLONE_NEW*` bits are added to them: the namespaces to make.
mod flag {
    pub(super) const NEW_PID: u32 = libc::CLONE_NEWPID.cast_unsigned();
    pub(super) const STACK_FILTER: u32 = 2;
    pub(super) const SCOPE: u32 = 4;
    pub(super) const USER_NS: u32 = 8;
    pub(super) const INSTANCE: u32 = 16;
    pub(super) const REHEARSE: u32 = 32;
    pub(super) const UNPRIVILEGED: u32 = 64;
    pub(super) const CLOSE: u32 = 256;
    pub(super) const UNDUMPABLE: u32 = 512;
}

/// Whether a zygote or an instance is to land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Instance,
    Zygote,
}

/// The message that asks a zygote for a fork; descriptors come along.
fn fork_message(uid: u32, flags: u32) -> [u8; 9] {
    let mut message = [b'F'; 9];
    message[1..5].copy_from_slice(&uid.to_ne_bytes());
    message[5..].copy_from_slice(&flags.to_ne_bytes());
    message
}

/// Everything a fork needs, made ahead of it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) handle: Handle,
    zygote: SandboxId,
    role: Role,
    uid: u32,
    inner_uid: u32,
    network: Network,
    /// In the order that the zygote expects. Without the root where mounts cannot come late.
    for_zygote: Vec<OwnedFd>,
    has_root: bool,
    channel: OwnedFd,
}

/// A fork that has landed and was identified.
#[derive(Debug)]
pub(crate) struct LandedFork {
    pub(crate) handle: Handle,
    pub(crate) channel: OwnedFd,
    pub(crate) process: PidFd,
}

impl Slot {
    pub(crate) async fn prepare(
        client: &Arc<Client>,
        name: SandboxId,
        zygote: SandboxId,
        (role, network): (Role, Network),
        packages: Option<String>,
        limits: Limits,
    ) -> Result<Self, ProviderError> {
        let derive = role == Role::Zygote;
        let command =
            Command::Prepare { sandbox: name.0, zygote: zygote.0, derive, packages, limits };
        // From here on the name exists in the warden, whatever becomes of this call.
        let mut handle = Handle::new(Arc::clone(client), name);
        let (answer, mut fds) = client.call(command, &[]).await?;
        let Answer::Slot { uid, inner_uid, cgroups, root, output, files } = answer else {
            return Err(unexpected());
        };
        let count = usize::from(root) + 2 + cgroups + usize::from(output);
        if fds.len() <= count {
            return Err(unexpected());
        }
        let mut rest = fds.split_off(count).into_iter();
        let channel = rest.next().ok_or_else(unexpected)?;
        handle.take_files(files, rest);
        let for_zygote = fds;
        let has_root = root;
        Ok(Self { handle, zygote, role, uid, inner_uid, network, for_zygote, has_root, channel })
    }

    /// Adds the root that the warden made late (`Command::Place` with early mounts).
    pub(crate) fn set_root(&mut self, root: OwnedFd) {
        self.for_zygote.insert(0, root);
        self.has_root = true;
    }

    pub(crate) fn has_root(&self) -> bool {
        self.has_root
    }

    /// Lets the zygote behind `control` land a fork in this slot. `rehearse` is set when no call
    /// waits for the fork: pages that a first call writes to are then copied ahead of it.
    pub(crate) async fn land(
        self,
        control: BorrowedFd<'_>,
        rehearse: bool,
    ) -> Result<LandedFork, ProviderError> {
        let Self { handle, zygote, role, uid, inner_uid, network, for_zygote, channel, .. } = self;
        scm::want_credentials(channel.as_fd(), true)
            .map_err(ProviderError::step("ask for credentials"))?;
        let host = handle.client.host();
        let flags = steps(role, network, host) | if rehearse { flag::REHEARSE } else { 0 };
        let message = fork_message(inner_uid, flags);
        let borrowed: Vec<_> = for_zygote.iter().map(AsFd::as_fd).collect();
        let lost = |reason: String| ProviderError::ZygoteLost { id: zygote, reason };
        scm::send(control, &message, &borrowed, false).map_err(|error| lost(error.to_string()))?;
        // This copy of the guest's end must be closed: otherwise a fork that fails would leave the
        // channel open for ever.
        drop(for_zygote);

        let channel = watch(channel).map_err(ProviderError::step("watch the channel"))?;
        let mut bytes = [0; 1024];
        let read =
            channel.async_io(Interest::READABLE, |fd| scm::receive(fd.as_fd(), &mut bytes, false));
        let received = match tokio::time::timeout(FORK_TIMEOUT, read).await {
            Err(_) => return Err(lost(format!("no child within {} s", FORK_TIMEOUT.as_secs()))),
            Ok(Err(error)) => return Err(lost(error.to_string())),
            Ok(Ok(received)) if received.length == 0 => {
                let reason = "its child ended before it was ready".to_owned();
                return Err(unlanded(&handle, zygote, reason).await);
            }
            Ok(Ok(received)) => received,
        };
        let impostor = |reason: String| ProviderError::Impostor { id: zygote, reason };
        if !received.fds.is_ok_and(|fds| fds.is_empty()) {
            return Err(impostor("descriptors come with its first words".to_owned()));
        }
        if let Err(reason) = ready(role, &bytes[..received.length]) {
            return Err(unlanded(&handle, zygote, reason).await);
        }
        let sender = received
            .credentials
            .ok_or_else(|| impostor("the kernel names no sender".to_owned()))?;
        if host.isolation.has(Defence::CheckUid) && sender.uid != uid {
            return Err(impostor(format!("uid {} instead of {uid}", sender.uid)));
        }
        let process = match received.pidfd {
            Some(pidfd) => PidFd::from(pidfd),
            // Before Linux 6.5. If the number is another process's by now, the warden sees another
            // uid.
            None => PidFd::open(sender.pid).map_err(|error| lost(error.to_string()))?,
        };
        let channel = channel.into_inner();
        scm::want_credentials(channel.as_fd(), false)
            .map_err(ProviderError::step("ask for no more credentials"))?;
        let command = Command::Landed { sandbox: handle.id.0 };
        match handle.client.call(command, &[process.as_fd()]).await {
            Ok(_) => Ok(LandedFork { handle, channel, process }),
            Err(ProviderError::Refused(reason)) => Err(impostor(reason)),
            Err(other) => Err(other),
        }
    }
}

/// The steps of a landing, without those that a measurement switches off.
fn steps(role: Role, network: Network, host: &Host) -> u32 {
    let instance = role == Role::Instance;
    let steps = [
        (Defence::PidNamespace, instance, flag::NEW_PID),
        (Defence::StackedFilter, instance, flag::STACK_FILTER),
        (Defence::LandlockScopes, host.scopes, flag::SCOPE),
        (Defence::Capabilities, true, flag::UNPRIVILEGED),
        (Defence::CloseDescriptors, true, flag::CLOSE),
        (Defence::Undumpable, true, flag::UNDUMPABLE),
    ];
    let taken =
        steps.into_iter().filter(|(defence, asked, _)| *asked && host.isolation.has(*defence));
    let own = network.own(instance, host.isolation.own).bits().cast_unsigned();
    let always = flag::USER_NS | own | if instance { flag::INSTANCE } else { 0 };
    taken.fold(always, |all, (_, _, step)| all | step)
}

/// The error of a failed landing. Limits of a slot that are too small for a fork are no fault of
/// the zygote, which other functions share.
async fn unlanded(handle: &Handle, zygote: SandboxId, reason: String) -> ProviderError {
    let refused = [libc::ENOMEM, libc::EAGAIN];
    let told = refused.iter().any(|errno| reason.ends_with(&format!(": errno {errno}")));
    if told || matches!(handle.inspect().await, Ok((Death::OutOfMemory, _))) {
        return ProviderError::Interpreter(format!(
            "a fork does not fit into the instance's limits of memory or processes ({reason}): raise them"
        ));
    }
    ProviderError::ZygoteLost { id: zygote, reason }
}

/// Checks the first message of a landed process: a frame on an instance's stream, a packet on a
/// zygote's control socket.
fn ready(role: Role, bytes: &[u8]) -> Result<(), String> {
    let said = match role {
        Role::Instance => {
            let mut decoder = Decoder::new(0);
            decoder.push(bytes);
            match decoder.next_frame() {
                Ok(Some(frame)) if decoder.pending() == 0 => frame.header,
                _ => return Err("its child's first words are no frame".to_owned()),
            }
        }
        // The native code sends a failed step as a frame, also on a zygote's socket.
        Role::Zygote if bytes.first() != Some(&b'{') => bytes.get(8..).unwrap_or_default().to_vec(),
        Role::Zygote => bytes.to_vec(),
    };
    match serde_json::from_slice(&said) {
        Ok(Reply::Ready { .. }) => Ok(()),
        Ok(Reply::Failed { failure, .. }) => Err(format!("landing failed: {}", failure.message)),
        _ => Err("its child's first words are not READY".to_owned()),
    }
}

/// Reads one packet from a zygote's control socket.
pub(crate) async fn read_packet(
    control: &AsyncFd<OwnedFd>,
    limit: Duration,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 64 << 10];
    let read =
        control.async_io(Interest::READABLE, |fd| scm::receive(fd.as_fd(), &mut bytes, false));
    let received = tokio::time::timeout(limit, read)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    if received.length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // No descriptor is expected; more than fit are no accident.
    received.fds?;
    bytes.truncate(received.length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_says_ready_and_nothing_else() {
        let mut frame = Vec::new();
        Reply::Ready { pid: 1 }.encode(b"", &mut frame).unwrap();
        assert_eq!(ready(Role::Instance, &frame), Ok(()));
        let mut more = frame.clone();
        more.push(0);
        assert!(ready(Role::Instance, &more).is_err());
        assert!(ready(Role::Instance, &frame[..5]).is_err());
        assert!(ready(Role::Instance, b"").is_err());
        assert_eq!(ready(Role::Zygote, br#"{"kind":"ready","pid":7}"#), Ok(()));
        assert!(ready(Role::Zygote, br#"{"kind":"loaded","milliseconds":0}"#).is_err());
    }
}
