//! Functions that say what they imported, and how long their own work took.
//!
//! What is added to a source here counts the modules that had to be imported from packages although a zygote was there:
//! none is the proof that the zygote was exact.

/// What each copy of a function begins with. A length: whoever goes through all modules writes to each name's reference
/// count, copies their pages from the zygote, and measures himself.
const HEAD: &str = "import sys as _sys\nimport time as _time\n\n_before = len(_sys.modules)\n";

/// What each copy of a function ends with. A dictionary keeps its order: the last ones are new, but not after the load: the
/// guest's own witness then puts itself behind them. The packages are the second entry of the path: see the guest.
const TAIL: &str = "
_packages = _sys.path[1] + '/'


def _came(before):
    modules = reversed(_sys.modules.values())
    new = [next(modules) for _ in range(len(_sys.modules) - before)]
    files = [getattr(module, '__file__', None) for module in new]
    return sum(1 for file in files if file and file.startswith(_packages))


_loaded = _came(_before)


def handler(event, context):
    began, before = _time.perf_counter_ns(), len(_sys.modules)
    if event.get('work'):
        work()
    imported = _loaded + _came(before)
    return {'work_ns': _time.perf_counter_ns() - began, 'imported': imported}
";

/// A source with a `work`, as a function that says what that took and what was imported.
pub(crate) fn observed(source: &str) -> String {
    format!("{HEAD}{source}{TAIL}")
}
