//! ELF files: which parts of a program are loaded, and where. Only headers are interpreted, and any
//! bytes may be given.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EM_X86_64, ET_DYN, ET_EXEC, Header};
use goblin::elf::program_header::{PT_INTERP, PT_LOAD, ProgramHeader};
use rustix::io::Errno;
use thiserror::Error;

use crate::memory::layout::{BLOCK, PAGE, USER_END, page_down, page_up};
use crate::memory::rights::Rights;
use crate::memory::space::{Place, Space};

/// Bytes of an interpreter's path at most.
const PATH_MAX: u64 = 4096;
const MAX_SEGMENTS: u16 = 64;
const ENTRY_BYTES: u64 = 56;

/// A program's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Whether it may be loaded at any address; otherwise it is linked for fixed ones.
    pub movable: bool,
    /// Address of its first instruction, before it is moved.
    pub entry: u64,
    /// The parts to load.
    pub segments: Vec<Segment>,
    /// Path of the dynamic linker that starts it.
    pub interpreter: Option<Vec<u8>>,
    /// Offset of its program headers in the file, and their number.
    pub headers: (u64, u16),
}

/// A part of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Addresses, before it is moved.
    pub memory: Range<u64>,
    /// Offsets in the file of the bytes that it begins with; the rest is zero.
    pub file: Range<u64>,
    /// Rights of the program to these pages.
    pub rights: Rights,
}

/// The addresses of a program that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bytes by which it was moved.
    pub bias: u64,
    /// Address of its first instruction.
    pub entry: u64,
    /// Address of its program headers; 0 when they are not loaded.
    pub headers: u64,
    /// The first address behind it.
    pub end: u64,
}

/// Why a file cannot be loaded as a program.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ImageError {
    /// No ELF file, or one that is cut short.
    #[error("not an ELF file: {0}")]
    Malformed(String),
    /// An ELF file of another processor, or not of a program.
    #[error("not a program for x86-64 Linux")]
    Foreign,
    /// A segment at an address where programs cannot lie, or that reaches beyond the file.
    #[error("a segment at {0:#x} that cannot be loaded")]
    Segment(u64),
    /// The program's fixed addresses leave no room for stack, heap and mappings.
    #[error(
        "the program's fixed addresses leave no room for its stack: link it elsewhere, as a \
         position-independent program, or with less static data"
    )]
    Crowded,
    /// The guest has no memory for a segment.
    #[error("no room in the guest for the segment at {0:#x}")]
    Room(u64, #[source] Errno),
}

impl Image {
    /// Reads the headers of `file`.
    ///
    /// # Errors
    /// When it is not a program that can be loaded.
    pub fn parse(file: &[u8]) -> Result<Self, ImageError> {
        Self::parse_start(file, file.len() as u64)
    }

    /// Reads the headers from a file's first bytes; `length` is the whole file's.
    ///
    /// # Errors
    /// As [`Image::parse`].
    pub fn parse_start(file: &[u8], length: u64) -> Result<Self, ImageError> {
        let malformed = |error: goblin::error::Error| ImageError::Malformed(error.to_string());
        if file.len() < 64 {
            return Err(ImageError::Malformed("too short".to_owned()));
        }
        let header = goblin::elf::Elf::parse_header(file).map_err(malformed)?;
        let Header { e_type, e_machine, e_phnum, e_phoff, e_entry, e_phentsize, .. } = header;
        let is_64_bit_little_endian = file[4..6] == [2, 1];
        if !is_64_bit_little_endian || e_machine != EM_X86_64 || !matches!(e_type, ET_EXEC | ET_DYN)
        {
            return Err(ImageError::Foreign);
        }
        if e_phnum == 0 || e_phnum > MAX_SEGMENTS || u64::from(e_phentsize) != ENTRY_BYTES {
            return Err(ImageError::Malformed("no sensible program headers".to_owned()));
        }
        let context = Ctx::new(Container::Big, Endian::Little);
        let table = slice(file, e_phoff, u64::from(e_phnum) * ENTRY_BYTES)?;
        let headers = ProgramHeader::parse(table, 0, usize::from(e_phnum), context);
        let mut image = Self {
            movable: e_type == ET_DYN,
            entry: e_entry,
            segments: Vec::new(),
            interpreter: None,
            headers: (e_phoff, e_phnum),
        };
        for header in headers.map_err(malformed)? {
            match header.p_type {
                PT_LOAD if header.p_memsz > 0 => image.segments.push(segment(&header, length)?),
                PT_INTERP if header.p_filesz <= PATH_MAX => {
                    let path = slice(file, header.p_offset, header.p_filesz)?;
                    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                    image.interpreter = Some(path[..end].to_vec());
                }
                _ => {}
            }
        }
        if image.segments.is_empty() {
            return Err(ImageError::Malformed("nothing to load".to_owned()));
        }
        Ok(image)
    }

    /// The pages that a program for fixed addresses needs; none when it can be moved.
    pub(crate) fn fixed(&self) -> Vec<Range<u64>> {
        let segments = self.segments.iter().filter(|_| !self.movable);
        segments.map(|it| page_down(it.memory.start)..page_up(it.memory.end)).collect()
    }

    /// Bytes from its lowest address to the code that fills a block. An image placed so that a
    /// block begins there has its code on a huge page. None when no code fills a block.
    #[must_use]
    pub fn huge_code(&self) -> Option<u64> {
        let lowest = self.segments.iter().map(|segment| page_down(segment.memory.start)).min()?;
        Some(self.huge_code_at()? - lowest)
    }

