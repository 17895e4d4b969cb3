//! Programs that people run, each after a public report of one that misbehaved, in every way in which an instance is made.
//! Each is right under a plain Python; its first comment says what is right.

use e2e::{Everywhere, json};

#[test]
fn a_plain_program_is_right_in_every_way() {
    let Some(ways) = Everywhere::new() else { return };
    ways.answers("sums", &json!({"numbers": [1, 2, 3]}), &json!(6));
}
