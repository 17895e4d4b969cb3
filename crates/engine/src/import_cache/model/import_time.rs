//! How long a handler took to import what it says that it imported.

/// When a handler imported what it says that it did, and the milliseconds that this took at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ImportTime {
    /// While its code was loaded: that is all that its load did.
    Load(f64),
    /// During its first call, of which imports were some part.
    Call(f64),
}
