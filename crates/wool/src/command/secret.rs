//! `wool secret`.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use hyper::{Method, header};
use zeroize::Zeroizing;

use super::terminal::{columns, say};
use super::{call, client, write_json, write_out};
use crate::cli::{Global, Secret};
use doors::native::SecretList;

pub(super) async fn secret(global: &Global, secret: &Secret) -> Result<()> {
    let client = client(global)?;
    match secret {
        Secret::Set { name, key, value } => {
            if key.is_empty() {
                // The path of an empty name is another path's.
                bail!("the secret's name is empty: give a variable's name, such as API_KEY");
            }
            let value = read(value.as_deref())?;
            let text = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            let body = Bytes::copy_from_slice(&value);
            client.ask(Method::PUT, &path(name, Some(key)), &text, body).await?;
            Ok(())
        }
        Secret::Ls { name } => {
            let list: SecretList = client.get(&path(name, None)).await?;
            if global.json {
                return write_json(&list.secrets);
            }
            if list.secrets.is_empty() {
                say(&format!("{name} has no secrets: set one with `wool secret set {name} KEY`"));
                return Ok(());
            }
            let header = ["KEY", "SET"].map(str::to_owned).to_vec();
            let rows = list.secrets.into_iter().map(|one| vec![one.key, one.updated]);
            let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
            write_out(columns(&rows).as_bytes())
        }
        Secret::Rm { name, keys } => {
            if keys.iter().any(String::is_empty) {
                bail!("the secret's name is empty: `wool secret ls {name}` lists what there is");
            }
            for key in keys {
                client.ask(Method::DELETE, &path(name, Some(key)), &[], Bytes::new()).await?;
                write_out(format!("{key}\n").as_bytes())?;
            }
            Ok(())
        }
    }
}

fn path(name: &str, key: Option<&str>) -> String {
    let all = format!("/v1/functions/{}/secrets", call::segment(name));
    key.map_or(all.clone(), |key| format!("{all}/{}", call::segment(key)))
}

fn read(value: Option<&str>) -> Result<Zeroizing<Vec<u8>>> {
    if let Some(value) = value.filter(|value| *value != "-") {
        return Ok(Zeroizing::new(value.as_bytes().to_vec()));
    }
    if io::stdin().is_terminal() {
        bail!(
            "the value would be seen on the terminal: pipe it in, as in `pass show … | wool secret set …`"
        );
    }
    let mut all = Zeroizing::new(Vec::new());
    io::stdin().lock().read_to_end(&mut all).context("cannot read the value from stdin")?;
    if all.ends_with(b"\n") {
        all.pop();
    }
    if all.is_empty() {
        bail!(
            "stdin gave no value, and nothing was set: to set an empty one, write '' behind the key"
        );
    }
    Ok(all)
}
