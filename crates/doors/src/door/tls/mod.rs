//! TLS on the TCP listener.
//!
//! ```text
//!   accept ─► Line ─► the first byte is read or written: handshake ─► HTTP
//! ```
//!
//! The task that serves a connection makes its handshake, within the same limits: no slow client holds up the listener.
//! At SIGHUP the certificate is read again; one that does not fit is told, and the one before stays.

mod certificate;
mod line;
mod renew;
mod trust;

pub use certificate::{CertificateError, Certificates, self_signed};
pub use line::{Front, Line};
pub use renew::{certificates, reread_at_sighup};
pub use trust::{TrustError, connector};
