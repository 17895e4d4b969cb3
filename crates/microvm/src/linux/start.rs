//! What a program finds when it starts: arguments, environment and the auxiliary vector, on its stack.

use std::io;

use super::clock_page;
use super::process::{Options, ProcessError};
use crate::image::{Image, ImageError, Loaded};
use crate::memory::layout::{Places, STACK_BYTES};
use crate::memory::rights::Rights;
use crate::memory::space::{Place, Space};

/// Most bytes of arguments and environment.
const MOST_BYTES: u64 = 1 << 20;
/// User and group of every guest.
pub(super) const USER: u64 = 1000;

/// Maps the stack and fills its top; returns the stack pointer.
///
/// ```text
///   rsp ► argc │ argv… 0 │ envp… 0 │ auxv… 0 0 │ padding │ 16 random bytes │ texts │ gap │ end
/// ```
pub(super) fn lay_out(
    space: &mut Space,
    places: &Places,
    image: &Image,
    program: Loaded,
    interpreter: Option<Loaded>,
    options: &Options,
) -> Result<u64, ProcessError> {
    let bottom = places.stack_end - STACK_BYTES;
    let room = |errno| ProcessError::Image(ImageError::Room(bottom, errno));
    space.map(Place::FixedIfFree(bottom), STACK_BYTES, Rights::WRITE).map_err(room)?;
    clock_page::lay_out(space, places.vdso).map_err(room)?;

    let mut texts = Vec::new();
    let mut offset_of = |text: &str| {
        let offset = texts.len() as u64;
        texts.extend_from_slice(text.as_bytes());
        texts.push(0);
        offset
    };
    let arguments: Vec<u64> = options.program.iter().map(|text| offset_of(text)).collect();
    let environment: Vec<u64> = options.environment.iter().map(|text| offset_of(text)).collect();
    let platform = offset_of("x86_64");
    let length = texts.len() as u64;
    if length > MOST_BYTES {
        return Err(ProcessError::Arguments);
    }
    let texts_at = (places.stack_end - places.stack_gap - length) & !15;
    let random_at = texts_at - 16;
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(io::Error::from)?;

    let auxiliary = [
        (libc::AT_PHDR, program.headers),
        (libc::AT_PHENT, 56),
        (libc::AT_PHNUM, u64::from(image.headers.1)),
        (libc::AT_PAGESZ, crate::memory::layout::PAGE),
        (libc::AT_BASE, interpreter.map_or(0, |it| it.bias)),
        (libc::AT_FLAGS, 0),
        (libc::AT_ENTRY, program.entry),
        (libc::AT_UID, USER),
        (libc::AT_EUID, USER),
        (libc::AT_GID, USER),
        (libc::AT_EGID, USER),
        (libc::AT_SECURE, 0),
        (libc::AT_CLKTCK, 100),
        (libc::AT_RANDOM, random_at),
        // FSGSBASE may be used.
        (libc::AT_HWCAP2, 2),
        (libc::AT_SYSINFO_EHDR, places.vdso),
        (libc::AT_PLATFORM, texts_at + platform),
        (libc::AT_EXECFN, texts_at + arguments.first().copied().unwrap_or(0)),
        (libc::AT_NULL, 0),
    ];
    let mut words = vec![arguments.len() as u64];
    words.extend(arguments.iter().map(|offset| texts_at + offset));
    words.push(0);
    words.extend(environment.iter().map(|offset| texts_at + offset));
    words.push(0);
    for (kind, value) in auxiliary {
        words.extend([kind, value]);
    }
    // The stack pointer is a multiple of 16 at a program's first instruction.
    let stack = (random_at - words.len() as u64 * 8) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(texts_at, &texts[..]), (random_at, &random[..]), (stack, &bytes[..])] {
        space.write(at, bytes.len() as u64).map_err(room)?.copy_from_slice(bytes);
    }
    Ok(stack)
}

/// What `prctl(PR_GET_NAME)` says: the last part of the path, cut to fit.
pub(super) fn name(path: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let last = path.rsplit('/').next().unwrap_or(path).as_bytes();
    let length = last.len().min(15);
    name[..length].copy_from_slice(&last[..length]);
    name
}
