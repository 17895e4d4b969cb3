use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::wire::{Convention, Decoder, Load, Reply, Request};
use crate::{Death, Kind, Limits, Network, PythonSpec, Reset};

fn python() -> PythonSpec {
    PythonSpec {
        base: "base/b".parse().unwrap(),
        guest: "guest/g".parse().unwrap(),
        interpreter: "/usr/bin/python3".to_owned(),
    }
}

fn instance_spec() -> InstanceSpec {
    InstanceSpec {
        kind: Kind::Container,
        reset: Reset::Never,
        python: python(),
        packages: None,
        code: "code/c".parse().unwrap(),
        opt: None,
        network: Network::None,
        egress: [].into(),
        owner: "test/handler".into(),
        limits: Limits::default(),
    }
}

fn zygote_spec(imports: &[&str]) -> ZygoteSpec {
    ZygoteSpec {
        kind: Kind::Container,
        python: python(),
        packages: None,
        imports: imports.iter().map(|name| (*name).to_owned()).collect(),
        network: Network::None,
        tenant: "test".into(),
        limits: Limits::default(),
    }
}

fn in_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn load(module: &str) -> Request {
    Request::Load(Load {
        module: module.to_owned(),
        function: "handler".to_owned(),
        convention: Convention::Lambda,
        name: "test".to_owned(),
        version: "1".to_owned(),
        memory_mb: 128,
        environment: BTreeMap::new(),
        binary: false,
        threads: 2,
        observe: false,
        entries: None,
        lambda: None,
    })
}

fn open(channel: OwnedFd) -> UnixStream {
    UnixStream::from_std(channel.into()).unwrap()
}

async fn next(stream: &mut UnixStream, decoder: &mut Decoder) -> Option<(Reply, Vec<u8>)> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = decoder.next_frame().unwrap() {
            return Some(Reply::decode(frame).unwrap());
        }
        match stream.read(&mut buffer).await.unwrap() {
            0 => return None,
            count => decoder.push(&buffer[..count]),
        }
    }
}

async fn send(stream: &mut UnixStream, request: &Request, body: &[u8]) {
    let mut bytes = Vec::new();
    request.encode(body, &mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
}

#[test]
fn a_guest_says_ready_loads_and_echoes_over_the_real_channel() {
    in_runtime(async {
        let provider = FakeProvider::default();
        let zygote = provider.create_zygote(zygote_spec(&[])).await.unwrap();
        let mut instance = zygote.fork(instance_spec()).await.unwrap();
        let mut stream = open(instance.connect().unwrap());
        assert!(instance.connect().is_err());
        let mut decoder = Decoder::new(1 << 20);
        assert!(matches!(next(&mut stream, &mut decoder).await, Some((Reply::Ready { .. }, _))));
        send(&mut stream, &load("echo"), b"").await;
        assert!(matches!(next(&mut stream, &mut decoder).await, Some((Reply::Loaded { .. }, _))));
        let invoke = Request::Invoke {
            id: "i".to_owned(),
            remaining_ms: 1,
            content_type: "text/plain".to_owned(),
            lambda: None,
        };
        send(&mut stream, &invoke, b"hello").await;
        let (reply, body) = next(&mut stream, &mut decoder).await.unwrap();
        assert_eq!(
            reply,
            Reply::Done { id: "i".to_owned(), content_type: "text/plain".to_owned() }
        );
        assert_eq!(body, b"hello");
    });
}

#[test]
fn a_paused_guest_answers_only_after_it_is_resumed() {
    in_runtime(async {
        let provider = FakeProvider::default();
        let mut instance = provider.create_instance(instance_spec()).await.unwrap();
        let mut stream = open(instance.connect().unwrap());
        let mut decoder = Decoder::new(1 << 20);
        next(&mut stream, &mut decoder).await.unwrap();
        instance.pause().unwrap();
        assert_eq!(provider.census().paused, 1);
        send(&mut stream, &load("echo"), b"").await;
        let wait = tokio::time::timeout(Duration::from_millis(30), stream.readable());
        assert!(wait.await.is_err());
        instance.resume().unwrap();
        assert!(matches!(next(&mut stream, &mut decoder).await, Some((Reply::Loaded { .. }, _))));
        assert_eq!(provider.census().misuses, 0);
        instance.resume().unwrap();
        assert_eq!(provider.census().misuses, 1);
    });
}

#[test]
fn the_census_returns_to_nothing_when_all_is_dropped() {
    in_runtime(async {
        let provider = FakeProvider::default();
        let zygote = provider.create_zygote(zygote_spec(&["numpy"])).await.unwrap();
        let derived = zygote.derive(zygote_spec(&["numpy", "threads"])).await.unwrap();
        assert_eq!(derived.imports().threads, 1);
        let instance = derived.fork(instance_spec()).await.unwrap();
        instance.pause().unwrap();
        assert_eq!(provider.census().instances, 1);
        drop((zygote, derived, instance));
        let left = provider.census();
        assert_eq!((left.zygotes, left.instances, left.paused), (0, 0, 0));
        assert_eq!((left.created_zygotes, left.derived_zygotes, left.forked_instances), (1, 1, 1));
    });
}

#[test]
fn a_killed_instance_is_dead_and_its_channel_ends() {
    in_runtime(async {
        let provider = FakeProvider::default();
        let mut instance = provider.create_instance(instance_spec()).await.unwrap();
        let mut stream = open(instance.connect().unwrap());
        provider.kill_instances();
        assert!(!instance.alive());
        assert_eq!(instance.autopsy().await.unwrap(), Death::Signal(9));
        let mut decoder = Decoder::new(1 << 20);
        while next(&mut stream, &mut decoder).await.is_some() {}
    });
}

#[test]
fn only_the_nth_fork_fails() {
    in_runtime(async {
        let provider = FakeProvider::default();
        provider.fail(Operation::Fork, 2, Fault::Impostor);
        let zygote = provider.create_zygote(zygote_spec(&[])).await.unwrap();
        assert!(zygote.fork(instance_spec()).await.is_ok());
        assert!(matches!(zygote.fork(instance_spec()).await, Err(ProviderError::Impostor { .. })));
        assert!(zygote.fork(instance_spec()).await.is_ok());
        provider.kill_zygotes();
        assert!(matches!(
            zygote.fork(instance_spec()).await,
            Err(ProviderError::ZygoteLost { .. })
        ));
    });
}
