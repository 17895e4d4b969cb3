//! Takes over the audit log that the release before kept in files, once.
//!
//! ```text
//!   audit/current.log, 1.log, …                administrators
//!         anyone/   tenants/NAME/   others/     the other groups; refused/ below each: what was refused
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use platform::audit::{Action, Among, Audit};

/// The last actions of one log that are taken over: of administrators, and of each other group.
const KEPT: [usize; 2] = [10_000, 1_000];

/// Writes the last actions of all logs below `directory` into `audit`, the oldest first.
pub(super) fn take_over(directory: &Path, audit: &Audit) -> Result<()> {
    let [administrators, others] = KEPT;
    let mut actions = Vec::new();
    read(directory, &Among::Administrators, administrators, &mut actions)?;
    read(&directory.join("anyone"), &Among::Administrators, others, &mut actions)?;
    for tenant in below(&directory.join("tenants"))? {
        let name = tenant.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Ok(label) = name.parse() {
            read(&tenant, &Among::Tenant(label), others, &mut actions)?;
        }
    }
    // They had one log together: each action says whose it was.
    let mut shared = Vec::new();
    read(&directory.join("others"), &Among::Administrators, others, &mut shared)?;
    actions.extend(shared.into_iter().map(|(among, action)| {
        let tenant = action.tenant.parse().map(Among::Tenant);
        (tenant.unwrap_or(among), action)
    }));
    // Times in one format and zone compare as text.
    actions.sort_by(|(_, one), (_, other)| one.time.cmp(&other.time));
    actions.iter().for_each(|(among, action)| audit.write(among, action));
    Ok(())
}

/// Adds the last actions of a log, and the last of what was refused beside it.
fn read(
    directory: &Path,
    among: &Among,
    most: usize,
    actions: &mut Vec<(Among, Action)>,
) -> Result<()> {
    for log in [directory.to_owned(), directory.join("refused")] {
        let mut last: Vec<Action> = Vec::new();
        for file in below(&log)?.into_iter().filter(|file| file.is_file()) {
            // A line that a crash cut off is no action.
            let text = fs::read(&file)?;
            let lines = text.split(|byte| *byte == b'\n');
            last.extend(lines.filter_map(|line| serde_json::from_slice(line).ok()));
            last.sort_by(|one, other| one.time.cmp(&other.time));
            last.drain(..last.len().saturating_sub(most));
        }
        actions.extend(last.into_iter().map(|action| (among.clone(), action)));
    }
    Ok(())
}

/// What is in a directory; nothing where there is none.
fn below(directory: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => Ok(entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use platform::access::{Caller, Requester, to};
    use store::memory::Memory;

    use platform::audit::AUDIT;

    use super::*;

    #[tokio::test]
    async fn the_actions_of_all_former_logs_are_one_list() {
        let dir = tempfile::tempdir().unwrap();
        let line = |time: &str, tenant: &str, result: &str| {
            format!(
                "{{\"time\":\"{time}\",\"who\":\"anyone\",\"remote\":\"\",\"tenant\":\"{tenant}\",\"action\":\"deploy\",\"result\":\"{result}\"}}\n"
            )
        };
        for (file, text) in [
            ("current.log", line("2026-11-26T03", "default", "ok") + "{\"time\": \"cut o"),
            ("1.log", line("2026-11-26T01", "default", "ok")),
            ("refused/current.log", line("2026-11-26T02", "default", "wrong-scope")),
            ("tenants/acme/current.log", line("2026-11-26T05", "acme", "ok")),
            ("others/current.log", line("2026-11-26T04", "late", "ok")),
            // As many as a tenant can, all of them newer.
            ("tenants/acme/refused/current.log", line("2026-11-26T06", "acme", "bad").repeat(1500)),
        ] {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let audit = Arc::new(Audit::new(Box::new(Memory::default()), AUDIT));
        let caller = Caller::User { uid: 0 };
        let requester = Requester { caller, tenant: function::Label::default_tenant() };
        let permit = requester.permit::<to::ReadAudit>(&()).unwrap();
        take_over(dir.path(), &audit).unwrap();
        take_over(&dir.path().join("none"), &audit).unwrap();
        let read = audit.read(&permit, 10_000).await.unwrap().unwrap();
        let times: Vec<&str> = read.iter().map(|action| &action.time[11..]).collect();
        assert_eq!(times[..5], ["01", "02", "03", "04", "05"]);
        assert_eq!(times.len(), 5 + 1000);
    }
}
