//! What has to be there before other machines are listened to.

use std::fmt;
use std::net::SocketAddr;

/// Other machines reach an address, and something that protects who uses it there is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unprotected {
    listen: SocketAddr,
    tls: bool,
    token: bool,
}

impl Unprotected {
    /// Whether an address may be listened on: a loopback address always, another one with TLS and a token to ask for.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(listen: SocketAddr, tls: bool, token: bool) -> Result<(), Self> {
        if listen.ip().is_loopback() || (tls && token) {
            return Ok(());
        }
        Err(Self { listen, tls, token })
    }
}

impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certificate = "a certificate (make one with `wool tls self-signed`, or get one, and name it and its key in tls_certificate and tls_key)";
        let token = "a token to ask for (make one with `wool token create NAME --scope deploy,invoke,read`; tokens = \"off\" is for loopback addresses alone)";
        let missing: Vec<&str> = [(self.tls, certificate), (self.token, token)]
            .into_iter()
            .filter_map(|(there, words)| (!there).then_some(words))
            .collect();
        write!(
            f,
            "refusing to listen on {}, which other machines reach: it takes {}; or listen on a loopback address, 127.0.0.1:{}, with a tunnel or an authenticating proxy in front",
            self.listen,
            missing.join(" and "),
            self.listen.port()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_command_that_makes_it() {
        let check = |listen: &str, tls, token| {
            Unprotected::check(listen.parse().unwrap(), tls, token).map_err(|one| one.to_string())
        };
        for loopback in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert_eq!(check(loopback, false, false), Ok(()));
        }
        for other in ["0.0.0.0:1", "[::]:1", "192.168.1.5:1", "[::ffff:127.0.0.1]:1"] {
            let both = check(other, false, false).unwrap_err();
            assert!(both.contains("wool tls self-signed") && both.contains("wool token create"));
            assert!(!check(other, true, false).unwrap_err().contains("wool tls"));
            assert!(!check(other, false, true).unwrap_err().contains("wool token"));
            assert_eq!(check(other, true, true), Ok(()));
        }
    }
}
