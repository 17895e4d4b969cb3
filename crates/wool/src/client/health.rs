//! A worker that takes its time, told from one that hangs.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};
use rustix::net::sockopt::socket_peercred;

use super::{Client, ClientError, Target};

/// How long a worker may say nothing before it is asked whether it is well, and how long it may take to say so.
const PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// Whether a worker answers there and serves.
    pub async fn healthy(&self) -> bool {
        let answer = tokio::time::timeout(Duration::from_secs(2), self.ask_health()).await;
        matches!(answer, Ok(Ok(response)) if response.status() == StatusCode::OK)
    }

    async fn ask_health(&self) -> Result<Response<Incoming>, ClientError> {
        self.exchange(Method::GET, "/healthz", &[], Bytes::new()).await
    }

    /// Waits for what a worker does, however long that takes, unless the worker hangs: one that is well says so meanwhile.
    pub(super) async fn watched<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let mut work = pin!(work);
        loop {
            if let Ok(done) = tokio::time::timeout(PATIENCE, work.as_mut()).await {
                return done;
            }
            tokio::select! {
                done = work.as_mut() => return done,
                // Any answer is one, and so is a refused connection: the worker stops, and ends what it has begun.
                well = tokio::time::timeout(PATIENCE, self.ask_health()) => if well.is_err() {
                    let (target, pid) = (self.target.clone(), self.pid());
                    return Err(ClientError::Hung { target, after: 2 * PATIENCE, pid });
                },
            }
        }
    }

    /// The worker's process, as the kernel says: that of who listens on its socket.
    fn pid(&self) -> Option<i32> {
        let Target::Unix(path) = &self.target else { return None };
        let socket = std::os::unix::net::UnixStream::connect(path).ok()?;
        Some(socket_peercred(&socket).ok()?.pid.as_raw_nonzero().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that hangs once `answer` is said: it takes connections, and says nothing more.
    fn hung(answer: &'static [u8]) -> (Client, tempfile::TempDir) {
        use tokio::io::AsyncWriteExt as _;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            first.write_all(answer).await.unwrap();
            std::future::pending::<()>().await;
        });
        (Client::to(Target::Unix(socket)), dir)
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_hangs_is_told_from_one_that_takes_its_time() {
        let (client, _dir) = hung(b"");
        let error = client.ask(Method::POST, "/v1/stop", &[], Bytes::new()).await.unwrap_err();
        let words = format!("kill -9 {}", std::process::id());
        assert!(matches!(error, ClientError::Hung { .. }), "{error}");
        assert!(error.to_string().contains(&words), "{error}");
        // In the middle of a reply, too.
        let (client, _dir) =
            hung(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\nb\r\n");
        let reply = client.send(Method::GET, "/", &[], Bytes::new()).await.unwrap();
        let mut lines = Vec::new();
        let error = client.lines(reply, |line| lines.push(line.to_vec())).await.unwrap_err();
        assert!(matches!(error, ClientError::Hung { .. }), "{error}");
        assert_eq!(lines, [b"a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_takes_its_time_is_waited_for_while_it_is_well() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let worker = tokio::spawn(async move {
            let (mut slow, _) = listener.accept().await.unwrap();
            for _ in 0..5 {
                let (mut asks, _) = listener.accept().await.unwrap();
                asks.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n").await.unwrap();
                // Until it has been read.
                drop(asks.read_to_end(&mut Vec::new()).await);
            }
            // It stops: there is no worker to ask any more.
            drop(listener);
            tokio::time::sleep(3 * PATIENCE).await;
            slow.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await.unwrap();
        });
        let client = Client::to(Target::Unix(socket));
        let reply = client.send(Method::GET, "/", &[], Bytes::new()).await.unwrap();
        assert_eq!(client.body(reply).await.unwrap(), "done");
        worker.await.unwrap();
    }
}
