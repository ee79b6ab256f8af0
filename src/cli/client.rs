//! A session with a running server, over the client protocol.
//!
//! The main thread, with a runtime of tokio. It does not know what the sub-commands do with the session.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use corral_client::{Client, Connector, Credentials, Error, ErrorCode, Identity, Servers};

use crate::cli::output::in_session_runtime;
use crate::exit::{ExitCode, Fault};
use crate::net::tls::outgoing;

const DEFAULT_SERVER: &str = "127.0.0.1:2181";

/// Servers and identities of a session.
#[derive(Args)]
pub(super) struct Connection {
    /// The servers, HOST:PORT with commas between them, and the path below which all paths are, if there is one
    #[arg(
        long,
        value_name = "HOSTS[/CHROOT]",
        overrides_with = "server",
        env = "CORRAL_SERVER",
        default_value = DEFAULT_SERVER
    )]
    server: String,
    /// Timeout of the session in milliseconds. A server that is silent for two thirds of it is given up
    #[arg(long, value_name = "MS", overrides_with = "session_timeout", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    session_timeout: u64,
    /// Authenticate, for example digest:user:password; may be repeated. Other users of this host see it
    #[arg(long, value_name = "SCHEME:CREDENTIALS")]
    auth: Vec<String>,
    /// File with one SCHEME:CREDENTIALS a line
    #[arg(long, value_name = "FILE", env = "CORRAL_AUTH_FILE")]
    auth_file: Option<PathBuf>,
    /// File with USER:PASSWORD for SASL with DIGEST-MD5
    #[arg(long, value_name = "FILE", env = "CORRAL_SASL_FILE")]
    sasl_file: Option<PathBuf>,
    /// Connect by TLS; a file with the authorities of the servers' certificates
    #[arg(long, value_name = "FILE", env = "CORRAL_CA")]
    ca: Option<PathBuf>,
    /// File with a certificate and its key, if the servers ask for one
    #[arg(long, value_name = "FILE", env = "CORRAL_CERT", requires = "ca")]
    cert: Option<PathBuf>,
}

impl Connection {
    /// Connects, gives the session to `work`, and closes it.
    ///
    /// # Errors
    /// If the arguments cannot be used, no server answers, or `work` fails.
    pub(super) fn with<T, F: Future<Output = Result<T, Fault>>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> Result<T, Fault> {
        let connector = self.connector(self.servers()?)?;
        in_session_runtime(async {
            let client = Client::start(connector);
            client.connected().await.map_err(|error| self.unreachable(&error))?;
            let result = work(client.clone()).await;
            client.close().await;
            result
        })
    }

    /// Whether the session has a user of SASL.
    pub(super) fn has_sasl(&self) -> bool {
        self.sasl_file.is_some()
    }

    /// The servers, as given.
    pub(super) fn server(&self) -> &str {
        // As an empty variable of the environment gives it.
        if self.server.is_empty() { DEFAULT_SERVER } else { &self.server }
    }

    /// The servers.
    ///
    /// # Errors
    /// If they are not given as HOST:PORT.
    pub(super) fn servers(&self) -> Result<Servers, Fault> {
        Servers::parse(self.server()).map_err(|error| self.unreachable(&error))
    }

    /// How a session with these servers is opened.
    ///
    /// # Errors
    /// If the arguments cannot be used.
    pub(super) fn connector(&self, servers: Servers) -> Result<Connector, Fault> {
        let config = |sentence: String| Fault::new(ExitCode::Config, sentence);
        let tls = self.ca.as_deref().map(|ca| outgoing(ca, self.cert.as_deref())).transpose().map_err(config)?;
        Ok(Connector {
            timeout: Duration::from_millis(self.session_timeout),
            identities: self.identities()?,
            sasl: self.sasl_file.as_deref().map(credentials).transpose()?,
            tls: tls.map(Arc::new),
            ..Connector::new(servers)
        })
    }

    /// Whether the session has an identity beside its address.
    pub(super) fn authenticates(&self) -> bool {
        !self.auth.is_empty() || self.auth_file.is_some() || self.sasl_file.is_some() || self.cert.is_some()
    }

    fn identities(&self) -> Result<Vec<Identity>, Fault> {
        let mut lines = self.auth.clone();
        if let Some(file) = &self.auth_file {
            lines.extend(read(file)?.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        }
        let wrong = || Fault::new(ExitCode::Usage, "an identity is SCHEME:CREDENTIALS, as in digest:user:password");
        let split = |line: &String| line.split_once(':').map(|(scheme, rest)| (scheme.to_owned(), Some(rest.into())));
        lines.iter().map(|line| split(line).ok_or_else(wrong)).collect()
    }

    /// The fault of a session that cannot be opened.
    pub(super) fn unreachable(&self, error: &Error) -> Fault {
        let advice = match error.code {
            ErrorCode::BadArguments => "give --server as HOST:PORT,HOST:PORT/CHROOT",
            ErrorCode::AuthFailed => "check scheme and credentials",
            _ => "start a server there, check --server and TLS, or give a longer --session-timeout",
        };
        Fault::new(exit_code(error.code), format!("{}: no session: {error}; {advice}", self.server))
    }
}

fn credentials(file: &Path) -> Result<Credentials, Fault> {
    let text = read(file)?;
    let parts = text.trim_end_matches(['\r', '\n']).split_once(':');
    let wrong = || Fault::new(ExitCode::Config, format!("{}: write USER:PASSWORD into it", file.display()));
    let (user, password) = parts.ok_or_else(wrong)?;
    Ok(Credentials { user: user.to_owned(), password: password.to_owned() })
}

fn read(file: &Path) -> Result<String, Fault> {
    fs::read_to_string(file)
        .map_err(|error| Fault::new(ExitCode::Config, format!("{}: cannot be read: {error}", file.display())))
}

/// The fault of a request for a path.
pub(super) fn failed(path: &str, error: &Error) -> Fault {
    let advice = match error.code {
        ErrorCode::NoAuth => "give an identity with --auth that has the permission",
        ErrorCode::BadArguments => "give a path such as /app",
        ErrorCode::NoNode => "check the path, and the chroot in --server",
        ErrorCode::Unimplemented => "the server has no containers or TTL nodes switched on",
        ErrorCode::ConnectionLoss | ErrorCode::SessionExpired | ErrorCode::Closing => {
            "the connection was lost, so run the command again"
        }
        ErrorCode::BadVersion => "another process changed it, so read it again",
        ErrorCode::QuotaExceeded => "raise the quota, or free space",
        ErrorCode::InvalidAcl => "give entries such as world:anyone:r, and an identity with --auth for auth::",
        _ => "see the log of the server",
    };
    Fault::new(exit_code(error.code), format!("{path}: {error}; {advice}"))
}

/// How a command ends because of an error.
pub(super) fn exit_code(code: ErrorCode) -> ExitCode {
    match code {
        ErrorCode::ConnectionLoss
        | ErrorCode::SessionExpired
        | ErrorCode::SessionMoved
        | ErrorCode::OperationTimeout
        | ErrorCode::Closing => ExitCode::SessionLost,
        ErrorCode::NoNode => ExitCode::NoZnode,
        ErrorCode::NodeExists | ErrorCode::NotEmpty | ErrorCode::BadVersion | ErrorCode::QuotaExceeded => {
            ExitCode::Conflict
        }
        ErrorCode::NoAuth | ErrorCode::AuthFailed | ErrorCode::SessionClosedRequireSaslAuth => ExitCode::NotPermitted,
        ErrorCode::BadArguments | ErrorCode::InvalidAcl => ExitCode::Usage,
        _ => ExitCode::Internal,
    }
}
