//! How long a handler took to import what it says that it imported.

/// When a handler imported the modules that it reported, and the milliseconds that this took at
/// most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ImportTime {
    /// While its code was loaded: loading did nothing else.
    Load(f64),
    /// During its first call, of which imports were a part.
    Call(f64),
}
