//! Requirements one by one, and locks: lines that an installer printed, or that came exact with the function.

use packages::{fuzzed, requirements};

pub(crate) fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in fuzzed::logical_lines(&text) {
        assert!(!line.contains(['\n', '\r']), "a line that smuggles in another: {line:?}");
        // What is accepted goes on an installer's command line, and its name into paths.
        if requirements::check("requirements.txt", &line).is_ok() {
            assert!(!line.starts_with('-'), "{line:?} is an option");
            plain(&fuzzed::name(&line).expect("what is accepted has a name"));
        }
    }
    let (listed, distributions) = fuzzed::lock(&text);
    assert!(!listed.lines().any(|line| line.starts_with('-')), "an option stays in {listed:?}");
    distributions.iter().for_each(|(name, _)| plain(name));
    if let Some(again) = fuzzed::inventory(&text) {
        assert_eq!(fuzzed::inventory(&again).as_ref(), Some(&again));
    }
}

fn plain(name: &str) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    assert!(!name.is_empty() && name.chars().all(plain), "{name:?} is no normalised name");
}
