//! Programs that people run, each after a public report of one that misbehaved, in every way in which an instance is made.
//! Each is right under a plain Python; its first comment says what is right.

use e2e::{Everywhere, Way, json};

#[test]
fn a_plain_program_is_right_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("sums", &json!({"numbers": [1, 2, 3]}), &json!(6));
}

#[test]
fn a_machine_tells_of_its_own_processor_and_memory() {
    let Some(ways) = Everywhere::new() else { return };
    let expected = json!({
        "processors": 1, "counted": [1, 1, 1, 1], "lists": ["0", "0", "0"], "topology": "0", "model": true, "usual": [],
        "memory": true, "pages": true, "free": true, "less": true, "cgroup": [true, true],
        "share": ["max", "100000"], "place": "0::/\n", "mounted": true, "times": true, "load": 5, "limits": true,
    });
    ways.answers_in(&Way::MACHINES, "machine_size", &json!({"bytes": 64_000_000}), &expected);
}
