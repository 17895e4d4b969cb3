//! A monitor that its guest has taken over stays in its jail: each attack is carried out by a
//! program that the warden has started as it starts every monitor.
//!
//! ```text
//!   all walls                     ─► contained, by what is expected
//!   all but the named ones        ─► it succeeds, and says what it has
//!   all but all named ones but one ─► contained, by that one: so none is named that is not needed
//! ```
//! `make escape` prints the table. This program is test and attacker: the warden executes
//! `wool-vmm` beside itself, which here is a copy of this.

#![expect(clippy::print_stdout, reason = "the table is what one runs this for")]

#[cfg(debug_assertions)]
mod attacker;
#[cfg(debug_assertions)]
mod attacks;
#[cfg(debug_assertions)]
mod plan;
#[cfg(debug_assertions)]
mod stage;

#[cfg(not(debug_assertions))]
fn main() {
    println!("walls are only missing in builds with debug assertions");
}

/// The one test of this program, as `cargo test NAME` and SPECIFICATION name it.
#[cfg(debug_assertions)]
const TEST: &str = "a_monitor_that_was_taken_over_stays_in_its_jail";

#[cfg(debug_assertions)]
fn main() {
    let us = std::env::current_exe().unwrap();
    if us.ends_with("wool-vmm") {
        attacker::be(&us.with_file_name(stage::PLAN));
    }
    let asked: Vec<String> = std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    if !asked.is_empty() && !asked.iter().any(|part| TEST.contains(part.as_str())) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skips::skip("root", "the warden is started without sudo here");
    }
    if !std::fs::exists("/dev/kvm").unwrap() {
        return skips::skip("kvm", "no /dev/kvm");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(a_monitor_that_was_taken_over_stays_in_its_jail());
}

#[cfg(debug_assertions)]
async fn a_monitor_that_was_taken_over_stays_in_its_jail() {
    let mut stage = stage::Stage::new().await;
    println!("| attack of a monitor's | contained: | without | it has |");
    println!("| --- | --- | --- | --- |");
    let (mut wrong, mut bite) = (Vec::new(), 0);
    for attack in attacks::ALL {
        let names = attack.without.join(" + ");
        if !attack.without.iter().all(|wall| stage.has(wall)) {
            println!("| {} | | {names} | (not on this host) |", attack.name);
            continue;
        }
        let inside = stage.run(attack, &[]).await;
        let outside = stage.run(attack, attack.without).await;
        println!("| {} | {inside} | {names} | {outside} |", attack.name);
        if inside != attack.contained {
            wrong.push(format!("{}: {inside} and not {}", attack.name, attack.contained));
        }
        match outside.strip_prefix("got ") {
            Some(_) => bite += 1,
            None => wrong.push(format!("{}: {outside} even without {names}", attack.name)),
        }
        for back in attack.without.iter().filter(|_| attack.without.len() > 1) {
            let rest: Vec<&str> =
                attack.without.iter().copied().filter(|one| one != back).collect();
            let met = stage.run(attack, &rest).await;
            if met.starts_with("got ") {
                wrong.push(format!("{}: {back} does not stop it: {met}", attack.name));
            }
        }
    }
    stage.end().await;
    println!("{} attacks by a monitor, {bite} of them bite", attacks::ALL.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
