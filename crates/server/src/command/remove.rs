//! `wool rm`.

use anyhow::Result;
use bytes::Bytes;
use hyper::Method;

use super::{call, client, write_out};
use crate::cli::{Global, Rm};

pub(super) async fn remove(global: &Global, rm: &Rm) -> Result<()> {
    let client = client(global)?;
    for name in &rm.names {
        let path = format!("/v1/functions/{}", call::segment(name));
        client.ask(Method::DELETE, &path, &[], Bytes::new()).await?;
        write_out(format!("{name}\n").as_bytes())?;
    }
    Ok(())
}
