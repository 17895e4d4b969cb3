//! Builds the guest's native extension: a shared object that is embedded and laid into every sandbox.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let source = "../../guest/native/landing.c";
    println!("cargo::rerun-if-changed={source}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("landing.so");
    let compiler = cc::Build::new().opt_level(2).warnings(true).get_compiler();
    let mut command: Command = compiler.to_command();
    command.args(["-shared", "-fPIC", "-fvisibility=hidden", "-o"]).arg(&out).arg(source);
    let status = command.status().expect("a C compiler is needed: install gcc");
    assert!(status.success(), "the guest's native extension does not build");
}
