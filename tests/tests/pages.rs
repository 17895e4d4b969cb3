//! The pages for users are tried: their files are written, their commands run on a real worker, and what is printed is
//! compared with what they show. `docs/developer/README.md` says how a page is marked for this.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{PoisonError, RwLock};

use e2e::machine::{self, manifest_dir, programs};
use e2e::{Site, can_run, can_run_machines, eventually};

/// Where a page says that a worker is.
const SHOWN: &str = "http://127.0.0.1:8470";

/// Where it really is, below its state directory.
const ADDRESS: &str = "run/worker.json";

/// What a page shows as the file of the worker's settings.
const CONFIGURATION: &str = "/etc/lambswool/config.toml";

#[test]
fn the_commands_of_getting_started_do_what_the_page_shows() {
    try_out("getting-started", Start::ByItself, Packages::FromTheIndex, 2);
}

#[test]
fn the_commands_of_the_functions_page_do_what_the_page_shows() {
    try_out("functions", Start::Before, Packages::None, 0);
}

#[test]
fn the_commands_of_the_packages_page_do_what_the_page_shows() {
    try_out("packages", Start::Before, Packages::FromTheIndex, 3);
}

#[test]
fn the_commands_of_the_http_api_page_do_what_the_page_shows() {
    try_out("http-api", Start::Before, Packages::None, 0);
}

#[test]
fn the_commands_of_the_security_page_do_what_the_page_shows() {
    try_out("security", Start::Before, Packages::None, 4);
}

#[test]
fn the_commands_of_the_micro_vm_page_do_what_the_page_shows() {
    try_out("micro-vms", Start::Before, Packages::None, 1);
}

#[test]
fn the_commands_of_the_operations_page_do_what_the_page_shows() {
    try_out("operations", Start::ByItself, Packages::None, 4);
}

#[test]
fn the_commands_of_the_lambda_page_do_what_the_page_shows() {
    if has_aws() {
        try_out("lambda", Start::Before, Packages::None, 0);
    } else {
        machine::skip("awscli", "needs the AWS command line: `make test` puts it into .venv");
    }
}

/// Whether there is the AWS command line.
fn has_aws() -> bool {
    let own = manifest_dir().join("../.venv/bin/aws").is_file();
    own || Command::new("aws").arg("--version").output().is_ok_and(|it| it.status.success())
}

#[test]
fn the_commands_of_the_migration_page_do_what_the_page_shows() {
    try_out("migrating", Start::Before, Packages::None, 0);
}

/// Who starts the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// A command of the page.
    ByItself,
    /// The test.
    Before,
}

/// Whether functions of a page need packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packages {
    None,
    FromTheIndex,
}

/// Held for writing by the page that copies a state directory. Files of bases are links of one another: a site that is made
/// meanwhile changes the status of a file that is being copied, and `tar` says so.
static COPYING: RwLock<()> = RwLock::new(());

/// Runs a page. `left_out` is the number of blocks that say why they are not run.
fn try_out(page: &str, start: Start, packages: Packages, left_out: usize) {
    let text = fs::read_to_string(manifest_dir().join(format!("../docs/user/{page}.md"))).unwrap();
    let blocks = blocks(&text);
    let not_run = blocks.iter().filter(|block| block.is_left_out()).count();
    assert_eq!(not_run, left_out, "{page}: blocks that say that they are not run");
    if !can_run() {
        return;
    }
    let copies = page == "operations";
    let _alone = copies.then(|| COPYING.write().unwrap_or_else(PoisonError::into_inner));
    let _beside = (!copies).then(|| COPYING.read().unwrap_or_else(PoisonError::into_inner));
    let mut site = Site::new();
    if packages == Packages::FromTheIndex {
        let worker = site.up();
        let probe = "# /// script\n# dependencies = [\"six==1.17.0\"]\n# ///\ndef handler(event, context): pass";
        if !worker.deploys_from_index("probe", probe) {
            return;
        }
        drop(worker.delete("/v1/functions/probe").expect(204));
        site = worker.stop();
    }
    configure(&site, &blocks);
    let directory = site.own().join("work");
    fs::create_dir(&directory).unwrap();
    match start {
        Start::ByItself => {
            let _stopped = Stopped { site: &site, directory: &directory };
            run(page, &blocks, &site, &directory);
        }
        Start::Before => {
            let worker = site.up();
            let address = worker.site().state().join(ADDRESS);
            eventually("the worker tells its address", || address.exists());
            run(page, &blocks, worker.site(), &directory);
        }
    }
}

/// Stops, in the end, the workers that a page has started, also where it does not do what it shows.
#[derive(Debug)]
struct Stopped<'a> {
    site: &'a Site,
    directory: &'a Path,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for state in [self.site.state(), self.directory.join("restored")] {
            drop(self.site.command().arg("--state").arg(state).arg("down").output());
        }
    }
}

/// Gives the worker the settings that the page shows.
fn configure(site: &Site, blocks: &[Block]) {
    let file = site.own().join("config/lambswool/config.toml");
    let mut settings = fs::read_to_string(&file).unwrap();
    let is_setting = |block: &&Block| block.file() == Some(CONFIGURATION) && !block.is_left_out();
    // Tables last: what follows one belongs to it.
    let (tables, plain): (Vec<&Block>, Vec<&Block>) = blocks
        .iter()
        .filter(is_setting)
        .partition(|block| block.lines.iter().any(|line| line.starts_with('[')));
    for block in plain.into_iter().chain(tables) {
        settings.push_str(&block.lines.join("\n"));
        settings.push('\n');
    }
    fs::write(file, settings).unwrap();
}

