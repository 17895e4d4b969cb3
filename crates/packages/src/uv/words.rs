//! What uv's words mean. It has no codes for its errors, so its English is what there is to read.

use std::collections::BTreeSet;

use crate::requirements;

/// Whether uv's words say that the network failed.
pub(crate) fn unreachable(words: &str) -> bool {
    let signs =
        ["error sending request", "failed to fetch", "could not connect", "dns error", "timed out"];
    says(words, &signs)
}

/// Whether uv's words say that a package would have to be built.
pub(crate) fn without_wheel(words: &str) -> bool {
    says(
        words,
        &["no usable wheels", "no wheels with a matching", "building from source is disabled"],
    )
}

/// Of which packages uv's words say that they have no wheel.
pub(crate) fn wheelless(words: &str) -> BTreeSet<String> {
    let flat = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let after = |sign: &str| -> Vec<String> {
        let rests = flat.split(sign).skip(1);
        rests.filter_map(|rest| requirements::name(rest.trim_start_matches(['`', ' ']))).collect()
    };
    // `all versions of x have no usable wheels`, `x==1.0 has no …`, `x[extra]==1.0 has no …`
    let before = |sign: &str| -> Vec<String> {
        let parts: Vec<&str> = flat.split(sign).collect();
        let subjects = parts.iter().take(parts.len().saturating_sub(1));
        subjects.filter_map(|part| requirements::name(part.split(' ').next_back()?)).collect()
    };
    let signs = [
        " has no usable wheels",
        " have no usable wheels",
        " has no wheels with a matching",
        " have no wheels with a matching",
    ];
    let named = signs.iter().flat_map(|sign| before(sign));
    named.chain(after("Wheels are required for ")).collect()
}

/// Whether uv's words say that a package has no source either.
pub(crate) fn without_source(words: &str) -> bool {
    says(words, &["no source distribution"])
}

/// Whether uv's words say that a file is not the locked one.
pub(crate) fn wrong_hash(words: &str) -> bool {
    says(words, &["hash mismatch"])
}

/// Older versions wrap their lines anywhere.
fn says(words: &str, signs: &[&str]) -> bool {
    let flat = words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    signs.iter().any(|sign| flat.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_however_they_are_wrapped() {
        assert!(without_wheel(
            "Because x has no usable\n      wheels and building from source\n is disabled"
        ));
        assert!(unreachable("cause: Failed to\n fetch: x") && !unreachable("no solution found"));
        assert!(wrong_hash("error: Hash mismatch for `six==1.16.0`"));
    }

    #[test]
    fn packages_without_a_wheel_are_understood() {
        let of = |words: &str| wheelless(words).into_iter().collect::<Vec<_>>();
        let words = "cause: Because docopt==0.6.2 has no usable\n  wheels and function depends on docopt==0.6.2, we\n\
                     hint: Wheels are required for `docopt` because building from source is disabled";
        assert_eq!(of(words), ["docopt"]);
        assert_eq!(
            of("Because all versions of Py_Crypto have no usable wheels and"),
            ["py-crypto"]
        );
        assert_eq!(of("Because x==1 has no wheels with a matching Python ABI tag"), ["x"]);
        assert_eq!(of("Because only x<=2 is available"), [""; 0]);
    }
}
