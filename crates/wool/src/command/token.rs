//! `wool token`, and the token that a command shows to the worker.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use hyper::{Method, header};

use super::terminal::{columns, say};
use super::{call, client, state_root, write_json, write_out};
use crate::cli::{Global, Token, TokenCreate};
use crate::client::Client;
use crate::privilege::as_owner::AsOwner;
use crate::state_directory::{Hold, State, StateError};
use doors::native::{TokenList, TokenMade, TokenRequest, TokenSummary};
use function::Label;
use platform::access::{Caller, Issuer, Permit, Purpose, Requester, Secret, Tokens, to};
use platform::audit::{self, AUDIT, Action, Among, Audit, Who};
use store_sqlite::{SqliteActions, SqliteTokens};

pub(super) async fn token(global: &Global, token: &Token) -> Result<()> {
    match token {
        Token::Create(wanted) => create(global, wanted).await,
        Token::Ls => list(global).await,
        Token::Rm { names } => remove(global, names).await,
    }
}

/// The token that was given to this command, if one was.
pub(super) fn shown(global: &Global) -> Result<Option<Secret>> {
    let (text, place) = match &global.token_file {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the token from {}", file.display()))?;
            (text, file.display().to_string())
        }
        None => match std::env::var("WOOL_TOKEN") {
            Ok(text) if !text.is_empty() => (text, "WOOL_TOKEN".to_owned()),
            _ => return Ok(None),
        },
    };
    match Secret::read(&text) {
        Some(secret) => Ok(Some(secret)),
        None => bail!(
            "{place} holds no token: one looks like wool_4f1c…_9e02…, as `wool token create` shows it"
        ),
    }
}

/// The tokens of a state directory on which no worker runs: the first ones are made before there is one. The command is
/// then the door: its user asks, who may open the directory's files.
#[derive(Debug)]
struct Offline {
    issuer: Issuer,
    audit: Audit,
    _hold: Hold,
}

impl Offline {
    /// The permit of this process's user.
    fn permit<P: Purpose<Subject = ()>>(&self) -> Result<Permit<P>> {
        let caller = Caller::User { uid: rustix::process::getuid().as_raw() };
        Ok(Requester { caller, tenant: Label::default_tenant() }.permit(&())?)
    }

    /// Writes the line that a worker would write.
    fn tell(&self, action: &str, name: &Label) {
        let line = Action {
            time: audit::now(),
            who: Who::Uid(rustix::process::getuid().as_raw()),
            remote: "command line".to_owned(),
            tenant: Label::default_tenant().to_string(),
            action: action.to_owned(),
            function: None,
            version: None,
            subject: Some(name.to_string()),
            result: "ok".to_owned(),
        };
        self.audit.write(&Among::Administrators, &line);
    }
}

/// As whose owner the state directory is looked at; at a URL there is none.
fn as_owner(global: &Global) -> Result<Option<AsOwner>> {
    if global.url.is_some() { Ok(None) } else { AsOwner::of(&state_root(global)?) }
}

