//! The Python that runs inside a sandbox, embedded: one build, one guest.

macro_rules! guest {
    ($($file:literal)*) => {
        &[$((
            concat!("lambswool_guest/", $file),
            include_bytes!(concat!("../../../guest/python/src/lambswool_guest/", $file)),
        )),*]
    };
}

/// The guest's files by their paths below `/opt/lambswool`. A provider adds the native extensions.
pub const FILES: &[(&str, &[u8])] = guest! {
    "__init__.py" "__main__.py" "answers.py" "arity.py" "aws.py" "aws_context.py" "aws_logging.py"
    "bundle.py" "capture.py" "codec.py" "completion.py" "context.py" "failure.py" "fresh.py" "generation.py" "handler.py" "http_requests.py" "imports.py"
    "instance.py" "interpreter.py" "logs.py" "loop.py" "module.py" "places.py" "pool_search.py"
    "pools.py" "program.py" "reference.py" "rehearsal.py" "rehearsed.py" "reseed.py" "running.py" "runtime_api.py" "scratch.py"
    "shadowing.py" "sharing.py" "stdlib.py" "stream.py" "unfit.py" "wire.py" "zygote.py"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_guest_is_embedded() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/python/src/lambswool_guest");
        let mut there: Vec<String> = std::fs::read_dir(source)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py"))
            .map(|name| format!("lambswool_guest/{name}"))
            .collect();
        there.sort();
        let embedded: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(embedded, there);
    }
}
