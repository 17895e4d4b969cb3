//! A function in Rust, with AWS's own client of the runtime API.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

async fn handle(event: LambdaEvent<Value>) -> Result<Value, Error> {
    let (event, context) = event.into_parts();
    match event["name"].as_str() {
        None => Err("who is it?".into()),
        Some("panic") => panic!("as asked"),
        Some(name) => Ok(json!({
            "greeting": format!("Hello {name}"),
            "id": context.request_id,
            "pid": std::process::id(),
            "deadline": context.deadline,
        })),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(handle)).await
}
