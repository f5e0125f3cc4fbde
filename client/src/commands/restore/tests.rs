//! Restores with a `pg_restore` that only writes down how it was called.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Error, Options, run};
use crate::archive::sample;
use crate::codec::Codec;
use crate::connect::{ConnectOptions, Target};
use crate::exit::ExitStatus;
use crate::manifest::LeftOut;
use crate::programs::ProgramError;
use crate::programs::sample::program;

struct Scene {
    directory: TempDir,
    options: Options,
}

impl Scene {
    /// An archive, and a `pg_restore` of this version that ends with this status.
    fn new(version: &str, status: i32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let archive = directory.path().join("archive");
        fs::create_dir(&archive).expect("a directory");
        sample::create(&archive, Codec::Gzip);
        let script = format!(
            "if [ \"$1\" = --version ]; then echo 'pg_restore (PostgreSQL) {version}'; exit; fi\n\
             here=$(dirname \"$0\")\n\
             for argument; do printf '%s\\n' \"$argument\"; done > \"$here/arguments\"\n\
             env > \"$here/environment\"\n\
             exit {status}"
        );
        program(directory.path(), "pg_restore", &script);
        let connect = ConnectOptions {
            dbname: Some("host=/nowhere user=alice dbname='the shop' password=s3cret".to_owned()),
            ..ConnectOptions::default()
        };
        let options = Options {
            directory: archive,
            target: Target::resolve(&connect, |_| None).expect("a target"),
            jobs: 1,
            allow_incomplete: false,
            bindir: Some(directory.path().to_owned()),
            pg_restore_options: Vec::new(),
        };
        Self { directory, options }
    }

    fn run(&self) -> Result<ExitStatus, Error> {
        run(&self.options)
    }

    /// What `pg_restore` was called with, if it was.
    fn noted(&self, what: &str) -> Option<String> {
        fs::read_to_string(self.directory.path().join(what)).ok()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.options.directory.join(name)
    }

    fn make_incomplete(&self) {
        let mut manifest = sample::read_manifest(&self.options.directory);
        manifest.summary.complete = false;
        manifest.summary.left_out.push(LeftOut {
            schema: "public".into(),
            relation: "moved".into(),
            reasons: vec!["replaced".into()],
            ancestors: vec![],
        });
        sample::write_manifest(&self.options.directory, &manifest);
    }
}

#[test]
fn a_whole_archive_is_given_to_pg_restore() {
    let mut scene = Scene::new("17.2", 0);
    assert_eq!(scene.run().expect("restored"), ExitStatus::Done);
    let archive = scene.options.directory.display().to_string();
    let arguments = scene.noted("arguments").expect("it was called");
    let lines: Vec<&str> = arguments.lines().collect();
    assert_eq!(lines[0], "--no-password");
    assert!(lines[1].starts_with("--dbname=host='/nowhere' "), "{arguments}");
    assert!(lines[1].contains("dbname='the shop'"), "{arguments}");
    assert_eq!(lines[2..], ["--", &archive]);

    scene.options.jobs = 4;
    scene.options.pg_restore_options = vec!["--clean".into(), "--schema=a b".into()];
    assert_eq!(scene.run().expect("restored"), ExitStatus::Done);
    let arguments = scene.noted("arguments").expect("it was called");
    let lines: Vec<&str> = arguments.lines().collect();
    assert_eq!(lines[2..], ["--jobs=4", "--clean", "--schema=a b", "--", &archive]);
}

#[test]
fn the_password_is_handed_over_where_no_process_list_shows_it() {
    let scene = Scene::new("17.2", 0);
    scene.run().expect("restored");
    let arguments = scene.noted("arguments").expect("it was called");
    assert!(!arguments.contains("s3cret"), "{arguments}");
    let environment = scene.noted("environment").expect("it was called");
    assert!(environment.contains("\nPGPASSWORD=s3cret\n"), "{environment}");
}

#[test]
fn a_pg_restore_that_fails_is_a_failed_restore() {
    let scene = Scene::new("17.2", 1);
    let error = scene.run().expect_err("it failed");
    assert_eq!(error.to_string(), "pg_restore failed: exit status: 1");
    assert!(error.hint().is_some());
}

#[test]
fn a_damaged_archive_reaches_no_pg_restore() {
    let scene = Scene::new("17.2", 0);
    fs::write(scene.file("stranger"), "").expect("a file");
    let error = scene.run().expect_err("it is damaged");
    assert!(error.to_string().ends_with("is damaged: nothing was restored"), "{error}");
    assert_eq!(scene.noted("arguments"), None);
}

#[test]
fn an_archive_that_is_not_whole_is_restored_only_on_demand_and_not_as_a_success() {
    let mut scene = Scene::new("17.2", 0);
    scene.make_incomplete();
    let error = scene.run().expect_err("it is not whole");
    assert!(error.to_string().ends_with("is not whole: nothing was restored"), "{error}");
    assert!(error.hint().expect("a hint").contains("--allow-incomplete"));
    assert_eq!(scene.noted("arguments"), None);

    scene.options.allow_incomplete = true;
    assert_eq!(scene.run().expect("restored"), ExitStatus::NotWhole);
    assert!(scene.noted("arguments").is_some());
}

#[test]
fn a_damaged_archive_is_not_restored_on_demand_either() {
    let mut scene = Scene::new("17.2", 0);
    scene.options.allow_incomplete = true;
    fs::write(scene.file("toc.dat"), "").expect("a file");
    assert!(matches!(scene.run(), Err(Error::Damaged { .. })));
    assert_eq!(scene.noted("arguments"), None);
}

#[test]
fn an_archive_of_pg_dump_is_left_to_pg_restore() {
    let scene = Scene::new("17.2", 0);
    fs::remove_file(scene.file("manifest.json")).expect("a file");
    let error = scene.run().expect_err("no manifest");
    assert!(error.hint().expect("a hint").contains("pg_restore reads them"));
    assert_eq!(scene.noted("arguments"), None);
}

#[test]
fn a_pg_restore_older_than_the_archive_is_refused_with_both_versions() {
    let scene = Scene::new("15.20", 0);
    let error = scene.run().expect_err("the sample is of 17's format");
    assert!(matches!(error, Error::Program(ProgramError::OlderThanArchive { .. })), "{error}");
    assert!(error.to_string().contains("is of version 15, and the archive needs version 17"));
    assert!(error.hint().expect("a hint").contains("--bindir"));
    assert_eq!(scene.noted("arguments"), None);
}
