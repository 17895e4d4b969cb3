//! `wool deploy`, and the deploy in `wool run`.

use anyhow::{Context as _, Result, anyhow};
use hyper::{Method, StatusCode, header};

use super::pack::{self, Found, Packed};
use super::terminal::{Display, say};
use super::{call, client, write_json, write_out};
use crate::cli::{Deploy, Global};
use crate::client::{Client, ClientError};
use crate::worker::unenforced::listed;
use doors::error::ErrorDetail;
use doors::native::isolation::Instead;
use doors::native::{FunctionDetail, WorkerStatus};
use function::FunctionName;
use platform::deploy::progress::{Event, Progress as _};

/// So many bytes are read without having asked the worker whether it takes them.
const UNASKED: u64 = 16 << 20;

pub(super) async fn deploy(global: &Global, deploy: &Deploy) -> Result<()> {
    let found = pack::find(&deploy.path)?;
    let name = match &deploy.name {
        Some(name) => name.parse::<FunctionName>()?,
        None => found.stem.parse::<FunctionName>().with_context(|| {
            format!(
                "{} does not give the function a name: say one with --name",
                deploy.path.display()
            )
        })?,
    };
    let client = client(global)?;
    let packed = packed(&client, found).await?;
    let deployed = upload(&client, name.as_str(), packed, How::of(deploy.instead)).await?;
    warn_of(&deployed);
    if global.json {
        return write_json(&deployed);
    }
    let summary = &deployed.summary;
    write_out(format!("{} {}\n", summary.name, summary.version).as_bytes())?;
    say(&format!("deployed; call it with: wool invoke {}", summary.name));
    if !deployed.unenforced.is_empty() {
        say(&format!("not enforced on the worker's host: {}", listed(&deployed.unenforced)));
    }
    Ok(())
}

/// Packs what was found, unless it is more than the worker says that it takes.
pub(super) async fn packed(client: &Client, found: Found) -> Result<Packed> {
    let limit = match found.bytes > UNASKED {
        // Who may only deploy is not told; then the worker says so once it is sent.
        true => client.get::<WorkerStatus>("/v1/status").await.ok().map(|it| it.deploy_body),
        false => None,
    };
    found.within(limit)?.pack()
}

/// What a single source is called. It keeps its own name whatever it is deployed as: tracebacks then show the file that
/// people know.
pub(super) fn module_of(packed: &Packed) -> String {
    let stem = packed.stem.parse::<FunctionName>();
    stem.map_or_else(|_| "main".to_owned(), |stem| stem.to_string())
}

/// Says what is probably not as its author meant it.
pub(super) fn warn_of(function: &FunctionDetail) {
    for warning in &function.warnings {
        say(&format!("warning: {warning}"));
    }
}

/// How a bundle is deployed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    pub(super) hidden: bool,
    pub(super) fresh: bool,
    pub(super) instead: Instead,
}

impl How {
    fn of(instead: Instead) -> Self {
        Self { instead, ..Self::default() }
    }
}

/// Sends a bundle and shows what the worker does with it.
pub(super) async fn upload(
    client: &Client,
    name: &str,
    packed: Packed,
    How { hidden, fresh, instead }: How,
) -> Result<FunctionDetail> {
    let module = module_of(&packed);
    let path = format!(
        "/v1/functions/{}?hidden={hidden}&fresh={fresh}&module={module}{}",
        call::segment(name),
        instead.query()
    );
    let headers =
        [(header::CONTENT_TYPE, packed.content_type), (header::ACCEPT, "application/x-ndjson")];
    let display = Display::new();
    if packed.bytes.len() > 1_000_000 {
        display.step(&format!("uploading {} MB", packed.bytes.len() / 1_000_000));
    }
    let response = client.ask(Method::PUT, &path, &headers, packed.bytes).await?;
    let mut last = None;
    client
        .lines(response, |line| match serde_json::from_slice::<Event>(line) {
            Ok(event) => display.show(&event),
            Err(_) => last = serde_json::from_slice::<Last>(line).ok(),
        })
        .await?;
    display.finish();
    match last {
        Some(Last::Deployed(deployed)) => Ok(*deployed),
        Some(Last::Error(detail)) => {
            Err(ClientError::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, detail }.into())
        }
        None => Err(anyhow!("the worker broke off in the middle of the deploy: see its log")),
    }
}

/// The last line of a streamed deploy.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Last {
    Deployed(Box<FunctionDetail>),
    Error(ErrorDetail),
}
