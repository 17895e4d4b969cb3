//! `wool-vmm unikernel`: one static program, without Linux and without a family. For `wool
//! unikernel run`.

use std::io::{self, Write as _};

use microvm::machine::Fault;
use microvm::machine::Hypervisor;
use microvm::unikernel::{Ended, Unikernel, UnikernelError};
use thiserror::Error;

/// Why it has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// It is no such program, or there is no machine for it.
    #[error(transparent)]
    Unikernel(#[from] UnikernelError),
    /// It did what its own rights do not allow.
    #[error(
        "the program faulted: exception {} at {:#x}, address {:#x}", .0.vector, .0.rip, .0.address
    )]
    Faulted(Fault),
    /// Its output could not be passed on.
    #[error("write what it says")]
    Write(#[from] io::Error),
}

/// Runs a program on its requests, one after another: what it answers goes to standard output, a
/// line each, what it logs to standard error. Returns the status that it exits with; 0 once all is
/// answered.
///
/// # Errors
/// When it is no unikernel, faults, or cannot be heard.
pub fn run(
    host: &Hypervisor,
    file: &[u8],
    argument: &str,
    requests: &[String],
) -> Result<u8, RunError> {
    let mut unikernel = Unikernel::new(host, file, argument.as_bytes())?;
    let mut requests = requests.iter();
    loop {
        // What it logs nobody has to hear.
        let ended = unikernel.run(&mut |text| drop(io::stderr().write_all(text)))?;
        match ended {
            Ended::Exited(status) => return Ok(status.to_le_bytes()[0]),
            Ended::Faulted(fault) => return Err(RunError::Faulted(fault)),
            Ended::Stopped => {}
            Ended::Ready => match requests.next() {
                Some(request) => unikernel.set_request(request.clone().into_bytes()),
                None => return Ok(0),
            },
            Ended::Sent(mut answer) => {
                answer.push(b'\n');
                let mut out = io::stdout().lock();
                out.write_all(&answer)?;
                out.flush()?;
            }
        }
    }
}
