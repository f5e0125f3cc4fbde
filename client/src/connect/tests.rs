//! What options, connection strings and variables come to.

use super::*;

fn resolve(options: &ConnectOptions, env: &[(&str, &str)]) -> Result<Target, Error> {
    Target::resolve(options, |name| {
        env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn an_option_wins_over_the_environment_and_a_connection_string_over_both() {
    let mut options = ConnectOptions {
        host: Some("by-option".into()),
        username: Some("olga".into()),
        ..ConnectOptions::default()
    };
    let env = [("PGHOST", "by-variable"), ("PGPORT", "6000"), ("PGDATABASE", "shop")];
    let target = resolve(&options, &env).unwrap();
    assert_eq!(
        target.conninfo(),
        "host='by-option' port='6000' user='olga' dbname='shop' sslmode='disable'"
    );
    options.dbname = Some("postgresql://uri.example:7000/orders".into());
    let target = resolve(&options, &env).unwrap();
    assert_eq!(
        target.conninfo(),
        "host='uri.example' port='7000' user='olga' dbname='orders' sslmode='disable'"
    );
}

#[test]
fn a_password_is_in_no_conninfo() {
    let options = ConnectOptions {
        dbname: Some("host=h dbname='it''s' password=secret".replace("''", "\\'")),
        ..ConnectOptions::default()
    };
    let target = resolve(&options, &[]).unwrap();
    assert_eq!(target.conninfo(), r"host='h' port='5432' dbname='it\'s' sslmode='disable'");
    assert_eq!(target.password(), Some(&b"secret"[..]));
    assert!(!format!("{target:?}").contains("secret"), "{target:?}");
}

#[test]
fn several_hosts_have_one_port_or_one_each() {
    let options = |host: &str, port: &str| ConnectOptions {
        host: Some(host.into()),
        port: Some(port.into()),
        ..ConnectOptions::default()
    };
    let target = resolve(&options("a,b", "1,2"), &[]).unwrap();
    assert_eq!(target.conninfo(), "host='a,b' port='1,2' sslmode='disable'");
    assert!(resolve(&options("a,b", "7"), &[]).is_ok());
    let error = resolve(&options("a,b", "1,2,3"), &[]).unwrap_err();
    assert_eq!(error.to_string(), "invalid connection setting port: 3 ports do not match 2 hosts");
}

#[test]
fn what_cannot_be_understood_is_named_without_its_value() {
    let options = ConnectOptions {
        dbname: Some("host=h pasword=secret".into()),
        ..ConnectOptions::default()
    };
    let text = resolve(&options, &[]).unwrap_err().to_string();
    assert!(text.contains("pasword") && !text.contains("secret"), "{text}");
    assert!(matches!(
        resolve(&ConnectOptions::default(), &[("PGSSLMODE", "verify-full")]),
        Err(Error::TlsRequired)
    ));
}

#[test]
fn encryption_that_a_variable_demands_is_given_up_only_by_an_sslmode() {
    let demanded = |dbname: &str| {
        let options = ConnectOptions { dbname: Some(dbname.into()), ..Default::default() };
        let target = resolve(&options, &[("PGSSLMODE", "require")]);
        matches!(target, Err(Error::TlsRequired))
    };
    for silent in [
        "sslmode",
        "dbname=sslmode",
        "password='sslmode=disable'",
        "postgresql://sslmode:x@h/sslmode?application_name=sslmode",
    ] {
        assert!(demanded(silent), "{silent}");
    }
    for outspoken in ["dbname=d sslmode=disable", "postgresql://h/d?sslmode=prefer"] {
        assert!(!demanded(outspoken), "{outspoken}");
    }
}

#[test]
fn a_variable_that_would_lead_elsewhere_is_refused_and_not_passed_over() {
    let options = ConnectOptions::default();
    let error = resolve(&options, &[("PGSERVICE", "production")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid connection setting PGSERVICE: this version does not follow this variable"
    );
    assert!(resolve(&options, &[("PGCHANNELBINDING", "require")]).is_err());
    assert!(resolve(&options, &[("PGGSSENCMODE", "require")]).is_err());
    assert!(resolve(&options, &[("PGCHANNELBINDING", "prefer"), ("PGSERVICE", "")]).is_ok());
}
