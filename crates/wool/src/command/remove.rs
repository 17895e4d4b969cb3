//! `wool rm`.

use anyhow::Result;
use bytes::Bytes;
use hyper::Method;

use super::terminal::complain;
use super::{call, client, write_json, write_out};
use crate::cli::{Global, Rm};
use crate::client::ClientError;

/// Removes each of the functions, also those behind one that cannot be removed; fails when there is such a one.
pub(super) async fn remove(global: &Global, rm: &Rm) -> Result<()> {
    let client = client(global)?;
    let (mut removed, mut failed) = (Vec::new(), None);
    for name in &rm.names {
        let path = format!("/v1/functions/{}", call::segment(name));
        match client.ask(Method::DELETE, &path, &[], Bytes::new()).await {
            Ok(_) => {
                if !global.json {
                    write_out(format!("{name}\n").as_bytes())?;
                }
                removed.push(name);
            }
            Err(error) => {
                // What is wrong with one function need not be with the next; a worker that is not there answers for none.
                let goes_on = matches!(error, ClientError::Refused { .. });
                if let Some(earlier) = failed.replace(error.into()) {
                    complain(&earlier);
                }
                if !goes_on {
                    break;
                }
            }
        }
    }
    if global.json {
        write_json(&serde_json::json!({ "removed": removed }))?;
    }
    failed.map_or(Ok(()), Err)
}
