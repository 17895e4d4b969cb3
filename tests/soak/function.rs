//! The functions that are called, and what each must answer.

use e2e::{Value, json};
use fastrand::Rng;

use crate::service;

/// A function of the load.
#[derive(Debug)]
pub(crate) struct Function {
    /// Also its module's: not that of what it imports.
    pub(crate) name: &'static str,
    /// How often it is called, beside the others.
    pub(crate) weight: u32,
    dependencies: &'static str,
    settings: &'static str,
    body: &'static str,
    event: fn(&mut Rng) -> Value,
    expected: fn(u64, &Value) -> Expected,
}

/// The one right answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    Value(Value),
    /// Status and type of the error, and words of its message.
    Error(u16, &'static str, String),
}

impl Expected {
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Error(504, ..))
    }
}

impl Function {
    /// Its source. Each revision is another version that does the same.
    pub(crate) fn source(&self, revision: u64) -> String {
        let body = self.body;
        let (dependencies, settings) = (self.dependencies, self.settings);
        let source = format!(
            "# /// script\n# dependencies = {dependencies}\n# [tool.lambswool]\n# {settings}\n# ///\nREVISION = {revision}\n{IMPORTS}\ndef handler(event, context):\n    print('begun', event['call'], flush=True)\n{body}\n"
        );
        if self.is_connected() {
            source.replace(PORT, &service::port().to_string())
        } else {
            source
        }
    }

    /// An event, which names the call.
    pub(crate) fn event(&self, call: u64, rng: &mut Rng) -> Value {
        let mut event = (self.event)(rng);
        event["call"] = json!(call);
        event
    }

    pub(crate) fn expected(&self, call: u64, event: &Value) -> Expected {
        (self.expected)(call, event)
    }

    pub(crate) fn needs_packages(&self) -> bool {
        self.dependencies != "[]"
    }

    /// Whether it connects to [`service`], and has a secret.
    pub(crate) fn is_connected(&self) -> bool {
        self.settings.contains(PORT)
    }

    /// Whether it runs in a micro-VM.
    pub(crate) fn is_machine(&self) -> bool {
        self.settings.contains("microvm")
    }
}

/// On a machine under load an import takes a minute: that is an outlier, and no failure.
const PATIENT: &str = "timeout = 300";

/// Stands for the port of [`service`].
const PORT: &str = "@port@";

/// The secret of functions that connect, and its value.
pub(crate) const SECRET: (&str, &str) = ("SOAK_SECRET", "a word that only the function knows");

const IMPORTS: &str = "import json, os, sys, time";

fn died(words: &str) -> Expected {
    Expected::Error(502, "died", words.to_owned())
}

fn nothing(_: &mut Rng) -> Value {
    json!({})
}

