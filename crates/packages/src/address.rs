//! Addresses as text that every program reads alike.
//!
//! uv, pip and Python's own library each parse addresses in their own way. What two of them could
//! read as two different hosts is refused, so that comparing addresses as text is enough.

/// Whether an address holds only characters that stand for themselves (RFC 3986). Some programs
/// drop other characters, and others take them for a slash.
pub(crate) fn plain(url: &str) -> bool {
    url.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b))
}

/// Whether an address's path leads only downwards, however it is written.
pub(crate) fn goes_nowhere_else(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let encoded = ["%2e", "%2f", "%5c"].iter().any(|dots| path.contains(dots));
    !encoded && !path.split('/').any(|part| part == "." || part == "..")
}

/// Without the slashes at its end: two addresses that differ in these alone are one.
pub(crate) fn trimmed(url: &str) -> &str {
    url.trim_end_matches('/')
}

/// The same address without a name and a password in it.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_without_its_credentials() {
        let url = without_credentials("https://me:p@ss@example.org/a@b/x-1.0.tar.gz?y#z");
        assert_eq!(url, "https://example.org/a@b/x-1.0.tar.gz?y#z");
    }
}
