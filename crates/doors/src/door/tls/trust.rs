//! Whom a client believes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Why no worker can be believed.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The file cannot be read, or holds none.
    #[error("cannot read PEM certificates from {path} (--ca)")]
    Unreadable {
        /// The file's path.
        path: PathBuf,
        /// The error of the PEM reader.
        #[source]
        source: pem::Error,
    },
    /// A certificate is not understood.
    #[error("a certificate in {path} (--ca) is not understood")]
    Strange {
        /// The file's path.
        path: PathBuf,
        /// The error of the TLS library.
        #[source]
        source: tokio_rustls::rustls::Error,
    },
    /// This build's cryptography knows no version of TLS.
    #[error("no version of TLS can be spoken")]
    NoTls(#[source] tokio_rustls::rustls::Error),
}

/// What makes handshakes with a worker whose certificate is among those of a file, or is vouched for by one of them; without
/// a file, by one that this machine trusts.
///
/// # Errors
/// When the file cannot be read.
pub fn connector(ca: Option<&Path>) -> Result<TlsConnector, TrustError> {
    let roots = match ca {
        Some(path) => of_file(path)?,
        None => {
            let mut roots = RootCertStore::empty();
            // One that is odd is of no use, and no reason to do without the rest.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TrustError::NoTls)?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn of_file(path: &Path) -> Result<RootCertStore, TrustError> {
    let unreadable = |source| TrustError::Unreadable { path: path.to_owned(), source };
    let all: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(unreadable)?;
    if all.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    let mut roots = RootCertStore::empty();
    for one in all {
        let strange = |source| TrustError::Strange { path: path.to_owned(), source };
        roots.add(one).map_err(strange)?;
    }
    Ok(roots)
}
