//! Asks the kernel which pages a clone has written, instead of noting them by faults.
//!
//! PAGEMAP_SCAN (Linux ≥ 6.7) walks a range and reports pages by category. A page is a clone's own
//! when it is not the file's any more, **in memory or in swap**: a scan of memory alone would leave
//! swapped-out pages to the next call. The kernel may stop early when its list is full; it tells
//! where, and the walk continues there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::mutant::{self, Mutant};

/// Ranges that one ioctl reports.
const MAX_RANGES: usize = 512;

const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
/// A page of the kernel's that is zero, for all that was only read.
const ZERO: u64 = 1 << 5;
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Request {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    list: u64,
    list_length: u64,
    most_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    returned: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Asks about the page tables of this process.
#[derive(Clone, Debug)]
pub struct Scanner {
    pagemap: Arc<File>,
    /// Ranges of one ioctl's list. Each walk has a list of its own: clones are many, and most of
    /// them wait.
    room: usize,
}

impl Scanner {
    /// Opens `/proc/self/pagemap`, and asks nothing yet.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open() -> io::Result<Self> {
        let pagemap = Arc::new(File::open("/proc/self/pagemap")?);
        Ok(Self { pagemap, room: MAX_RANGES })
    }

    /// With a shorter list, so that walks stop early.
    #[doc(hidden)]
    #[must_use]
    pub fn with_room(mut self, ranges: usize) -> Self {
        self.room = ranges.max(1);
        self
    }

    /// The private pages in a range of this process's addresses.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7.
    pub fn private(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.walk(range, (FILE, FILE))
    }

    /// As [`Scanner::private`], without the pages that were only read and are zero.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7.
    pub(crate) fn touched(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.walk(range, (FILE | ZERO, FILE | ZERO))
    }

    /// The pages that exist in a range of this process's addresses, private or not.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7.
    pub fn present(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.walk(range, (0, PRESENT))
    }

    /// Pages in memory or in swap that have these categories, some of them inverted.
    fn walk(
        &self,
        range: Range<u64>,
        (category_inverted, category_mask): (u64, u64),
    ) -> io::Result<Vec<Range<u64>>> {
        let places =
            if mutant::leaves_out(Mutant::OnlyInMemory) { PRESENT } else { PRESENT | SWAPPED };
        let mut list = Vec::<PageRegion>::with_capacity(self.room);
        let mut all = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let mut request = Request {
                size: size_of::<Request>() as u64,
                start: from,
                end: range.end,
                list: list.as_mut_ptr().addr() as u64,
                list_length: self.room as u64,
                category_inverted,
                category_mask,
                category_any_of: places,
                returned: places,
                ..Request::default()
            };
            let argument = &raw mut request;
            // SAFETY: the request and the list that it refers to live on, and are as long as they
            // say.
            let count = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, argument) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            // SAFETY: so many has the kernel written, and no more than there is room for.
            unsafe { list.set_len(count) };
            all.extend(list.iter().map(|found| found.start..found.end));
            if mutant::leaves_out(Mutant::WalkEndIgnored) {
                break;
            }
            if request.walk_end <= from {
                return Err(io::Error::other(
                    "the kernel's walk over the page tables does not advance",
                ));
            }
            from = request.walk_end;
        }
        Ok(all)
    }
}