fn run(page: &str, blocks: &[Block], site: &Site, directory: &Path) {
    for block in blocks {
        let needs_kvm = block.marks.iter().any(|mark| mark == "needs kvm");
        if block.is_left_out() || (needs_kvm && !can_run_machines()) {
            continue;
        }
        match block.file() {
            Some(CONFIGURATION) => {}
            Some(file) => {
                let path = directory.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{}\n", block.lines.join("\n"))).unwrap();
            }
            None if block.language == "console" => {
                let commands = block.commands();
                let exit = block.marks.iter().find_map(|mark| mark.strip_prefix("exit "));
                let last = commands.len().saturating_sub(1);
                for (number, (command, shown)) in commands.into_iter().enumerate() {
                    let expected = exit.filter(|_| number == last).unwrap_or("0");
                    let (status, printed) = shell(&command, site, directory);
                    let what = format!("{page}.md: $ {command}\n{printed}");
                    assert_eq!(status.code(), expected.parse().ok(), "{what}");
                    let shown = at_its_place(&shown, site);
                    assert!(fits(&shown, &printed), "{what}\nand the page shows\n{shown}");
                }
            }
            // An example that stands for itself.
            None => {}
        }
    }
}

/// Runs a command as the page's reader would, where the worker of `site` is the machine's.
fn shell(command: &str, site: &Site, directory: &Path) -> (ExitStatus, String) {
    let wool = site.command();
    let mut shell = Command::new("bash");
    for (name, value) in wool.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let tools = manifest_dir().join("../.venv/bin");
    let own = env::var("PATH").unwrap();
    let path = format!("{}:{own}:{}", programs().display(), tools.display());
    shell.env("PATH", path).env("STATE", site.state()).current_dir(directory);
    // A file: what stays in the background has it open when the command has ended.
    let said = site.own().join("said");
    let file = fs::File::create(&said).unwrap();
    shell.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let status = shell.args(["-c", &at_its_place(command, site)]).status().unwrap();
    (status, fs::read_to_string(said).unwrap())
}

/// The text with the address at which this worker really is.
fn at_its_place(text: &str, site: &Site) -> String {
    let address = fs::read_to_string(site.state().join(ADDRESS)).unwrap_or_default();
    let url = address.split('"').find(|part| part.starts_with("http://"));
    text.replace(SHOWN, url.unwrap_or(SHOWN))
}

/// Whether something is as it is shown: `…` stands for anything, and nothing shown for anything at all.
fn fits(shown: &str, printed: &str) -> bool {
    if shown.trim().is_empty() {
        return true;
    }
    // A line of it alone stands for no line, too.
    let shown = shown.trim().replace("…\n", "…").replace("\n…", "…");
    let Some((first, others)) = shown.split_once('…') else { return shown == printed.trim() };
    let Some(mut rest) = printed.trim().strip_prefix(first) else { return false };
    let (middle, last) = others.rsplit_once('…').unwrap_or(("", others));
    for part in middle.split('…') {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    language: String,
    /// What the comments before it say.
    marks: Vec<String>,
    lines: Vec<String>,
}

impl Block {
    /// Whether a comment says that it is not run, and why.
    fn is_left_out(&self) -> bool {
        let reason =
            |mark: &String| mark.strip_prefix("not run: ").is_some_and(|why| why.len() > 10);
        self.marks.iter().any(reason)
    }

    /// The file that it shows, by its first line.
    fn file(&self) -> Option<&str> {
        let first = self.lines.first()?.strip_prefix("# ")?;
        let is_path = first.rsplit('/').next().is_some_and(|name| name.contains('.'));
        (self.language != "console" && is_path && !first.contains(' ')).then_some(first)
    }

    /// Its commands, each with what is shown below it.
    fn commands(&self) -> Vec<(String, String)> {
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in &self.lines {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((command, _))) if command.ends_with('\\') => {
                    command.push('\n');
                    command.push_str(line);
                }
                (None, Some((_, shown))) => {
                    shown.push_str(line);
                    shown.push('\n');
                }
                (None, None) => panic!("a console block begins with a command: {line}"),
            }
        }
        commands
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut marks) = (Vec::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            marks.push(comment.trim_end_matches("-->").trim_end().to_owned());
        } else if let Some(language) = line.strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| *line != "```");
            let inside = inside.map(str::to_owned).collect();
            let marks = std::mem::take(&mut marks);
            blocks.push(Block { language: language.to_owned(), marks, lines: inside });
        } else {
            marks.clear();
        }
    }
    blocks
}

#[test]
fn a_page_is_compared_with_anything_where_it_says_so_and_else_exactly() {
    for (shown, printed) in
        [("", "x"), ("a…c", "abc"), ("…\nb", "b"), ("a\n…", "a\n"), ("a …\n…\nz", "a b\nz\n")]
    {
        assert!(fits(shown, printed), "{shown:?} {printed:?}");
    }
    for (shown, printed) in [("a", "ab"), ("a…c", "ab"), ("b…", "ab"), ("a…b…a", "aa")] {
        assert!(!fits(shown, printed), "{shown:?} {printed:?}");
    }
}
