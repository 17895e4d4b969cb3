//! Unikernels: from nothing, cloned where they are ready, or reset to there.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::unikernel::{Template, Unikernel, UnikernelExit};

use crate::load::{Pending, Shot, Target};

/// An arm.
pub(crate) struct Unikernels {
    name: &'static str,
    host: Hypervisor,
    way: Way,
}

enum Way {
    Cold(Vec<u8>),
    Clone(Box<Template>),
    Reset(Box<Template>, Scanner, RefCell<Option<Box<Unikernel>>>),
}

impl Unikernels {
    /// Each from the file.
    pub(crate) fn cold(name: &'static str, file: &[u8]) -> Result<Self> {
        Ok(Self { name, host: Hypervisor::open()?, way: Way::Cold(file.to_vec()) })
    }

    /// Each a clone of one that was ready.
    pub(crate) fn cloned(name: &'static str, file: &[u8]) -> Result<Self> {
        let (host, template) = ready(file)?;
        Ok(Self { name, host, way: Way::Clone(template) })
    }

    /// One clone, put back after each call.
    pub(crate) fn reset(name: &'static str, file: &[u8]) -> Result<Self> {
        let (host, template) = ready(file)?;
        let scanner = Scanner::open().context("open the pagemap")?;
        Ok(Self { name, host, way: Way::Reset(template, scanner, RefCell::new(None)) })
    }

    fn call(&self) -> Result<Shot> {
        let answered = match &self.way {
            Way::Cold(file) => {
                let mut unikernel = Unikernel::new(&self.host, file, b"")?;
                ensure!(
                    unikernel.run(&mut |_| {})? == UnikernelExit::Ready,
                    "the unikernel is not ready"
                );
                ask(&mut unikernel)?
            }
            Way::Clone(template) => ask(&mut template.spawn(&self.host)?)?,
            Way::Reset(template, scanner, kept) => {
                let mut unikernel = match kept.take().map(|kept| *kept) {
                    Some(unikernel) => unikernel,
                    None => template.spawn(&self.host)?,
                };
                let answered = ask(&mut unikernel)?;
                kept.replace(Some(Box::new(template.reset(unikernel, scanner)?)));
                answered
            }
        };
        Ok(Shot::plain(answered))
    }
}

/// One that waits for its request, frozen.
fn ready(file: &[u8]) -> Result<(Hypervisor, Box<Template>)> {
    let host = Hypervisor::open()?;
    let mut unikernel = Unikernel::new(&host, file, b"")?;
    ensure!(unikernel.run(&mut |_| {})? == UnikernelExit::Ready, "the unikernel is not ready");
    Ok((host, Box::new(Template::seal(unikernel)?)))
}

fn ask(unikernel: &mut Unikernel) -> Result<Instant> {
    unikernel.set_request(b"?".to_vec());
    match unikernel.run(&mut |_| {})? {
        UnikernelExit::Sent(_) => Ok(Instant::now()),
        ended => bail!("the unikernel did not answer: {ended:?}"),
    }
}

impl Target for Unikernels {
    fn name(&self) -> &str {
        self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async move { self.call() })
    }
}
