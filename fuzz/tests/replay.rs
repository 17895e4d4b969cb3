//! Every input of the corpus, with what is built and tested every day: those that ever broke a promise are among them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fuzz::TARGETS;

fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// In one test: targets look at what the whole process has open.
#[test]
fn no_input_of_the_corpus_breaks_a_promise() {
    for (name, target) in TARGETS {
        let mut inputs: Vec<_> =
            fs::read_dir(corpus().join(name)).unwrap().map(|it| it.unwrap().path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name} begins with nothing");
        for path in inputs {
            eprintln!("{}", path.display());
            target(&fs::read(path).unwrap());
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let directories = fs::read_dir(corpus()).unwrap();
    let directories: BTreeSet<String> =
        directories.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(directories, TARGETS.map(|(name, _)| name.to_owned()).into());
}
