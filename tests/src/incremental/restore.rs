//! Making a data directory of a backup.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

/// Copies a backup to `data`, and its tablespaces to directories beside that.
pub(super) fn fill(backup: &Path, data: &Path) {
    let status = Command::new("cp").args(["-R", "--reflink=auto"]).arg(backup).arg(data).status();
    assert!(status.expect("cp runs").success(), "cannot copy {}", backup.display());
    fs::set_permissions(data, Permissions::from_mode(0o700)).expect("the copy is ours");
    let home = data.parent().expect("a data directory lies in a cluster's home");
    let tablespaces = fs::read_dir(data.join("pg_tblspc")).expect("the copy is ours");
    for link in tablespaces.flatten().map(|entry| entry.path()) {
        let number = link.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        let place = home.join(format!("tablespace-{number}"));
        fs::rename(&link, &place).expect("the copy is ours");
        symlink(&place, &link).expect("the copy is ours");
    }
}
