//! The archives that functions come in.

use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::path::Path;

use aws::Failure;
use base64::prelude::*;
use lambda_api::Fault;
use platform::access::{Permit, Purpose};
use platform::deploy::workshop::{Files, Packing};
use platform::objects::{Found, ObjectError, Place};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::call::Call;
use crate::error::ApiError;
use crate::request::Held;

/// The largest archive in a request: the service's own limit.
const ZIP_BYTES: u64 = 52_428_800;

/// The largest one in a store of objects: what an archive may be unpacked, as none is smaller then.
const STORED_BYTES: u64 = 262_144_000;

/// Bytes that are copied at once.
const PIECE: usize = 64 << 10;

/// Where a request says that the code is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Code {
    zip_file: Option<String>,
    #[serde(rename = "S3Bucket")]
    s3_bucket: Option<String>,
    #[serde(rename = "S3Key")]
    s3_key: Option<String>,
    #[serde(rename = "S3ObjectVersion")]
    s3_object_version: Option<String>,
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

/// The archive's bytes, or where they are.
enum From {
    Request(String),
    Store(Found),
}

impl Code {
    /// The archive, spooled to disk.
    ///
    /// # Errors
    /// When there is none, or none that can be taken.
    pub(super) async fn archive<P: Purpose>(
        self,
        call: &Call,
        permit: &Permit<P>,
    ) -> Result<Archive, Fault> {
        if self.image_uri.is_some() {
            return Err(Fault::invalid_parameter_value(
                "ImageUri is not supported by Lambswool: a function is a zip archive here",
            ));
        }
        let from = match (self.zip_file, self.s3_bucket, self.s3_key) {
            (Some(text), None, None) => From::Request(text),
            (None, Some(bucket), Some(key)) => {
                let place = Place { bucket, key, version: self.s3_object_version };
                From::Store(call.app.objects.find(permit, place).map_err(unopened)?)
            }
            (None, Some(_), None) | (None, None, Some(_)) => {
                return Err(Fault::invalid_parameter_value(
                    "Please provide both S3Bucket and S3Key.",
                ));
            }
            (Some(_), ..) => {
                return Err(Fault::invalid_parameter_value(
                    "Please do not provide other FunctionCode parameters when providing a ZipFile.",
                ));
            }
            (None, None, None) => {
                return Err(Fault::invalid_parameter_value(
                    "Please provide a source for function code.",
                ));
            }
        };
        let mut held = call.budgets.deploy.hold(call.requester.tenant.as_str());
        let dir = call.app.spool.clone();
        let spooled = tokio::task::spawn_blocking(move || {
            let (file, bytes, sha256) = match from {
                From::Request(text) => {
                    held.grow_to(text.len() as u64 / 4 * 3)?;
                    let zip = decoded(&text)?;
                    spool(zip.len() as u64, &*zip, &dir)?
                }
                From::Store(found) => {
                    let object = found.open().map_err(unopened)?;
                    check_length(object.length, STORED_BYTES)?;
                    held.grow_to(object.length)?;
                    spool(object.length, object.reader, &dir)?
                }
            };
            Ok(Archive { file, bytes, sha256, held })
        });
        spooled.await.map_err(|_| ApiError::internal("the upload broke off"))?
    }
}

/// The archive in a request.
fn decoded(text: &str) -> Result<Vec<u8>, Fault> {
    let zip = BASE64_STANDARD.decode(text);
    let zip =
        zip.map_err(|error| Fault::serialization(format!("ZipFile is no Base64: {error}")))?;
    check_length(zip.len() as u64, ZIP_BYTES)?;
    Ok(zip)
}

fn check_length(bytes: u64, most: u64) -> Result<(), Fault> {
    if bytes <= most {
        return Ok(());
    }
    Err(Fault::request_entity_too_large(format!("Zipped size must be smaller than {most} bytes")))
}

/// Writes an archive of that length to a file without a name: its length, and SHA-256 as Base64.
fn spool(length: u64, from: impl Read, dir: &Path) -> Result<(File, u64, String), Fault> {
    let unwritable = |error: std::io::Error| {
        let message =
            format!("cannot store the upload: {error}; is there space in the state directory?");
        Fault::from(ApiError::internal(message))
    };
    let mut file = tempfile::tempfile_in(dir).map_err(unwritable)?;
    let (mut hash, mut from) = (Sha256::new(), from.take(length));
    let (mut buffer, mut bytes) = (vec![0; PIECE], 0);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(Fault::invalid_parameter_value(format!(
                    "Error occurred while GetObject. The archive broke off after {bytes} bytes: {error}"
                )));
            }
        };
        let piece = &buffer[..count];
        if bytes == 0 && !piece.starts_with(b"PK") {
            return Err(not_a_zip());
        }
        hash.update(piece);
        file.write_all(piece).map_err(unwritable)?;
        bytes += count as u64;
    }
    if bytes == 0 || bytes < length {
        return Err(not_a_zip());
    }
    file.rewind().map_err(unwritable)?;
    Ok((file, bytes, BASE64_STANDARD.encode(hash.finalize())))
}

fn not_a_zip() -> Fault {
    Fault::invalid_parameter_value(
        "Could not unzip uploaded file. Please check your file, then try to upload again.",
    )
}

/// Why an archive in a store cannot be had, in the service's words.
fn unopened(error: ObjectError) -> Fault {
    match &error {
        ObjectError::Failed(Failure::Refused { code, message }) => {
            Fault::invalid_parameter_value(format!(
                "Error occurred while GetObject. S3 Error Code: {code}. S3 Error Message: {message}"
            ))
        }
        ObjectError::Failed(failure) => {
            Fault::invalid_parameter_value(format!("Error occurred while GetObject. {failure}"))
        }
        ObjectError::NoStore | ObjectError::Tenant => {
            Fault::invalid_parameter_value(error.to_string())
        }
    }
}

impl Archive {
    /// The archive itself, and its part of the room for bundles: to be kept until its files are.
    pub(super) fn into_file(self) -> (File, Held) {
        (self.file, self.held)
    }

    /// Its files, for a deploy, and its part of the room for bundles: to be kept until the deploy is over.
    pub(super) fn into_files(self) -> (Files, Held) {
        (Files::Sent { packing: Packing::Zip, file: self.file }, self.held)
    }
}
