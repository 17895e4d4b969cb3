//! What a sandbox reaches that may reach something, and that it is nothing else.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;

use container::Isolation;
use egress::Rules;
use sandbox::{Destination, InstanceSpec, Network, Provider, Zygote, ZygoteSpec};
use serde_json::json;
use support::{Conversation, NONE, World, can_run};

/// Connects to each place of its event, and says what came of it.
const CONNECT: &str = r#"
import errno, socket

def attempt(host, port):
    try:
        with socket.create_connection((host, port), 20) as end:
            end.sendall(b"hello")
            return end.recv(64).decode()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))

def handler(event, context):
    return [attempt(*place) for place in event]
"#;

/// Answers whoever connects with what they have said, after its own name.
fn answering(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            let mut bytes = [0; 64];
            let got = caller.read(&mut bytes).unwrap_or(0);
            let _ = caller.write_all(&[name.as_bytes(), b": ", &bytes[..got]].concat());
        }
    });
    port
}

fn rules(allow: &[&str]) -> Rules {
    let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
    Rules { allow, ..Rules::default() }
}

fn reaching(world: &World, source: &str, destinations: &[String]) -> InstanceSpec {
    let egress: Vec<Destination> = destinations.iter().map(|one| one.parse().unwrap()).collect();
    InstanceSpec { network: Network::Egress, egress: egress.into(), ..world.instance(source) }
}

async fn zygote(world: &World) -> Box<dyn Zygote> {
    let spec = ZygoteSpec { network: Network::Egress, ..world.zygote(&[]) };
    world.containers.create_zygote(spec).await.unwrap()
}

#[tokio::test]
async fn a_destination_of_the_list_is_reached_and_no_other() {
    if !can_run() {
        return;
    }
    let (listed, other) = (answering("listed"), answering("other"));
    for staged in [false, true] {
        let world = World::bounded(support::rooted(staged), NONE, rules(&["127.0.0.1"])).await;
        let zygote = zygote(&world).await;
        let spec = reaching(&world, CONNECT, &[format!("127.0.0.1:{listed}")]);
        let mut instance = zygote.fork(spec).await.unwrap();
        let mut talk = Conversation::load(instance.as_mut()).await;
        let event = json!([
            ["127.0.0.1", listed], ["127.0.0.1", other], ["127.0.0.2", listed], ["8.8.8.8", listed],
            ["169.254.169.254", 80], ["::1", other],
        ]);
        assert_eq!(
            talk.ask(&event.to_string()).await,
            json!(["listed: hello", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ENETUNREACH", "ECONNREFUSED"])
        );
        drop((talk, instance, zygote));
        world.end().await;
    }
    let _ = Isolation::LEAN;
}
