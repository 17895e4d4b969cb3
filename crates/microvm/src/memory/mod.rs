//! A guest's memory, from what the program asked for down to the host's pages.
//!
//! ```text
//!   space          mmap, munmap, mprotect, mremap, brk     keeps the three below in step
//!     ├── regions         which addresses are mapped, and with which rights
//!     ├── tables, ring0   the page tables and the pages of ring 0, written by the monitor alone
//!     └── arena           the bytes: one mapping, address = guest physical = offset
//!   file_mappings  which regions show files of the guest's tree
//!   scan           asks the host's kernel which pages a clone has written
//!   layout         where everything lies
//! ```
//!
//! Nothing here knows KVM or Linux's system calls: `machine` runs a guest in a [`Space`], `linux`
//! answers calls by it.

pub mod arena;
pub(crate) mod file_mappings;
pub mod layout;
pub mod regions;
pub mod rights;
pub mod ring0;
pub mod scan;
pub mod space;
pub mod tables;

pub use arena::MemoryKind;
pub use scan::Scanner;
pub use space::{Reset, Space};
