//! Where to connect: what the user said, what the environment says, what libpq would take.
//!
//! As with `pg_dump`, a connection string wins over the single options, these win over the
//! `PG*` variables (PostgreSQL documentation, chapter "Environment Variables" of libpq).
//!
//! The first connection decides on a host. Every later one, and every program we start, goes to
//! that host alone: a list of hosts must not lead two halves of a dump to two servers.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};

use crate::wire::{Client, ConnectError};

/// Directories in which servers put their Unix sockets: Debian's choice, then PostgreSQL's own.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const DEFAULT_PORT: u16 = 5432;

/// Variables of libpq that we do not follow, with the values that change nothing. To pass over
/// one would lead to another server than the user means, or do without a proof that the user
/// asks for; and pg_dump, which follows them, would go another way than we.
const NOT_FOLLOWED: [(&str, &[&str]); 8] = [
    ("PGSERVICE", &[]),
    ("PGHOSTADDR", &[]),
    ("PGTARGETSESSIONATTRS", &["any"]),
    ("PGCHANNELBINDING", &["disable", "prefer"]),
    ("PGREQUIRESSL", &["0"]),
    ("PGGSSENCMODE", &["disable", "prefer"]),
    ("PGREQUIREAUTH", &[]),
    ("PGREQUIREPEER", &[]),
];

/// What can go wrong before there is a session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection string, option or variable that cannot be understood.
    #[error("invalid connection setting {name}: {reason}")]
    Invalid {
        /// The option's or variable's name.
        name: String,
        /// What is wrong with it; never the value, which may hold a password.
        reason: String,
    },
    /// A command that changes a database, and no word of which.
    #[error("no database to restore into is named")]
    NoDatabase,
    /// The setting asks for TLS, which this version does not speak.
    #[error("an encrypted connection is asked for (sslmode), which this version cannot make")]
    TlsRequired,
    /// No host of the list took the connection.
    #[error("could not connect: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refusal>),
}

impl Error {
    /// Whether the only thing that is wrong is that a server took too long.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let is_late = |refusal: &Refusal| matches!(refusal.source, ConnectError::Late(_));
        matches!(self, Self::Refused(refusals) if refusals.iter().all(is_late))
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TlsRequired => Some(
                "Use sslmode=prefer or disable on a network that you trust, or a tunnel.".into(),
            ),
            Self::NoDatabase => Some("Name it with -d.".into()),
            Self::Invalid { .. } | Self::Refused(_) => None,
        }
    }
}

/// Why one host did not take the connection.
#[derive(Debug)]
pub struct Refusal {
    host: String,
    port: u16,
    source: ConnectError,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.starts_with('/') {
            write!(f, "server on socket \"{}/.s.PGSQL.{}\": ", self.host, self.port)?;
        } else {
            write!(f, "server at \"{}\", port {}: ", self.host, self.port)?;
        }
        let server = match &self.source {
            ConnectError::Server(error) => error.as_db_error(),
            ConnectError::System(_) | ConnectError::Late(_) => None,
        };
        match server {
            Some(error) => write!(f, "{}: {}", error.severity(), error.message()),
            None => {
                write!(f, "{}", self.source)?;
                if let Some(cause) = std::error::Error::source(&self.source) {
                    write!(f, ": {cause}")?;
                }
                Ok(())
            }
        }
    }
}

/// The connection options of the command line.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Database name, or a connection string (`key=value` pairs or a URI).
    pub dbname: Option<String>,
    /// Host name or socket directory, or a comma-separated list.
    pub host: Option<String>,
    /// Port, or a comma-separated list.
    pub port: Option<String>,
    /// Role name.
    pub username: Option<String>,
}

/// Hosts to try in turn, and what is the same for all of them.
#[derive(Clone, Debug)]
pub struct Target {
    endpoints: Vec<Endpoint>,
    settings: Config,
}

#[derive(Clone, Debug)]
struct Endpoint {
    host: Host,
    port: u16,
}

