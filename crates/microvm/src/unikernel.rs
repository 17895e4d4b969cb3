//! Unikernel mode: a static program that makes ten hypercalls and no Linux system call.
//!
//! It is the smallest interface that a guest can have here. The number goes into RAX, arguments
//! into RDI and RSI; the program executes `out 0xf2, al` and finds the result in RAX, -1 for an
//! error. `guest/unikernel/wool.h` is the same in C.

mod template;

pub use template::Template;

use std::io;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use thiserror::Error;

use crate::image::{Image, ImageError};
use crate::machine::Hypervisor;
use crate::machine::Stopper;
use crate::machine::{Exit, Fault, Vcpu, VcpuError};
use crate::memory::layout::{BLOCK, Places, STACK_BYTES};
use crate::memory::rights::Rights;
use crate::memory::space::{Place, Space};

/// Bytes that one call moves.
const MAX_BYTES: u64 = 16 << 20;
const REFUSED: u64 = u64::MAX;

/// The hypercalls, by number.
mod call {
    pub(super) const EXIT: u64 = 0;
    pub(super) const LOG: u64 = 1;
    pub(super) const MONOTONIC: u64 = 2;
    pub(super) const REALTIME: u64 = 3;
    pub(super) const RANDOM: u64 = 4;
    pub(super) const GROW: u64 = 5;
    pub(super) const ARGUMENT: u64 = 6;
    pub(super) const RECEIVE: u64 = 7;
    pub(super) const SEND: u64 = 8;
    pub(super) const READY: u64 = 9;
}

/// A machine with a static program in it.
#[derive(Debug)]
pub struct Unikernel {
    // Before the space, because KVM's slots refer to it.
    vcpu: Vcpu,
    space: Space,
    stopper: Stopper,
    argument: Vec<u8>,
    request: Vec<u8>,
    started: Instant,
    heap: u64,
}

/// Why a unikernel gave control back.
#[derive(Debug, PartialEq, Eq)]
pub enum UnikernelExit {
    /// It exited with this code.
    Exited(u64),
    /// It faulted: its own rights do not allow what it did.
    Faulted(Fault),
    /// It was stopped from outside; run it again to go on.
    Stopped,
    /// It waits for its first request; set one and run it again.
    Ready,
    /// It answered the request with these bytes; run it again to go on.
    Sent(Vec<u8>),
}

/// Why a file makes no unikernel.
#[derive(Debug, Error)]
pub enum UnikernelError {
    /// The file is no program for x86-64.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// It needs a dynamic linker.
    #[error(
        "a unikernel must be linked statically (-static -nostdlib): this one needs a dynamic linker"
    )]
    Dynamic,
    /// The host has no memory for it.
    #[error("take memory for the guest")]
    Memory(#[source] io::Error),
    /// KVM refused its machine, or lost it.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
}

impl Unikernel {
    /// Loads a static program, which has not run yet.
    ///
    /// # Errors
    /// When it is no such program, or the host refuses a machine.
    pub fn new(host: &Hypervisor, file: &[u8], argument: &[u8]) -> Result<Self, UnikernelError> {
        let image = Image::parse(file)?;
        if image.interpreter.is_some() {
            return Err(UnikernelError::Dynamic);
        }
        let mut space = Space::new().map_err(UnikernelError::Memory)?;
        let places = Places::draw(&image.fixed()).map_err(UnikernelError::Memory)?;
        let places = places.ok_or(ImageError::Crowded)?;
        let loaded = image.load(file, &mut space, places.program)?;
        let bottom = places.stack_end - STACK_BYTES;
        let room = |errno| ImageError::Room(bottom, errno);
        let stack = Place::FixedIfFree(bottom);
        space.map(stack, STACK_BYTES, Rights::WRITE).map_err(room)?;
        // As after a call: compilers expect that alignment at a function's first instruction.
        let vcpu = Vcpu::new(host, &space, loaded.entry, places.stack_end - places.stack_gap - 8)?;
        Ok(Self {
            vcpu,
            space,
            stopper: Stopper::default(),
            argument: argument.to_vec(),
            request: Vec::new(),
            started: Instant::now(),
            // Static data can reach that far.
            heap: places.maps.max(loaded.end.next_multiple_of(BLOCK)),
        })
    }

