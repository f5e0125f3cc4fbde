//! Installing and removing.

use postgres::error::SqlState;
use stillpoint_tests::Cluster;

use crate::{DATABASE, Race, refusal};

#[test]
fn the_library_and_the_installed_sql_have_the_version_of_this_build() {
    let race = Race::begin("");
    let mut session = race.cluster.session(DATABASE);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(session.text("SELECT stillpoint.version()"), version);
    let installed = "SELECT extversion FROM pg_extension WHERE extname = 'stillpoint'";
    assert_eq!(session.text(installed), version);
}

#[test]
fn a_second_create_extension_is_refused_and_drop_takes_all_away() {
    let mut race = Race::begin("");
    let error = refusal(&race.cluster, &mut race.other, "CREATE EXTENSION stillpoint");
    assert_eq!(error.code(), &SqlState::DUPLICATE_OBJECT);
    race.other.exec("DROP EXTENSION stillpoint");
    let left = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'stillpoint'::regnamespace";
    assert_eq!(race.other.number(left), 0);
    race.other.exec("CREATE EXTENSION stillpoint");
    assert_eq!(race.other.text("SELECT stillpoint.version()"), env!("CARGO_PKG_VERSION"));
}

#[test]
fn only_a_superuser_creates_the_extension() {
    let cluster = Cluster::start();
    cluster.session("postgres").exec("CREATE ROLE owner LOGIN CREATEDB");
    cluster.session_as("postgres", "owner").exec("CREATE DATABASE mine");
    let mut session = cluster.session_as("mine", "owner");
    let error = refusal(&cluster, &mut session, "CREATE EXTENSION stillpoint");
    assert_eq!(error.code(), &SqlState::INSUFFICIENT_PRIVILEGE);
}

#[test]
fn the_extension_stays_in_its_schema() {
    let mut race = Race::begin("CREATE SCHEMA other");
    let sql = "ALTER EXTENSION stillpoint SET SCHEMA other";
    let error = refusal(&race.cluster, &mut race.other, sql);
    assert_eq!(error.code(), &SqlState::FEATURE_NOT_SUPPORTED);
}

#[test]
fn every_function_says_what_it_is_for() {
    let mut race = Race::begin("");
    let silent = "SELECT p.proname FROM pg_proc p
                   WHERE p.pronamespace = 'stillpoint'::regnamespace
                     AND obj_description(p.oid, 'pg_proc') IS NULL";
    assert!(race.other.texts(silent).is_empty());
}