impl Target {
    /// Puts together options and environment.
    ///
    /// # Errors
    ///
    /// A setting that cannot be understood or followed, and `sslmode` values that demand TLS.
    pub fn resolve(
        options: &ConnectOptions,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        for (variable, harmless) in NOT_FOLLOWED {
            let value = env(variable).unwrap_or_default();
            if !value.is_empty() && !harmless.contains(&value.as_str()) {
                return Err(invalid(variable, "this version does not follow this variable"));
            }
        }
        let said = options.dbname.as_deref().unwrap_or_default();
        let mut settings = if is_connection_string(said) {
            said.parse::<Config>().map_err(|error| invalid("-d", &chain(&error)))?
        } else {
            let mut config = Config::new();
            if !said.is_empty() {
                config.dbname(said);
            }
            config
        };
        let pick = |option: &Option<String>, variable: &str| {
            option.clone().or_else(|| env(variable)).filter(|value| !value.is_empty())
        };

        if settings.get_hosts().is_empty()
            && settings.get_hostaddrs().is_empty()
            && let Some(hosts) = pick(&options.host, "PGHOST")
        {
            for host in hosts.split(',') {
                settings.host(host.trim());
            }
        }
        if settings.get_ports().is_empty()
            && let Some(ports) = pick(&options.port, "PGPORT")
        {
            for port in ports.split(',') {
                let port = port
                    .trim()
                    .parse()
                    .map_err(|_| invalid("port", "it must be a number from 1 to 65535"))?;
                settings.port(port);
            }
        }
        if settings.get_user().is_none()
            && let Some(user) = pick(&options.username, "PGUSER")
        {
            settings.user(&user);
        }
        if settings.get_dbname().is_none()
            && let Some(dbname) = env("PGDATABASE").filter(|name| !name.is_empty())
        {
            settings.dbname(&dbname);
        }
        if settings.get_password().is_none()
            && let Some(password) = env("PGPASSWORD").filter(|password| !password.is_empty())
        {
            settings.password(password);
        }
        if settings.get_options().is_none()
            && let Some(options) = env("PGOPTIONS").filter(|options| !options.is_empty())
        {
            settings.options(&options);
        }
        if settings.get_connect_timeout().is_none()
            && let Some(seconds) = env("PGCONNECT_TIMEOUT").filter(|seconds| !seconds.is_empty())
        {
            let seconds = seconds
                .parse()
                .map_err(|_| invalid("PGCONNECT_TIMEOUT", "it must be a number of seconds"))?;
            settings.connect_timeout(Duration::from_secs(seconds));
        }
        if !says_ssl_mode(said)
            && let Some(mode) = env("PGSSLMODE").filter(|mode| !mode.is_empty())
        {
            settings.ssl_mode(match mode.as_str() {
                "disable" => SslMode::Disable,
                "allow" | "prefer" => SslMode::Prefer,
                _ => SslMode::Require,
            });
        }
        if settings.get_ssl_mode() == SslMode::Require {
            return Err(Error::TlsRequired);
        }

        let endpoints = endpoints(&settings)?;
        Ok(Self { endpoints, settings })
    }

    /// Connects to the first host that takes us; the second value leads to that host alone.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with each host's reason.
    pub fn connect_any(&self) -> Result<(Client, Self), Error> {
        self.connect_within(None)
    }

    fn connect_within(&self, limit: Option<Duration>) -> Result<(Client, Self), Error> {
        let mut refusals = Vec::new();
        for endpoint in &self.endpoints {
            let single =
                Self { endpoints: vec![endpoint.clone()], settings: self.settings.clone() };
            match Client::connect(&single.config(endpoint), limit) {
                Ok(client) => return Ok((client, single)),
                Err(source) => {
                    refusals.push(Refusal { host: endpoint.name(), port: endpoint.port, source });
                }
            }
        }
        Err(Error::Refused(refusals))
    }

    /// One more connection, to the host that [`connect_any`](Self::connect_any) has found, within
    /// a time that holds for the server's own start of the session, too.
    ///
    /// # Errors
    ///
    /// As `connect_any`.
    pub fn connect(&self, limit: Duration) -> Result<Client, Error> {
        self.connect_within(Some(limit)).map(|(client, _)| client)
    }

    /// Whether a database is named at all; if none is, libpq takes that of the role's name.
    #[must_use]
    pub fn names_database(&self) -> bool {
        self.settings.get_dbname().is_some()
    }

