//! Archives in a store of objects that the operator named: code of a deploy that does not bring it.
//!
//! The store is asked with the worker's credentials, so whoever may name an object reads with them. That is for the default
//! tenant alone, whose functions are the operator's own.

use std::sync::Arc;

use aws::s3::Object;
use aws::{Client, Failure};
use function::DEFAULT_TENANT;
use thiserror::Error;

use crate::access::{Permit, Purpose};

/// The store of objects, where there is one.
#[derive(Clone, Debug, Default)]
pub struct Objects(Option<Arc<Client>>);

/// Which object is meant.
#[derive(Clone, Debug)]
pub struct Place {
    /// The bucket's name.
    pub bucket: String,
    /// The key in the bucket.
    pub key: String,
    /// One version of it; none: the newest one.
    pub version: Option<String>,
}

/// Why there is no object.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// The operator has named no store.
    #[error(
        "this worker has no store of objects: send the archive itself, or have `lambda_endpoints` in the worker's configuration name one, as in \"s3=http://127.0.0.1:7070\""
    )]
    NoStore,
    /// The caller's tenant may not read with the worker's credentials.
    #[error(
        "objects are read with the worker's own credentials, which is for the default tenant alone: send the archive itself"
    )]
    Tenant,
    /// The store has no such object, or does not answer.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Objects {
    /// Those of a store; none: there is no store.
    #[must_use]
    pub fn new(client: Option<Client>) -> Self {
        Self(client.map(Arc::new))
    }

    /// An object that may be opened.
    ///
    /// # Errors
    /// When there is no store, or the caller may not read it.
    pub fn find<P: Purpose>(&self, permit: &Permit<P>, place: Place) -> Result<Found, ObjectError> {
        let client = self.0.clone().ok_or(ObjectError::NoStore)?;
        if permit.tenant().as_str() != DEFAULT_TENANT {
            return Err(ObjectError::Tenant);
        }
        Ok(Found { client, place })
    }
}

/// An object that may be opened.
#[derive(Debug)]
pub struct Found {
    client: Arc<Client>,
    place: Place,
}

impl Found {
    /// Opens it. Blocks until the store answers.
    ///
    /// # Errors
    /// When it is not there, or the store does not answer.
    pub fn open(&self) -> Result<Object, ObjectError> {
        let Place { bucket, key, version } = &self.place;
        Ok(self.client.open_object(bucket, key, version.as_deref())?)
    }
}
