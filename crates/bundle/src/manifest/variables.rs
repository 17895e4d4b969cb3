//! Variables that a function sets, `environment`: what they may be called, and which of them do nothing.

/// The guest sets them to what they are, whatever a function says. `PYTHONPATH` is not among them: it is added to.
const RESERVED: [&str; 5] = [
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    "AWS_LAMBDA_FUNCTION_NAME",
    "AWS_LAMBDA_FUNCTION_VERSION",
    "LAMBDA_TASK_ROOT",
    "_HANDLER",
];

/// Read once, as an interpreter or the loader starts. That was long before.
const AT_START: [&str; 27] = [
    "GLIBC_TUNABLES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONCASEOK",
    "PYTHONCOERCECLOCALE",
    "PYTHONDEBUG",
    "PYTHONDEVMODE",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONFAULTHANDLER",
    "PYTHONHASHSEED",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONINTMAXSTRDIGITS",
    "PYTHONIOENCODING",
    "PYTHONMALLOC",
    "PYTHONNOUSERSITE",
    "PYTHONOPTIMIZE",
    "PYTHONPLATLIBDIR",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSAFEPATH",
    "PYTHONSTARTUP",
    "PYTHONTRACEMALLOC",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "PYTHONVERBOSE",
    "PYTHONWARNINGS",
];

/// What [`is_name`] takes, in words for an error.
const NAME_IS_OF: &str = "visible ASCII characters other than `=`, such as letters, digits and `_`";

/// Refuses a variable that no process can have.
pub(super) fn check(name: &str, value: &str) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!("{name:?} cannot be a variable's name: use {NAME_IS_OF}"));
    }
    if value.contains('\0') {
        return Err(format!("{name} holds a zero byte"));
    }
    Ok(())
}

/// Whether a variable can have this name: what a shell, a C program and a log can all show.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
}

/// What to say of one that has no effect.
pub(super) fn idle(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!(
            "environment: {name} has no effect: the handler finds there what is the case"
        ));
    }
    AT_START.contains(&name).then(|| {
        format!(
            "environment: {name} has no effect on the handler, whose interpreter runs already; programs that it starts have it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_shown_are_none_and_those_in_vain_are_told() {
        for good in ["A", "a.b-c", "_", "9", "PYTHONPATH", "A:B"] {
            assert!(is_name(good) && idle(good).is_none(), "{good}");
        }
        for bad in ["", "A=B", "A B", "A\n", "\0", "\u{7f}", "Ä"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(idle("PYTHONHASHSEED").unwrap().contains("runs already"));
        assert!(idle("AWS_LAMBDA_FUNCTION_NAME").unwrap().contains("what is the case"));
    }
}
