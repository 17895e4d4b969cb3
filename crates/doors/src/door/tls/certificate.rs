//! The worker's certificate: reading it, reading it again, making one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// How long a certificate of our own making is good.
const LIFETIME: Duration = Duration::from_secs(825 * 24 * 3600);

/// What is wrong with a certificate or its key.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// The file cannot be read, or holds none.
    #[error("cannot read a PEM certificate from {path} (tls_certificate)")]
    Certificate {
        /// The file's path.
        path: PathBuf,
        /// The error of the PEM reader.
        #[source]
        source: pem::Error,
    },
    /// The file cannot be read, or holds none.
    #[error("cannot read a PEM private key from {path} (tls_key)")]
    Key {
        /// The file's path.
        path: PathBuf,
        /// The error of the PEM reader.
        #[source]
        source: pem::Error,
    },
    /// Everybody can read the key.
    #[error("every user of this machine may read the private key {0}: chmod 600 it")]
    OpenKey(PathBuf),
    /// They do not belong together, or are of a kind that is not understood.
    #[error("the certificate and its key cannot be used together")]
    Unfit(#[source] tokio_rustls::rustls::Error),
    /// A certificate for these names cannot be made.
    #[error("cannot make a certificate")]
    Make(#[source] rcgen::Error),
}

/// The certificate that is shown now, and the files that it is read from.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    shown: RwLock<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads both files.
    ///
    /// # Errors
    /// When one cannot be read, they do not fit together, or everybody can read the key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Arc<Self>, CertificateError> {
        let shown = RwLock::new(Arc::new(load(certificate, key)?));
        Ok(Arc::new(Self { certificate: certificate.to_owned(), key: key.to_owned(), shown }))
    }

    /// Reads both files again; connections that are there already keep what they have.
    ///
    /// # Errors
    /// As [`Certificates::read`]; what was shown before is then still shown.
    pub fn reread(&self) -> Result<(), CertificateError> {
        let fresh = Arc::new(load(&self.certificate, &self.key)?);
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// What makes handshakes with it: TLS 1.2 and 1.3, HTTP/1.1.
    ///
    /// # Errors
    /// When this build's cryptography knows no version of TLS.
    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Unfit)?;
        let resolver = Arc::clone(self) as Arc<dyn ResolvesServerCert>;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, CertificateError> {
    let unreadable =
        |source| CertificateError::Certificate { path: certificate.to_owned(), source };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(unreadable)?;
    if chain.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    let unreadable = |source| CertificateError::Key { path: key.to_owned(), source };
    let mode = fs::metadata(key).map_err(|error| unreadable(pem::Error::Io(error)))?.permissions();
    if mode.mode() & 0o007 != 0 {
        return Err(CertificateError::OpenKey(key.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(CertificateError::Unfit)
}

/// A certificate that vouches for itself, and its key, both as PEM: for these host names and addresses, for 825 days.
///
/// # Errors
/// When one of the names is none.
pub fn self_signed(names: &[String]) -> Result<(String, String), CertificateError> {
    let mut params = CertificateParams::new(names).map_err(CertificateError::Make)?;
    let now = SystemTime::now();
    // Clocks differ.
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + LIFETIME).into();
    let key = KeyPair::generate().map_err(CertificateError::Make)?;
    let certificate = params.self_signed(&key).map_err(CertificateError::Make)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(dir: &Path, mode: u32) -> (PathBuf, PathBuf) {
        let (certificate, key) = self_signed(&["localhost".to_owned()]).unwrap();
        let (at, beside) = (dir.join("cert.pem"), dir.join("key.pem"));
        fs::write(&at, certificate).unwrap();
        fs::write(&beside, key).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(mode)).unwrap();
        (at, beside)
    }

    #[test]
    fn a_certificate_is_read_again_and_a_broken_one_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = lay(dir.path(), 0o600);
        let certificates = Certificates::read(&certificate, &key).unwrap();
        let shown = || certificates.shown.read().unwrap().cert[0].clone();
        let first = shown();
        lay(dir.path(), 0o600);
        certificates.reread().unwrap();
        let second = shown();
        assert_ne!(first, second);
        fs::write(&certificate, "nonsense").unwrap();
        let told = certificates.reread().unwrap_err().to_string();
        assert!(told.contains("cert.pem"), "{told}");
        assert_eq!(shown(), second);
    }

    #[test]
    fn a_key_that_everybody_reads_or_that_is_another_certificates_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = lay(dir.path(), 0o644);
        let told = Certificates::read(&certificate, &key).unwrap_err().to_string();
        assert!(told.contains("chmod 600"), "{told}");
        let other = tempfile::tempdir().unwrap();
        let (_, foreign) = lay(other.path(), 0o600);
        assert!(matches!(
            Certificates::read(&certificate, &foreign),
            Err(CertificateError::Unfit(_))
        ));
    }
}
