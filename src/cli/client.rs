//! A session with a running server, over the client protocol.
//!
//! The main thread, with a runtime of tokio. It does not know what the sub-commands do with the session.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::runtime;
use tokio::time::timeout;
use zookeeper_client::{Client, Error, SessionState};

use crate::exit::{ExitCode, Fault};

/// A session that is closed in good order is not waited for longer.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Address and identities of a session.
#[derive(Args)]
pub(super) struct Connection {
    /// The servers, HOST:PORT with commas between them, and the path below which all paths are, if there is one
    #[arg(long, value_name = "HOSTS[/CHROOT]", env = "CORRAL_SERVER", default_value = "127.0.0.1:2181")]
    server: String,
    /// Timeout of the session in milliseconds. A server that is silent for two fifths of it is given up
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    timeout: u64,
    /// Authenticate, for example digest:user:password; may be repeated. Other users of this host see it
    #[arg(long, value_name = "SCHEME:CREDENTIALS")]
    auth: Vec<String>,
    /// File with one SCHEME:CREDENTIALS a line
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
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
        let failed = |error: std::io::Error| Fault::new(ExitCode::Internal, format!("tokio cannot start: {error}"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let identities = self.identities()?;
        let done = runtime.block_on(async {
            let limit = Duration::from_millis(self.timeout);
            let mut connector = Client::connector().with_session_timeout(limit).with_fail_eagerly();
            for (scheme, credentials) in &identities {
                connector = connector.with_auth(scheme, credentials.as_bytes());
            }
            let connected = timeout(limit, connector.connect(&self.server)).await.unwrap_or(Err(Error::Timeout));
            let client = connected.map_err(|error| self.unreachable(&error))?;
            let mut state = client.state_watcher();
            let result = work(client).await;
            let closed =
                async { while !matches!(state.changed().await, SessionState::Closed | SessionState::Expired) {} };
            let _ = timeout(CLOSED_WITHIN, closed).await;
            result
        });
        runtime.shutdown_background();
        done
    }

    /// Whether the session has an identity beside its address.
    pub(super) fn authenticates(&self) -> bool {
        !self.auth.is_empty() || self.auth_file.is_some()
    }

    fn identities(&self) -> Result<Vec<(String, String)>, Fault> {
        let mut lines = self.auth.clone();
        if let Some(file) = &self.auth_file {
            let text = fs::read_to_string(file).map_err(|error| {
                Fault::new(ExitCode::Config, format!("{}: cannot be read: {error}", file.display()))
            })?;
            lines.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        }
        let wrong = || Fault::new(ExitCode::Usage, "an identity is SCHEME:CREDENTIALS, as in digest:user:password");
        let split = |line: &String| line.split_once(':').map(|(scheme, rest)| (scheme.to_owned(), rest.to_owned()));
        lines.iter().map(|line| split(line).ok_or_else(wrong)).collect()
    }

    fn unreachable(&self, error: &Error) -> Fault {
        let (code, advice) = match error {
            Error::BadArguments(_) => (ExitCode::Usage, "give --server as HOST:PORT,HOST:PORT/CHROOT"),
            Error::AuthFailed => (ExitCode::Internal, "check scheme and credentials of --auth"),
            _ => (ExitCode::Internal, "start a server there, check --server, or give a longer --timeout"),
        };
        Fault::new(code, format!("{}: no session: {error}; {advice}", self.server))
    }
}

/// The fault of a request for a path.
pub(super) fn failed(path: &str, error: &Error) -> Fault {
    let advice = match error {
        Error::NoAuth => "give an identity with --auth that has the permission",
        Error::BadArguments(_) => "give a path such as /app",
        Error::NoNode => "check the path, and the chroot in --server",
        Error::Unimplemented => "the server has no containers or TTL nodes switched on",
        Error::ConnectionLoss | Error::SessionExpired | Error::Timeout | Error::ClientClosed => {
            "the connection was lost, so run the command again"
        }
        Error::QuotaExceeded => "raise the quota, or free space",
        _ => "see the log of the server",
    };
    Fault::new(ExitCode::Internal, format!("{path}: {error}; {advice}"))
}