/// All of them.
pub(crate) const FUNCTIONS: [Function; 26] = [
    Function {
        name: "noop",
        weight: 31,
        dependencies: "[]",
        settings: PATIENT,
        body: "    return event['call']",
        event: nothing,
        expected: |call, _| Expected::Value(json!(call)),
    },
    Function {
        name: "sums",
        weight: 12,
        dependencies: "[]",
        settings: PATIENT,
        body: "    return {'sum': sum(event['items']), 'sorted': sorted(event['items'])}",
        event: |rng| json!({"items": (0..rng.usize(1..60)).map(|_| rng.i32(-99..99)).collect::<Vec<_>>()}),
        expected: |_, event| {
            let items = event["items"].as_array().into_iter().flatten();
            let mut items: Vec<i64> = items.filter_map(Value::as_i64).collect();
            items.sort_unstable();
            Expected::Value(json!({"sum": items.iter().sum::<i64>(), "sorted": items}))
        },
    },
    Function {
        name: "frames",
        weight: 3,
        dependencies: "['pandas']",
        settings: PATIENT,
        body: "    import pandas as pd\n    n = event['n']\n    table = pd.DataFrame({'k': [i % 3 for i in range(n)], 'v': range(n)})\n    return [int(s) for s in table.groupby('k')['v'].sum()]",
        event: |rng| json!({"n": rng.u64(3..500)}),
        expected: |_, event| {
            let n = event["n"].as_u64().unwrap_or(0);
            let sum = |k| (0..n).filter(|i| i % 3 == k).sum::<u64>();
            Expected::Value(json!([sum(0), sum(1), sum(2)]))
        },
    },
    Function {
        name: "pictures",
        weight: 6,
        dependencies: "['Pillow']",
        settings: PATIENT,
        body: "    from PIL import Image\n    image = Image.new('RGB', (64, 48), tuple(event['colour'])).resize((8, 6)).transpose(2)\n    return [image.size, image.getpixel((3, 3))]",
        event: |rng| json!({"colour": [rng.u8(..), rng.u8(..), rng.u8(..)]}),
        expected: |_, event| Expected::Value(json!([[6, 8], event["colour"]])),
    },
    Function {
        name: "sleeps",
        weight: 7,
        dependencies: "[]",
        settings: PATIENT,
        body: "    time.sleep(event['ms'] / 1000)\n    return event['call']",
        event: |rng| json!({"ms": rng.u32(1..120)}),
        expected: |call, _| Expected::Value(json!(call)),
    },
    Function {
        name: "raises",
        weight: 6,
        dependencies: "[]",
        settings: PATIENT,
        body: "    raise ValueError(f\"no {event['call']}\")",
        event: nothing,
        expected: |call, _| Expected::Error(502, "ValueError", format!("no {call}")),
    },
    Function {
        name: "hoards",
        weight: 3,
        dependencies: "[]",
        settings: "timeout = 300\n# memory = '64MB'",
        body: "    return len(bytearray(os.urandom(1)) * (512 << 20))",
        event: nothing,
        expected: |_, _| died("it reached its memory limit"),
    },
    Function {
        name: "late",
        weight: 2,
        dependencies: "[]",
        settings: "timeout = 0.5",
        body: "    time.sleep(60)",
        event: nothing,
        expected: |_, _| Expected::Error(504, "timed-out", "no answer within 0.5 s".to_owned()),
    },
    Function {
        name: "spins",
        weight: 1,
        dependencies: "[]",
        settings: "timeout = 0.3",
        body: "    return sum(range(10**15))",
        event: nothing,
        expected: |_, _| Expected::Error(504, "timed-out", "no answer within 0.3 s".to_owned()),
    },
    Function {
        name: "forks",
        weight: 4,
        dependencies: "[]",
        settings: PATIENT,
        // The last one is nobody's: it stays, paused or not, until the instance ends.
        body: "    total = 0\n    for number in range(3):\n        child = os.fork()\n        if child == 0:\n            os._exit(number + 5)\n        total += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n    if not os.path.exists('/tmp/orphan'):\n        open('/tmp/orphan', 'w').close()\n        if os.fork() == 0:\n            if os.fork() == 0:\n                time.sleep(600)\n            os._exit(0)\n        os.wait()\n    return total",
        event: nothing,
        expected: |_, _| Expected::Value(json!(18)),
    },
    Function {
        name: "exits",
        weight: 3,
        dependencies: "[]",
        settings: PATIENT,
        body: "    os._exit(event['status'])",
        event: |rng| json!({"status": rng.u8(1..)}),
        expected: |_, event| died(&format!("it exited with status {}", event["status"])),
    },
    Function {
        name: "crashes",
        weight: 2,
        dependencies: "[]",
        settings: PATIENT,
        body: "    import ctypes\n    ctypes.string_at(0)",
        event: nothing,
        expected: |_, _| died("killed by SIGSEGV (11)"),
    },
    Function {
        name: "prints",
        weight: 4,
        dependencies: "[]",
        settings: PATIENT,
        body: "    for number in range(100):\n        print('a line of output that nobody will ever read', number)\n    return event['call']",
        event: nothing,
        expected: |call, _| Expected::Value(json!(call)),
    },
    Function {
        name: "fills",
        weight: 3,
        dependencies: "[]",
        settings: "timeout = 300\n# scratch = '1MB'",
        body: "    try:\n        with open('/tmp/full', 'wb', buffering=0) as file:\n            for _ in range(64):\n                file.write(bytes(65536))\n    except OSError as error:\n        os.unlink('/tmp/full')\n        return error.errno",
        event: nothing,
        expected: |_, _| Expected::Value(json!(28)),
    },
    Function {
        name: "narrow",
        weight: 5,
        dependencies: "[]",
        settings: "timeout = 300\n# concurrency = 1",
        body: "    time.sleep(0.01)\n    return event['call']",
        event: nothing,
        expected: |call, _| Expected::Value(json!(call)),
    },
    Function {
        name: "large",
        weight: 3,
        dependencies: "[]",
        settings: PATIENT,
        body: "    return event['text'] * 3",
        event: |rng| json!({"text": "wool".repeat(rng.usize(1000..100_000))}),
        expected: |_, event| Expected::Value(json!(event["text"].as_str().unwrap_or("").repeat(3))),
    },
    Function {
        name: "keeps",
        weight: 3,
        dependencies: "[]",
        settings: PATIENT,
        body: "    global kept\n    kept = bytearray(os.urandom(1)) * (24 << 20)\n    return len(kept)",
        event: nothing,
        expected: |_, _| Expected::Value(json!(24 << 20)),
    },
    Function {
        name: "threads",
        weight: 2,
        dependencies: "[]",
        settings: PATIENT,
        body: "    import threading\n    said = []\n    all = [threading.Thread(target=said.append, args=(n,)) for n in range(8)]\n    for one in all: one.start()\n    for one in all: one.join()\n    return sum(said)",
        event: nothing,
        expected: |_, _| Expected::Value(json!(28)),
    },
    Function {
        name: "fetches",
        weight: 8,
        dependencies: "[]",
        settings: "timeout = 300\n# network = 'egress'\n# egress = ['127.0.0.1:@port@']",
        body: "    import socket\n    with socket.create_connection(('127.0.0.1', @port@), 60) as end:\n        end.sendall(f\"{event['call']} {os.environ.get('SOAK_SECRET')}\\n\".encode())\n        said = end.makefile().readline()\n    if not said:\n        raise ConnectionResetError('no answer')\n    return said.strip()",
        event: nothing,
        expected: |call, _| Expected::Value(json!(format!("heard {call} {}", SECRET.1))),
    },
    Function {
        name: "machine",
        weight: 9,
        dependencies: "[]",
        settings: "timeout = 300\n# isolation = 'microvm'",
        body: "    return [os.uname().nodename, event['call']]",
        event: nothing,
        expected: |call, _| Expected::Value(json!(["microvm", call])),
    },
    Function {
        name: "pristine",
        weight: 6,
        dependencies: "[]",
        settings: "timeout = 300\n# isolation = 'microvm'\n# reset = 'always'",
        body: "    global calls\n    calls = globals().get('calls', 0) + 1\n    with open('/tmp/calls', 'a') as file:\n        file.write('.')\n    return [calls, os.path.getsize('/tmp/calls'), event['call']]",
        event: nothing,
        expected: |call, _| Expected::Value(json!([1, 1, call])),
    },
    Function {
        name: "machine_large",
        weight: 2,
        dependencies: "[]",
        settings: "timeout = 300\n# isolation = 'microvm'",
        body: "    return event['text'] * 3",
        event: |rng| json!({"text": "wool".repeat(rng.usize(1000..100_000))}),
        expected: |_, event| Expected::Value(json!(event["text"].as_str().unwrap_or("").repeat(3))),
    },
    Function {
        name: "machine_exits",
        weight: 2,
        dependencies: "[]",
        settings: "timeout = 300\n# isolation = 'microvm'",
        body: "    os._exit(event['status'])",
        event: |rng| json!({"status": rng.u8(1..)}),
        expected: |_, event| died(&format!("it exited with status {}", event["status"])),
    },
    Function {
        name: "machine_hoards",
        weight: 2,
        dependencies: "[]",
        settings: "timeout = 300\n# isolation = 'microvm'\n# memory = '64MB'",
        body: "    return len(bytearray(512 << 20))",
        event: nothing,
        expected: |_, _| died("it reached its memory limit"),
    },
    Function {
        name: "machine_fills",
        weight: 2,
        dependencies: "[]",
        settings: "timeout = 300\n# isolation = 'microvm'\n# scratch = '1MB'",
        body: "    try:\n        with open('/tmp/full', 'wb', buffering=0) as file:\n            for _ in range(64):\n                file.write(bytes(65536))\n    except OSError as error:\n        os.unlink('/tmp/full')\n        return error.errno",
        event: nothing,
        expected: |_, _| Expected::Value(json!(28)),
    },
    Function {
        name: "machine_spins",
        weight: 1,
        dependencies: "[]",
        settings: "timeout = 0.3\n# isolation = 'microvm'",
        body: "    return sum(range(10**15))",
        event: nothing,
        expected: |_, _| Expected::Error(504, "timed-out", "no answer within 0.3 s".to_owned()),
    },
];
