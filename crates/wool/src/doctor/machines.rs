//! What this machine's KVM is like, and what functions missed in micro-VMs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use vmm::{Examination, missing_calls};

use super::Finding;
use crate::worker::wiring::monitor_program;

/// A way to the monitor that takes longer is not the processor's own.
const NATIVE_US: f64 = 5.0;

/// Tries KVM out. What there is to say where there is no monitor for this processor has been said already.
pub(super) fn all(state: &Path) -> Vec<Finding> {
    if !vmm::HAS_MACHINES {
        return Vec::new();
    }
    let mut findings = match examine() {
        Ok(found) => vec![way(&found), reset(&found), clock(&found), quirks(&found)],
        Err(error) => vec![Finding::degraded(
            "micro-VMs",
            format!("there are none: {error:#}"),
            "where root has none either, functions run in containers; to try them out as this user join the group kvm",
        )],
    };
    findings.push(missed(state));
    findings
}

fn examine() -> Result<Examination> {
    let program = monitor_program()?;
    let said = Command::new(&program).arg("examine").output();
    let said = said.with_context(|| {
        format!("{} cannot be started; it belongs beside `wool`", program.display())
    })?;
    if !said.status.success() {
        let words = String::from_utf8_lossy(&said.stderr);
        bail!("{}", words.trim().lines().next().unwrap_or("its monitor ended"));
    }
    serde_json::from_slice(&said.stdout).context("its monitor says something else")
}

/// How long it takes from a guest to the monitor and back.
fn way(found: &Examination) -> Finding {
    let what = "micro-VMs";
    let took = format!("{:.1} µs from a guest to its monitor and back", found.call_us);
    if found.call_us > NATIVE_US {
        return Finding::degraded(
            what,
            format!("{took}: KVM is itself in a virtual machine, or paravirtualised"),
            "nothing has to be done: system calls of functions take longer than on the processor's own virtualisation",
        );
    }
    Finding::ok(what, took)
}

fn reset(found: &Examination) -> Finding {
    let what = "micro-VMs, reset";
    if found.tells_pages {
        return Finding::ok(what, "in place");
    }
    Finding::degraded(
        what,
        "the kernel does not tell which pages a machine has changed",
        "functions with reset = \"always\" get a new machine for each call: Linux 6.7 or newer resets in place",
    )
}

/// Whether a look at a clock leaves the machine.
fn clock(found: &Examination) -> Finding {
    let what = "micro-VMs, clock";
    match &found.no_ticks {
        None => Finding::ok(what, "told by the processor's counter, inside the machine"),
        Some(reason) => Finding::degraded(
            what,
            format!("each look at it leaves the machine: {reason}"),
            "nothing has to be done: functions that look at clocks very often take longer",
        ),
    }
}

/// What no guest relies on, and our own code had to know.
fn quirks(found: &Examination) -> Finding {
    let interrupt = match found.interrupt {
        Some(13) => "int 0x80 is a protection fault, as on the processor",
        Some(6) => "int 0x80 is an invalid opcode: ring 0 is emulated",
        Some(_) => "int 0x80 is another exception than on the processor",
        None => "int 0x80 is no exception",
    };
    let keys = match found.keys {
        true => "programs can use protection keys although their machine has none",
        false => "no protection keys",
    };
    Finding::ok("micro-VMs, quirks", format!("{interrupt}; {keys}"))
}

fn missed(state: &Path) -> Finding {
    let what = "micro-VMs, missed";
    let text = fs::read_to_string(missing_calls::file(state)).unwrap_or_default();
    let [calls, spared] = missing_calls::describe(&text);
    let spared = match &spared[..] {
        [] => String::new(),
        spared => format!("libraries have tried, and usually do without: {}", spared.join(", ")),
    };
    if calls.is_empty() {
        let only = match &spared[..] {
            "" => "no function has tried a system call that is not there",
            spared => spared,
        };
        return Finding::ok(what, only);
    }
    let all =
        format!("functions have tried Linux system calls that are not there: {}", calls.join(", "));
    let parts = [all, spared].into_iter().filter(|part| !part.is_empty());
    Finding::degraded(
        what,
        parts.collect::<Vec<_>>().join("; "),
        "if such a function fails, run it in a container; and tell us",
    )
}
