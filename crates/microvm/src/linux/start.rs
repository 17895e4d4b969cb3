//! Starts a program: loads it and its interpreter, and writes its arguments onto its stack.

use std::io;

use rustix::io::Errno;

use crate::image::{Image, ImageError, Placement};
use crate::linux::state::alarm::Alarm;
use crate::linux::state::clock_page;
use crate::linux::state::clock_page::clock_page_for;
use crate::linux::state::cpu_time::CpuTime;
use crate::linux::state::error::ProcessError;
use crate::linux::state::files::{Files, Object, Stream};
use crate::linux::state::ids::{PID, USER};
use crate::linux::state::kernel::Kernel;
use crate::linux::state::process::Process;
use crate::linux::state::resource_limits::ResourceLimits;
use crate::linux::state::signals::Signals;
use crate::linux::state::threads::Threads;
use crate::machine::{Hypervisor, Vcpu};
use crate::memory::arena::MemoryKind;
use crate::memory::file_mappings::FileMapping;
use crate::memory::layout::{Places, STACK_BYTES};
use crate::memory::rights::Rights;
use crate::memory::space::{Place, Space};
use crate::vfs::{NodeId, Tree};

/// The descriptor of the channel to the worker.
const CHANNEL: u64 = 3;
/// Bytes of arguments and environment.
const MAX_BYTES: u64 = 1 << 20;

/// Maps the stack and fills its top; returns the stack pointer.
///
/// ```text
///   rsp ► argc │ argv… 0 │ envp… 0 │ auxv… 0 0 │ padding │ 16 random bytes │ texts │ gap │ end
/// ```
fn lay_out(
    space: &mut Space,
    places: &Places,
    image: &Image,
    program: Placement,
    interpreter: Option<Placement>,
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
    if length > MAX_BYTES {
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
        // AT_HWCAP2: the program may use FSGSBASE.
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

/// The name for `prctl(PR_GET_NAME)`: the last part of the path, cut to fit.
fn name(path: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let last = path.rsplit('/').next().unwrap_or(path).as_bytes();
    let length = last.len().min(15);
    name[..length].copy_from_slice(&last[..length]);
    name
}

/// The program to run, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program's path in the guest's tree, and its arguments from the program's own name on.
    pub program: Vec<String>,
    /// Its environment, as `NAME=value`.
    pub environment: Vec<String>,
    /// Whether descriptor 3 is a channel to the monitor.
    pub channel: bool,
}

impl Process {
    /// Loads a program of the tree, which has not run yet.
    ///
    /// # Errors
    /// When there is no such program, or the host refuses a machine.
    pub fn start(host: &Hypervisor, tree: Tree, options: &Options) -> Result<Self, ProcessError> {
        Self::start_in(MemoryKind::File, host, tree, options)
    }

    /// As [`Process::start`], in memory of this kind.
    ///
    /// # Errors
    /// As for [`Process::start`].
    pub fn start_in(
        memory: MemoryKind,
        host: &Hypervisor,
        tree: Tree,
        options: &Options,
    ) -> Result<Self, ProcessError> {
        let path = options.program.first().cloned().unwrap_or_default();
        let (image, file, node) = program(&tree, &path)?;
        let interpreter = image.interpreter.as_ref();
        let interpreter = interpreter.map(|path| program(&tree, &String::from_utf8_lossy(path)));
        let interpreter = interpreter.transpose()?;
        let mut fixed = image.fixed();
        fixed.extend(interpreter.iter().flat_map(|(image, ..)| image.fixed()));
        let places = Places::draw(&fixed)?.ok_or(ImageError::Crowded)?;
        let mut space = Space::made_of(memory)?;
        space.map_from(places.maps);
        let loaded = load(&mut space, &image, &file, node, places.program)?;
        let interpreter = interpreter
            .map(|(image, file, node)| load(&mut space, &image, &file, node, places.interpreter));
        let interpreter = interpreter.transpose()?;
        space.set_break(loaded.end + places.break_gap);
        let stack = lay_out(&mut space, &places, &image, loaded, interpreter, options)?;
        let entry = interpreter.unwrap_or(loaded).entry;
        let vcpu = Vcpu::new(host, &space, entry, stack)?;
        let clock = clock_page_for(host, &vcpu, 0)?;
        let mut files = Files::default();
        let none = |errno: Errno| io::Error::from(errno);
        let null = tree.existing(Tree::ROOT, b"/dev/null", true).map_err(none)?;
        let streams = [
            Object::Node(null, None),
            Object::Output(Stream::Stdout),
            Object::Output(Stream::Stderr),
            Object::Channel,
        ];
        let read_write = u64::from(libc::O_RDWR.cast_unsigned());
        for object in streams.into_iter().take(if options.channel { 4 } else { 3 }) {
            files.open(object, read_write).map_err(none)?;
        }
        debug_assert_eq!(files.get(CHANNEL).is_ok(), options.channel);
        let kernel = Kernel {
            tree,
            files,
            directory: Tree::ROOT,
            umask: 0o022,
            signals: Signals::default(),
            name: name(&path),
            threads: Threads::default(),
            alarm: Alarm::default(),
            limits: ResourceLimits::default(),
        };
        Ok(Self::assemble(vcpu, space, kernel, PID, clock, CpuTime::default()))
    }
}

/// A program of the tree: its headers, its bytes, and its node.
fn program(tree: &Tree, path: &str) -> Result<(Image, Vec<u8>, NodeId), ProcessError> {
    let missing = |errno| ProcessError::NoProgram { path: path.to_owned(), errno };
    let node = tree.existing(Tree::ROOT, path.as_bytes(), true).map_err(missing)?;
    let host = tree.open(node).map_err(missing)?.ok_or_else(|| missing(Errno::ACCESS))?;
    let mut file = Vec::new();
    io::Read::read_to_end(&mut &*host, &mut file)?;
    Ok((Image::parse(&file)?, file, node))
}

/// Loads a program of the tree, and notes that its pages show the file.
fn load(
    space: &mut Space,
    image: &Image,
    file: &[u8],
    node: NodeId,
    base: u64,
) -> Result<Placement, ImageError> {
    let loaded = image.load(file, space, base)?;
    for (range, offset) in image.shown(loaded) {
        space.show(
            range,
            FileMapping { node, offset, shared: false, writable: false, written: false },
        );
    }
    Ok(loaded)
}
