//! The archives that functions come in.

use std::fs::File;
use std::io::{Seek as _, Write as _};

use base64::prelude::*;
use lambda_api::Fault;
use platform::deploy::workshop::{Files, Packing};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::call::Call;
use crate::error::ApiError;
use crate::request::Held;

/// The largest archive in a request: the service's own limit.
const ZIP_BYTES: usize = 52_428_800;

/// Where a request says that the code is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Code {
    zip_file: Option<String>,
    #[serde(rename = "S3Bucket")]
    s3_bucket: Option<String>,
    #[serde(rename = "S3Key")]
    s3_key: Option<String>,
    image_uri: Option<String>,
}

/// An archive that came.
#[derive(Debug)]
pub(super) struct Archive {
    file: File,
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// SHA-256, as Base64.
    pub(super) sha256: String,
    held: Held,
}

impl Code {
    /// The archive, spooled to disk.
    ///
    /// # Errors
    /// When there is none, or none that can be taken.
    pub(super) async fn archive(self, call: &Call) -> Result<Archive, Fault> {
        if self.image_uri.is_some() {
            return Err(Fault::invalid_parameter_value(
                "ImageUri is not supported by Lambswool: a function is a zip archive here",
            ));
        }
        let text = match (self.zip_file, self.s3_bucket.or(self.s3_key)) {
            (Some(text), None) => text,
            (Some(_), Some(_)) => {
                return Err(Fault::invalid_parameter_value(
                    "Please provide either ZipFile or S3Bucket and S3Key, not both",
                ));
            }
            (None, Some(_)) => {
                return Err(Fault::invalid_parameter_value(
                    "Code in S3 is not supported by Lambswool yet: send the archive itself, as ZipFile",
                ));
            }
            (None, None) => {
                return Err(Fault::invalid_parameter_value(
                    "Please provide a source for function code.",
                ));
            }
        };
        let mut held = call.budgets.deploy.hold(call.requester.tenant.as_str());
        held.grow_to(text.len() as u64 / 4 * 3)?;
        let dir = call.app.spool.clone();
        let spooled = tokio::task::spawn_blocking(move || spool(&text, &dir));
        let broken = |_| ApiError::internal("the upload broke off");
        let (file, bytes, sha256) = spooled.await.map_err(broken)??;
        Ok(Archive { file, bytes, sha256, held })
    }
}

fn spool(text: &str, dir: &std::path::Path) -> Result<(File, u64, String), Fault> {
    let zip = BASE64_STANDARD.decode(text);
    let zip =
        zip.map_err(|error| Fault::serialization(format!("ZipFile is no Base64: {error}")))?;
    if zip.len() > ZIP_BYTES {
        return Err(Fault::request_entity_too_large(format!(
            "Zipped size must be smaller than {ZIP_BYTES} bytes"
        )));
    }
    if !zip.starts_with(b"PK") {
        return Err(Fault::invalid_parameter_value(
            "Could not unzip uploaded file. Please check your file, then try to upload again.",
        ));
    }
    let unwritable = |error: std::io::Error| {
        let message =
            format!("cannot store the upload: {error}; is there space in the state directory?");
        Fault::from(ApiError::internal(message))
    };
    let mut file = tempfile::tempfile_in(dir).map_err(unwritable)?;
    file.write_all(&zip).and_then(|()| file.rewind()).map_err(unwritable)?;
    Ok((file, zip.len() as u64, BASE64_STANDARD.encode(Sha256::digest(&zip))))
}

impl Archive {
    /// Its files, for a deploy, and its part of the room for bundles: to be kept until the deploy is over.
    pub(super) fn into_files(self) -> (Files, Held) {
        (Files::Sent { packing: Packing::Zip, file: self.file }, self.held)
    }
}
