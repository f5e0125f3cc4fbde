//! A data directory as `initdb` makes it, made once and copied for every cluster: the copy
//! takes a tenth of the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::stillpoint::profile_directory;

/// Where the server's programs are, and as whom they run.
pub(crate) struct Installation {
    /// Directory of `postgres`, `pg_dump` and the others.
    pub(crate) bindir: PathBuf,
    /// Directory with `extension/`.
    pub(crate) sharedir: PathBuf,
    version: String,
}

impl Installation {
    /// The installation that `PG_CONFIG` names, or Debian's PostgreSQL 15.
    pub(crate) fn get() -> &'static Self {
        static INSTALLATION: OnceLock<Installation> = OnceLock::new();
        INSTALLATION.get_or_init(|| {
            let pg_config = std::env::var_os("PG_CONFIG")
                .unwrap_or_else(|| "/usr/lib/postgresql/15/bin/pg_config".into());
            let ask = |option: &str| -> String {
                let output = Command::new(&pg_config).arg(option).output();
                let output = output.unwrap_or_else(|error| {
                    panic!("cannot run {} (set PG_CONFIG): {error}", pg_config.display())
                });
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            };
            Self {
                bindir: ask("--bindir").into(),
                sharedir: ask("--sharedir").into(),
                // "PostgreSQL 15.20 (Debian 15.20-0+deb12u1)"
                version: ask("--version").split(' ').nth(1).unwrap_or("unknown").to_owned(),
            }
        })
    }

    /// The server's major version.
    pub(crate) fn major_version(&self) -> u32 {
        // "15.20", and "18beta1" too.
        let digits = self.version.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.version.len());
        self.version[..digits].parse().expect("a version begins with a number")
    }

    /// A server program, run as an unprivileged user (servers refuse root) and ended when the
    /// thread that starts it ends.
    pub(crate) fn server_program(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        // SIGQUIT is a server's immediate shutdown.
        command.arg("--pdeathsig=QUIT").arg(self.bindir.join(name));
        // Locale and variables of the caller must not leak into a cluster.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("PG") {
                command.env_remove(variable);
            }
        }
        command.env("LC_ALL", "C").current_dir("/");
        command
    }
}

/// Makes a data directory; `home` is a new cluster's.
pub(crate) fn copy_template(home: &Path, data: &Path) {
    copy(template(home), data);
}

/// The template's path; makes it first if it is not there. `scratch` is a directory that the
/// server's user can write to.
fn template(scratch: &Path) -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| make_template(scratch))
}

fn make_template(scratch: &Path) -> PathBuf {
    let installation = Installation::get();
    let user = rustix::process::geteuid().as_raw();
    let template =
        profile_directory().join(format!("initdb-template-{}-{user}", installation.version));
    if template.join("PG_VERSION").exists() {
        return template;
    }
    // Made where the server's user may write, then copied beside its final place and renamed:
    // of several test processes at a time one wins, and none sees half a template.
    let fresh = scratch.join("initdb");
    initdb(&fresh);
    let staged = TempDir::new_in(profile_directory()).expect("the build directory is writable");
    let staged = staged.keep();
    fs::remove_dir(&staged).expect("it is new and empty");
    copy(&fresh, &staged);
    fs::remove_dir_all(&fresh).expect("the scratch copy can be removed");
    if fs::rename(&staged, &template).is_err() {
        fs::remove_dir_all(&staged).expect("the second template can be removed");
    }
    assert!(template.join("PG_VERSION").exists(), "no template in {}", template.display());
    template
}

/// Makes a data directory from nothing.
pub(crate) fn initdb(data: &Path) {
    let output = Installation::get()
        .server_program("initdb")
        .args(["--auth=trust", "--username=postgres", "--locale=C", "--encoding=UTF8"])
        .args(["--no-sync", "-D"])
        .arg(data)
        .output()
        .expect("setpriv runs");
    assert!(
        output.status.success(),
        "initdb failed: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies a directory with owners and modes, sharing the blocks where the file system can.
pub(crate) fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status();
    let status = status.expect("cp runs");
    assert!(status.success(), "cannot copy {} to {}", from.display(), to.display());
}