    /// Stops it from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Sets the request that the next RECEIVE returns.
    pub fn set_request(&mut self, request: Vec<u8>) {
        self.request = request;
    }

    /// Runs it until it gives control back; `log` takes its output.
    ///
    /// # Errors
    /// When the machine is lost.
    pub fn run(&mut self, log: &mut dyn FnMut(&[u8])) -> Result<UnikernelExit, UnikernelError> {
        let stopper = self.stopper.clone();
        let _running = stopper.on_this_thread().map_err(UnikernelError::Memory)?;
        loop {
            if stopper.wanted() {
                return Ok(UnikernelExit::Stopped);
            }
            match self.vcpu.run(&mut self.space)? {
                Exit::Stopped => {}
                Exit::Fault(fault) => return Ok(UnikernelExit::Faulted(fault)),
                Exit::Syscall { .. } => {
                    // It has no Linux: the instruction does not exist for it.
                    let registers = self.vcpu.registers();
                    let (rip, rsp, rflags) = (registers.rip, registers.rsp, registers.rflags);
                    let fault = Fault { vector: 6, code: 0, address: 0, rip, rsp, rflags };
                    return Ok(UnikernelExit::Faulted(fault));
                }
                Exit::Hypercall => {
                    let registers = self.vcpu.registers();
                    let (number, first, second) = (registers.rax, registers.rdi, registers.rsi);
                    let (result, ended) = self.serve(number, first, second, log);
                    self.vcpu.registers().rax = result;
                    if let Some(ended) = ended {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    fn serve(
        &mut self,
        number: u64,
        first: u64,
        second: u64,
        log: &mut dyn FnMut(&[u8]),
    ) -> (u64, Option<UnikernelExit>) {
        let result = match number {
            call::EXIT => return (0, Some(UnikernelExit::Exited(first))),
            call::READY => return (0, Some(UnikernelExit::Ready)),
            call::SEND => match self.read(first, second) {
                Some(bytes) => return (0, Some(UnikernelExit::Sent(bytes.to_vec()))),
                None => REFUSED,
            },
            call::LOG => self.read(first, second).map_or(REFUSED, |bytes| {
                log(bytes);
                second
            }),
            call::MONOTONIC => nanoseconds(self.started.elapsed()),
            call::REALTIME => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds),
            call::RANDOM => self.random(first, second),
            call::GROW => self.grow(first),
            call::ARGUMENT => {
                let argument = std::mem::take(&mut self.argument);
                let result = self.give(&argument, first, second);
                self.argument = argument;
                result
            }
            call::RECEIVE => {
                let request = std::mem::take(&mut self.request);
                let result = self.give(&request, first, second);
                self.request = request;
                result
            }
            _ => REFUSED,
        };
        (result, None)
    }

    fn read(&self, start: u64, length: u64) -> Option<&[u8]> {
        if length > MAX_BYTES {
            return None;
        }
        self.space.read(start, length).ok()
    }

    fn write(&mut self, start: u64, length: u64) -> Option<&mut [u8]> {
        if length > MAX_BYTES {
            return None;
        }
        self.space.write(start, length).ok()
    }

    fn random(&mut self, start: u64, length: u64) -> u64 {
        let Some(bytes) = self.write(start, length) else { return REFUSED };
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(
                &mut bytes[filled..],
                rustix::rand::GetRandomFlags::empty(),
            ) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return REFUSED,
            }
        }
        length
    }

    /// Writes as much of `bytes` as fits; returns their whole length.
    fn give(&mut self, bytes: &[u8], start: u64, room: u64) -> u64 {
        let length = bytes.len() as u64;
        let fits = length.min(room);
        let Some(target) = self.write(start, fits) else { return REFUSED };
        let count = target.len();
        target.copy_from_slice(&bytes[..count]);
        length
    }

    /// Adds memory behind the heap; returns where it begins.
    fn grow(&mut self, length: u64) -> u64 {
        match self.space.map(Place::FixedIfFree(self.heap), length, Rights::WRITE) {
            Ok(start) => {
                self.heap = start + crate::memory::layout::page_up(length);
                start
            }
            Err(_) => REFUSED,
        }
    }
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
