//! Asks services with AWS's interfaces that the operator names: objects of S3, queues of SQS.
//!
//! ```text
//!   Endpoint  sqs=http://127.0.0.1:9324 ─► Client ─► request, signed (Signature Version 4) ─► answer
//! ```
//! Requests go to the one address that the operator has named; redirections are not followed. They are signed with the
//! worker's own credentials: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` of its environment. All
//! calls block.

#![forbid(unsafe_code)]

mod endpoint;
pub mod s3;
mod signed;
pub mod sqs;

pub use endpoint::{Endpoint, EndpointError, Service};
pub use signed::{Client, Failure};
