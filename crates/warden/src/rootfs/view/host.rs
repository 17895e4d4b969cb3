//! The host's processors and memory, read once.

use std::fs;
use std::path::{Path, PathBuf};

use super::texts::{self, HostTime};
use super::{Key, MACHINE_FILES};

const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The host's constant facts about each processor. Nothing that follows its work: no frequency, no
/// idle state.
const TOPOLOGY: [&str; 4] = ["core_id", "physical_package_id", "die_id", "cluster_id"];

/// Files about processors that share something with one, as a mask, and as a list in a file whose
/// name ends with `_list`.
const SHARED: [&str; 7] = [
    "core_cpus",
    "thread_siblings",
    "cluster_cpus",
    "die_cpus",
    "package_cpus",
    "core_siblings",
    "book_siblings",
];

const CACHE: [&str; 7] = [
    "id",
    "level",
    "type",
    "size",
    "coherency_line_size",
    "number_of_sets",
    "ways_of_associativity",
];

/// The host's processors and memory.
#[derive(Debug)]
pub(super) struct Machine {
    /// The processors that sandboxes may use, by the host's numbers, ascending.
    allowed: Vec<usize>,
    cpuinfo: String,
    /// Memory in bytes.
    memory: u64,
    moment: HostTime,
    /// The files of each allowed processor, relative to its directory.
    files: Vec<Vec<(PathBuf, Content)>>,
}

#[derive(Debug)]
enum Content {
    /// The host's text.
    Text(String),
    /// A list of processors, of which a view shows those that it has: `thread_siblings_list`.
    List(Vec<usize>),
    /// The same as a mask, `thread_siblings`, as wide as the host's.
    Mask(Vec<usize>, String),
}

impl Machine {
    /// Reads the host's files. Missing ones are left out: programs cope without them.
    pub(super) fn examine() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let moment = HostTime::of(&read("/proc/stat"), &read("/proc/uptime"));
        let memory = texts::total_memory(&read("/proc/meminfo"));
        let allowed = allowed();
        let files = allowed.iter().map(|number| files_of(*number)).collect();
        Self { allowed, cpuinfo, memory, moment, files }
    }

    /// The processors that a sandbox with this quota sees: as many as the quota, rounded up.
    pub(super) fn processors(&self, quota: Option<u32>) -> &[usize] {
        let whole = quota.map_or(usize::MAX, |quota| quota.div_ceil(1000) as usize);
        &self.allowed[..whole.clamp(1, self.allowed.len())]
    }

    /// The files below `/sys/devices/system/cpu`.
    pub(super) fn processor_files(&self, shown: &[usize]) -> Vec<(PathBuf, String)> {
        let list = format!("{}\n", texts::list(shown));
        let mut all: Vec<_> = ["online", "possible", "present"]
            .map(|name| (PathBuf::from(name), list.clone()))
            .into();
        all.push(("offline".into(), "\n".to_owned()));
        for (number, files) in self.allowed.iter().zip(&self.files).take(shown.len()) {
            let directory = PathBuf::from(format!("cpu{number}"));
            for (path, content) in files {
                let text = match content {
                    Content::Text(text) => text.clone(),
                    Content::List(which) => {
                        format!("{}\n", texts::list(&texts::both(which, shown)))
                    }
                    Content::Mask(which, width) => {
                        format!("{}\n", texts::mask(&texts::both(which, shown), width))
                    }
                };
                all.push((directory.join(path), text));
            }
        }
        all
    }

    /// The contents of [`MACHINE_FILES`], in their order.
    pub(super) fn proc_files(&self, key: Key, shown: &[usize]) -> [String; MACHINE_FILES.len()] {
        [
            texts::cpuinfo(&self.cpuinfo, shown),
            texts::meminfo(if self.memory == 0 { key.memory } else { key.memory.min(self.memory) }),
            self.moment.stat(shown),
            self.moment.uptime(shown.len()),
            "0.00 0.00 0.00 1/1 1\n".to_owned(),
        ]
    }
}

/// The processors that this process and its children may use.
fn allowed() -> Vec<usize> {
    let mut found = Vec::new();
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        found.extend((0..rustix::thread::CpuSet::MAX_CPU).filter(|number| set.is_set(*number)));
    }
    // There is at least one.
    if found.is_empty() { vec![0] } else { found }
}

fn files_of(number: usize) -> Vec<(PathBuf, Content)> {
    let directory = PathBuf::from(format!("{PROCESSORS}/cpu{number}"));
    let mut files = Vec::new();
    let mut add = |path: PathBuf, parse: &dyn Fn(String) -> Option<Content>| {
        let text = fs::read_to_string(directory.join(&path)).ok();
        if let Some(content) = text.and_then(parse) {
            files.push((path, content));
        }
    };
    let as_it_is = |mut text: String| {
        // sysfs reports a page as the length of each file, and that much room was allocated. Each
        // started sandbox is forked from this process, and the fork copies the entries of all
        // pages.
        text.shrink_to_fit();
        Some(Content::Text(text))
    };
    let as_list = |text: String| Some(Content::List(texts::numbers(&text)?));
    let as_mask = |text: String| {
        let width = text.trim().to_owned();
        Some(Content::Mask(texts::bits(&width)?, width))
    };
    let topology = Path::new("topology");
    for name in TOPOLOGY {
        add(topology.join(name), &as_it_is);
    }
    for name in SHARED {
        add(topology.join(name), &as_mask);
        add(topology.join(format!("{name}_list")), &as_list);
    }
    // The first six are more than any processor has.
    for index in (0..6).map(|index| PathBuf::from(format!("cache/index{index}"))) {
        for name in CACHE {
            add(index.join(name), &as_it_is);
        }
        add(index.join("shared_cpu_map"), &as_mask);
        add(index.join("shared_cpu_list"), &as_list);
    }
    files
}
