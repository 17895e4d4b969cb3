//! An error and its causes as one line of text.

use std::error::Error;

/// An error with all its causes, in one line: "start the guest: read /etc/passwd: permission
/// denied". The error types of this workspace do not repeat their causes in their own text.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::ProviderError;

    #[test]
    fn an_error_is_shown_with_all_its_causes() {
        let alone = io::Error::other("no room");
        assert_eq!(chain(&alone), "no room");
        let step = ProviderError::Step { step: "make the slot", source: alone };
        let above = io::Error::other(step);
        assert_eq!(chain(&above), "make the slot: no room");
    }
}
