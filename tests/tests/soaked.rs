//! A short soak: `make soak` runs the long ones.

use std::process::Command;

use e2e::{can_run, has_fault_points, machine};

#[test]
fn a_minute_of_load_and_faults_breaks_no_promise() {
    if !can_run() || !has_fault_points() {
        return;
    }
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.args(["--minutes", "1", "--seed", "7"]).env("LAMBSWOOL_BIN", machine::programs());
    let said = soak.output().unwrap();
    assert!(
        said.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&said.stderr),
        String::from_utf8_lossy(&said.stdout)
    );
}