    /// As [`Image::huge_code`], as an address before the image is moved.
    fn huge_code_at(&self) -> Option<u64> {
        let fills = |segment: &&Segment| {
            let length = segment.memory.end - segment.memory.start;
            segment.rights == Rights::EXECUTE && length >= BLOCK
        };
        self.segments.iter().find(fills).map(|code| page_down(code.memory.start))
    }

    /// Pages that show the file once it is loaded, each range with its offset in the file.
    pub(crate) fn shown(&self, loaded: Placement) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let shown = self.segments.iter().filter(|segment| !segment.file.is_empty());
        shown.map(move |Segment { memory, file, .. }| {
            let start = memory.start + loaded.bias;
            let end = page_up(start + (file.end - file.start));
            (page_down(start)..end, page_down(file.start))
        })
    }

    /// Copies its segments from `file`, the one that it was parsed from, to `base` or to the next
    /// address behind it where its code begins a block.
    ///
    /// # Errors
    /// When a segment does not fit into the guest, or lies where another is.
    pub fn load(&self, file: &[u8], space: &mut Space, base: u64) -> Result<Placement, ImageError> {
        let code = self.huge_code_at().unwrap_or(0);
        let base = base + code.next_multiple_of(BLOCK) - code;
        let bias = if self.movable { base } else { 0 };
        let mut loaded =
            Placement { bias, entry: bias.wrapping_add(self.entry), headers: 0, end: bias };
        for segment in &self.segments {
            let (start, end) = (bias + segment.memory.start, bias + segment.memory.end);
            let pages = page_down(start)..page_up(end);
            let room = |errno| ImageError::Room(start, errno);
            // Writable while it is filled; its own rights follow.
            let place = Place::FixedIfFree(pages.start);
            space.map(place, pages.end - pages.start, Rights::WRITE).map_err(room)?;
            let contents = slice(file, segment.file.start, segment.file.end - segment.file.start)?;
            space.write(start, contents.len() as u64).map_err(room)?.copy_from_slice(contents);
            space.protect(pages.start, pages.end - pages.start, segment.rights).map_err(room)?;
            let (headers, count) = self.headers;
            let table = headers..headers + u64::from(count) * ENTRY_BYTES;
            if segment.file.start <= table.start && table.end <= segment.file.end {
                loaded.headers = start + table.start - segment.file.start;
            }
            loaded.end = loaded.end.max(end);
        }
        Ok(loaded)
    }
}

fn segment(header: &ProgramHeader, length: u64) -> Result<Segment, ImageError> {
    let bad = ImageError::Segment(header.p_vaddr);
    let end = header.p_vaddr.checked_add(header.p_memsz).filter(|end| *end <= USER_END - PAGE);
    let file_end = header.p_offset.checked_add(header.p_filesz);
    let fits = file_end.is_some_and(|end| end <= length);
    let congruent = header.p_vaddr % PAGE == header.p_offset % PAGE;
    let (Some(end), Some(file_end)) = (end, file_end) else { return Err(bad) };
    if !fits || !congruent || header.p_filesz > header.p_memsz {
        return Err(bad);
    }
    Ok(Segment {
        memory: header.p_vaddr..end,
        file: header.p_offset..file_end,
        rights: Rights::of_segment(header.p_flags),
    })
}

fn slice(file: &[u8], start: u64, length: u64) -> Result<&[u8], ImageError> {
    let range = usize::try_from(start).ok().zip(usize::try_from(length).ok());
    let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
    let part = range.and_then(|range| file.get(range));
    part.ok_or_else(|| ImageError::Malformed("cut short".to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_loader_panic(
            patches in prop::collection::vec((0usize..2048, any::<u8>()), 0..40),
        ) {
            let mut file = std::fs::read("/proc/self/exe").unwrap();
            for (at, byte) in patches {
                // The headers lie in the first bytes; patch nothing that makes it foreign right
                // away.
                if at >= 20 {
                    file[at] = byte;
                }
            }
            if let Ok(image) = Image::parse(&file) {
                let mut space = Space::new().unwrap();
                let _ = image.load(&file, &mut space, crate::memory::layout::PROGRAM);
            }
        }
    }

    #[test]
    fn code_that_fills_a_block_begins_one_in_programs_and_in_libraries() {
        let segment = |memory: Range<u64>, rights| Segment { memory, file: 0..0, rights };
        let image = |code_end| Image {
            movable: true,
            entry: 0,
            segments: vec![
                segment(0x1000..0xf_5000, Rights::READ),
                segment(0xf_6100..code_end, Rights::EXECUTE),
            ],
            interpreter: None,
            headers: (0, 0),
        };
        assert_eq!(image(0x20_0000).huge_code(), None);
        let large = image(0x40_0000);
        // The code's first page, seen from the first page of all.
        assert_eq!(large.huge_code(), Some(0xf_5000));

        let mut space = Space::new().unwrap();
        let loaded = large.load(&[], &mut space, crate::memory::layout::PROGRAM).unwrap();
        assert!((loaded.bias + 0xf_6000).is_multiple_of(BLOCK), "{loaded:x?}");
        assert!(loaded.bias >= crate::memory::layout::PROGRAM, "{loaded:x?}");
        let lowest = space.map(Place::BlockAt(0xf_5000), 5 * BLOCK, Rights::READ).unwrap();
        assert!((lowest + 0xf_5000).is_multiple_of(BLOCK), "{lowest:x}");
    }

    #[test]
    fn this_test_itself_is_a_movable_program_with_an_interpreter() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let image = Image::parse(&file).unwrap();
        assert!(image.movable);
        assert!(image.interpreter.unwrap().starts_with(b"/lib64/ld-linux"));
    }
}
