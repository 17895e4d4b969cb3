//! `wool-vmm unikernel`: runs one static program, without Linux and without a family. For `wool
//! unikernel run`.

use std::io::{self, Write as _};

use microvm::machine::Fault;
use microvm::machine::Hypervisor;
use microvm::unikernel::{Unikernel, UnikernelError, UnikernelExit};
use thiserror::Error;

/// Why a program has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// It is no unikernel, or there is no machine for it.
    #[error(transparent)]
    Unikernel(#[from] UnikernelError),
    /// It faulted: its own rights do not allow what it did.
    #[error(
        "the program faulted: exception {} at {:#x}, address {:#x}", .0.vector, .0.rip, .0.address
    )]
    Faulted(Fault),
    /// Its output could not be written.
    #[error("write the program's output")]
    Write(#[from] io::Error),
}

/// Runs a program on its requests, one after another: each answer is a line of standard output, its
/// log goes to standard error. Returns its exit status; 0 after the last answer.
///
/// # Errors
/// When it is no unikernel, faults, or its output cannot be written.
pub fn run(
    host: &Hypervisor,
    file: &[u8],
    argument: &str,
    requests: &[String],
) -> Result<u8, RunError> {
    let mut unikernel = Unikernel::new(host, file, argument.as_bytes())?;
    let mut requests = requests.iter();
    loop {
        // The log may go nowhere.
        let ended = unikernel.run(&mut |text| drop(io::stderr().write_all(text)))?;
        match ended {
            UnikernelExit::Exited(status) => return Ok(status.to_le_bytes()[0]),
            UnikernelExit::Faulted(fault) => return Err(RunError::Faulted(fault)),
            UnikernelExit::Stopped => {}
            UnikernelExit::Ready => match requests.next() {
                Some(request) => unikernel.set_request(request.clone().into_bytes()),
                None => return Ok(0),
            },
            UnikernelExit::Sent(mut answer) => {
                answer.push(b'\n');
                let mut out = io::stdout().lock();
                out.write_all(&answer)?;
                out.flush()?;
            }
        }
    }
}
