//! `wool env`.

use anyhow::Result;

use super::{client, token, write_json, write_out};
use crate::cli::Global;
use doors::native::WorkerStatus;

/// What clients of AWS must have, though nothing looks at it here.
const ANY: &str = "lambswool";

/// Prints what clients of AWS Lambda read, for a shell to evaluate.
pub(super) async fn env(global: &Global) -> Result<()> {
    let status: WorkerStatus = client(global)?.get("/v1/status").await?;
    let mut variables = vec![
        ("AWS_ENDPOINT_URL_LAMBDA", global.url.clone().unwrap_or(status.url)),
        ("AWS_REGION", status.lambda_region.clone()),
        ("AWS_DEFAULT_REGION", status.lambda_region),
        ("AWS_ACCESS_KEY_ID", ANY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", ANY.to_owned()),
    ];
    if let Some(token) = token::shown(global)? {
        variables.push(("AWS_SESSION_TOKEN", token.reveal().to_owned()));
    }
    if global.json {
        let all: serde_json::Map<String, serde_json::Value> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        return write_json(&all);
    }
    let lines = variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
    write_out(lines.collect::<String>().as_bytes())
}

/// A value as a shell reads it.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    match value.bytes().all(plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_value_as_it_is() {
        for (value, read) in [
            ("http://127.0.0.1:8470", "http://127.0.0.1:8470"),
            ("http://[::1]:8470", "'http://[::1]:8470'"),
            ("$(x) 'y'", r"'$(x) '\''y'\'''"),
        ] {
            assert_eq!(quoted(value), read);
        }
    }
}