    /// A conninfo string for programs that use libpq. It never holds the password: that goes
    /// into [`password`](Self::password), since a process list shows arguments.
    #[must_use]
    pub fn conninfo(&self) -> String {
        let mut conninfo = String::new();
        let mut add = |keyword: &str, value: &str| {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            let separator = if conninfo.is_empty() { "" } else { " " };
            // Writing to a String cannot fail.
            let _ = write!(conninfo, "{separator}{keyword}='{quoted}'");
        };
        let list = |part: fn(&Endpoint) -> String| {
            self.endpoints.iter().map(part).collect::<Vec<_>>().join(",")
        };
        add("host", &list(Endpoint::name));
        add("port", &list(|endpoint| endpoint.port.to_string()));
        if let Some(user) = self.settings.get_user() {
            add("user", user);
        }
        if let Some(dbname) = self.settings.get_dbname() {
            add("dbname", dbname);
        }
        if let Some(options) = self.settings.get_options() {
            add("options", options);
        }
        if let Some(timeout) = self.settings.get_connect_timeout() {
            add("connect_timeout", &timeout.as_secs().to_string());
        }
        match self.settings.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite => add("target_session_attrs", "read-write"),
            TargetSessionAttrs::ReadOnly => add("target_session_attrs", "read-only"),
            _ => {}
        }
        match self.settings.get_channel_binding() {
            ChannelBinding::Disable => add("channel_binding", "disable"),
            ChannelBinding::Require => add("channel_binding", "require"),
            _ => {}
        }
        add("sslmode", "disable");
        conninfo
    }

    /// The password for the `PGPASSWORD` variable of programs that we start.
    #[must_use]
    pub fn password(&self) -> Option<&[u8]> {
        self.settings.get_password()
    }

    fn config(&self, endpoint: &Endpoint) -> Config {
        let all = &self.settings;
        let mut config = Config::new();
        match &endpoint.host {
            Host::Tcp(name) => config.host(name),
            Host::Unix(directory) => config.host_path(directory),
        };
        config.port(endpoint.port);
        if let Some(user) = all.get_user() {
            config.user(user);
        }
        if let Some(password) = all.get_password() {
            config.password(password);
        }
        if let Some(dbname) = all.get_dbname() {
            config.dbname(dbname);
        }
        if let Some(options) = all.get_options() {
            config.options(options);
        }
        if let Some(timeout) = all.get_connect_timeout() {
            config.connect_timeout(*timeout);
        }
        if let Some(timeout) = all.get_tcp_user_timeout() {
            config.tcp_user_timeout(*timeout);
        }
        config.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
        config
            .ssl_mode(SslMode::Disable)
            .target_session_attrs(all.get_target_session_attrs())
            .channel_binding(all.get_channel_binding())
            .application_name(all.get_application_name().unwrap_or("stillpoint"));
        config
    }
}

impl Endpoint {
    fn name(&self) -> String {
        match &self.host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(directory) => directory.display().to_string(),
        }
    }
}

/// Whether libpq would read a database name as a connection string.
fn is_connection_string(dbname: &str) -> bool {
    dbname.contains('=') || dbname.starts_with("postgresql://") || dbname.starts_with("postgres://")
}

/// Whether a connection string sets `sslmode`. The parser does not tell that from its default, so
/// it is asked what it makes of two others that stand before.
fn says_ssl_mode(said: &str) -> bool {
    if !is_connection_string(said) {
        return false;
    }
    if said.contains("://") {
        let parameters = said.split_once('?').map_or("", |(_, parameters)| parameters);
        return parameters.split('&').any(|parameter| parameter.starts_with("sslmode="));
    }
    let after = |mode| {
        format!("sslmode={mode} {said}").parse::<Config>().map(|config| config.get_ssl_mode()).ok()
    };
    after("disable") == after("require")
}

fn endpoints(settings: &Config) -> Result<Vec<Endpoint>, Error> {
    let ports = settings.get_ports();
    let mut hosts: Vec<Host> = if settings.get_hostaddrs().is_empty() {
        settings.get_hosts().to_vec()
    } else {
        settings.get_hostaddrs().iter().map(|addr| Host::Tcp(addr.to_string())).collect()
    };
    if hosts.is_empty() {
        let port = ports.first().copied().unwrap_or(DEFAULT_PORT);
        let directory = SOCKET_DIRECTORIES
            .into_iter()
            .find(|directory| Path::new(directory).join(format!(".s.PGSQL.{port}")).exists())
            .unwrap_or(SOCKET_DIRECTORIES[0]);
        hosts.push(Host::Unix(directory.into()));
    }
    let port_of = |index: usize| match ports {
        [] => Ok(DEFAULT_PORT),
        [one] => Ok(*one),
        many if many.len() == hosts.len() => Ok(many[index]),
        many => Err(invalid(
            "port",
            &format!("{} ports do not match {} hosts", many.len(), hosts.len()),
        )),
    };
    hosts
        .iter()
        .enumerate()
        .map(|(index, host)| Ok(Endpoint { host: host.clone(), port: port_of(index)? }))
        .collect()
}

fn invalid(name: &str, reason: &str) -> Error {
    Error::Invalid { name: name.into(), reason: reason.into() }
}

fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
