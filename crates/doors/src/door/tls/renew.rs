//! The certificate of the settings, and a newer one in its place.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use sandbox::chain;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::certificate::{CertificateError, Certificates};

/// The worker's certificate and its key, when it has them.
///
/// # Errors
/// When they cannot be read or used.
pub fn certificates(
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<Arc<Certificates>>, CertificateError> {
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(None);
    };
    Certificates::read(certificate, key).map(Some)
}

/// Shows a certificate that was renewed without a new start. Inside a tokio runtime.
///
/// # Errors
/// When the process cannot have signal handlers.
pub fn reread_at_sighup(certificates: Arc<Certificates>, stop: CancellationToken) -> Result<()> {
    let mut hup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    tokio::spawn(async move {
        while stop.run_until_cancelled(hup.recv()).await.flatten().is_some() {
            // Two small files, once in a month.
            match certificates.reread() {
                Ok(()) => tracing::info!("read the certificate again"),
                Err(error) => {
                    tracing::error!(error = %chain(&error), "the certificate cannot be read: the one before stays");
                }
            }
        }
    });
    Ok(())
}
