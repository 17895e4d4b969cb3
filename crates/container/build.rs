//! Builds the guest's native extensions: shared objects that are embedded and copied into every
//! sandbox.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=../../guest/native");
    for name in ["landing", "sharing"] {
        let compiler = cc::Build::new().opt_level(2).warnings(true).get_compiler();
        let mut command: Command = compiler.to_command();
        command.args(["-shared", "-fPIC", "-fvisibility=hidden", "-o"]);
        command.arg(out.join(name).with_extension("so"));
        command.arg(format!("../../guest/native/{name}.c"));
        let status = command.status().expect("a C compiler is needed: install gcc");
        assert!(status.success(), "the guest's native extension {name} does not build");
    }
}