/// Opens the tokens where no worker runs; of a directory that lost them only to make new ones (`makes`).
async fn without_worker(global: &Global, makes: bool) -> Result<Option<Offline>> {
    let root = state_root(global)?;
    // Who may speak to the worker need not be one who may open its files.
    if global.url.is_some() || Client::of(&root).healthy().await {
        return Ok(None);
    }
    let state = State::open(&root)?;
    match state.hold() {
        Ok(hold) => {
            if !makes {
                state.check_tokens()?;
            }
            let tokens = Tokens::open(Box::new(SqliteTokens::open(&state.access())?))?;
            let issuer = Issuer::new(Arc::new(tokens));
            let audit = Audit::new(Box::new(SqliteActions::open(&state.audit())?), AUDIT);
            Ok(Some(Offline { issuer, audit, _hold: hold }))
        }
        Err(StateError::Busy { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

async fn create(global: &Global, wanted: &TokenCreate) -> Result<()> {
    let request = TokenRequest {
        name: wanted.name.to_string(),
        tenant: global.tenant.as_ref().map(ToString::to_string),
        scopes: wanted.scopes.clone(),
        functions: wanted.functions.clone(),
        lifetime: wanted.expires.map(|span| span.0.as_secs_f64()),
    };
    // Before the database of tokens is made for it: one without a token lets callers in.
    if let Err(error) = request.clone().read() {
        anyhow::bail!("{}", error.detail().message);
    }
    // Before there is a token, which could not be shown again.
    let output = wanted.output.as_ref().map(|file| Ok::<_, anyhow::Error>((make(file)?, file)));
    let output = output.transpose()?;
    let made = match ask(global, client(global)?, request).await {
        Ok(made) => made,
        Err(error) => {
            output.iter().for_each(|(_, file)| drop(std::fs::remove_file(file)));
            return Err(error);
        }
    };
    if let Some((mut out, file)) = output {
        writeln!(out, "{}", made.token)
            .with_context(|| format!("cannot write the token to {}", file.display()))?;
        say(&format!("the token {} is in {}", made.summary.name, file.display()));
        return Ok(());
    }
    if global.json {
        return write_json(&made);
    }
    write_out(format!("{}\n", made.token).as_bytes())?;
    say("keep it: it is not shown again");
    Ok(())
}

/// Makes the token: at the worker, or where none runs.
async fn ask(global: &Global, client: Client, request: TokenRequest) -> Result<TokenMade> {
    let _owner = as_owner(global)?;
    match without_worker(global, true).await? {
        Some(offline) => {
            let new =
                request.read().map_err(|error| anyhow::anyhow!("{}", error.detail().message))?;
            let permit = offline.permit::<to::CreateToken>()?;
            let (token, secret) = offline.issuer.create(&permit, new).await?;
            offline.tell("create token", &token.name);
            Ok(TokenMade::of(&token, &secret))
        }
        None => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            let body = Bytes::from(serde_json::to_vec(&request)?);
            let response = client.ask(Method::POST, "/v1/tokens", &json, body).await?;
            let body = client.body(response).await?;
            Ok(serde_json::from_slice(&body)
                .map_err(|error| client.unexpected(error.to_string()))?)
        }
    }
}

/// Makes a file that only its owner can read. A file that is there may be open to others, or be a link of another user.
fn make(file: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(file);
    made.with_context(|| format!("cannot write the token to {}", file.display()))
}

async fn list(global: &Global) -> Result<()> {
    let client = client(global)?;
    let _owner = as_owner(global)?;
    let tokens = match without_worker(global, false).await? {
        Some(offline) => {
            let permit = offline.permit::<to::ListTokens>()?;
            offline.issuer.list(&permit).iter().map(|token| TokenSummary::of(token)).collect()
        }
        None => client.get::<TokenList>("/v1/tokens").await?.tokens,
    };
    if global.json {
        return write_json(&tokens);
    }
    if tokens.is_empty() {
        say("no tokens yet: make one with `wool token create NAME --scope …`");
        return Ok(());
    }
    let header = ["NAME", "ID", "TENANT", "SCOPES", "FUNCTIONS", "CREATED", "EXPIRES"];
    let header = header.map(str::to_owned);
    let rows = tokens.into_iter().map(|token| {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let functions = token.functions.join(",");
        vec![
            token.name,
            token.id,
            token.tenant,
            scopes.join(","),
            if functions.is_empty() { "all".to_owned() } else { functions },
            token.created,
            token.expires.unwrap_or_else(|| "never".to_owned()),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header.to_vec()).chain(rows).collect();
    write_out(columns(&rows).as_bytes())
}

async fn remove(global: &Global, names: &[Label]) -> Result<()> {
    let client = client(global)?;
    let _owner = as_owner(global)?;
    let offline = without_worker(global, false).await?;
    for name in names {
        match &offline {
            Some(offline) => {
                let permit = offline.permit::<to::RemoveToken>()?;
                if !offline.issuer.remove(&permit, name.clone()).await? {
                    bail!("no token {name}: see what there is with `wool token ls`");
                }
                offline.tell("remove token", name);
            }
            None => {
                let path = format!("/v1/tokens/{}", call::segment(name.as_str()));
                client.ask(Method::DELETE, &path, &[], Bytes::new()).await?;
            }
        }
        write_out(format!("{name}\n").as_bytes())?;
    }
    Ok(())
}
