//! HTTP for administration: the commands of ZooKeeper's AdminServer, with metrics and probes beside them.
//!
//! On the control thread. A command asks shards and leader as the four-letter command does that shows the same. The commands that
//! change something need a proof, and are off by default.

mod commands;
mod json;
pub(crate) mod proof;
pub(crate) mod restore;
mod snapshot;
mod top;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use corral_core::shard::four_letter::is_long;
use corral_wire::fourletter::FourLetter;
use tokio::sync::Semaphore;

use self::commands::{COMMANDS, Command, Kind, LOG_ENTRIES, SHED, failed};
use self::json::object;
use self::proof::{Denied, Proofs};
use self::restore::{Restores, Stage};
use self::snapshot::{Snapshots, Source, Wanted};
use super::http::{self, Client};
use super::space::Space;
use crate::config::Config;
use crate::config::digests::hash;
use crate::exit::{ExitCode, Fault};
use crate::messages::ToControl;
use crate::runtime::complaint::Complaint;

/// Long answers that are made, or that clients have not taken: one may have 32 MiB of text.
const LONG_MAX: usize = 2;

/// Settings of the commands.
pub(crate) struct Settings {
    /// Path of the commands, without a slash at its end.
    pub(crate) command_url: String,
    /// Whether commands that change something are carried out.
    pub(crate) allow_changes: bool,
    pub(crate) proofs: Proofs,
    /// Directory of the snapshots.
    pub(crate) data_dir: PathBuf,
    /// Directory of the log.
    pub(crate) log_dir: PathBuf,
    /// Id of this server.
    pub(crate) server: u8,
    pub(crate) space: Space,
    /// Restores a snapshot. Missing on a server of an ensemble.
    pub(crate) stage: Option<Stage>,
}

impl Settings {
    /// As it is configured.
    ///
    /// # Errors
    /// A `Config` fault if the file of tokens cannot be used.
    pub(crate) fn configured(config: &Config) -> Result<Settings, Fault> {
        let (admin, security) = (&config.admin, &config.security);
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let super_digest = given(&security.super_digest.0).filter(|_| security.digest_scheme);
        let proofs = Proofs {
            token_file: Some(admin.token_file.clone()).filter(|path| !path.as_os_str().is_empty()),
            digest: super_digest.map(|digest| (digest, hash(security.digest_algorithm))),
            x509_super_user: given(&security.x509_super_user.0),
        };
        proofs.check().map_err(|sentence| {
            let path = admin.token_file.display();
            Fault::new(ExitCode::Config, format!("admin.token_file: {path}: {sentence}"))
        })?;
        Ok(Settings {
            command_url: admin.command_url.0.clone(),
            allow_changes: admin.allow_changes,
            proofs,
            data_dir: config.server.data_dir.clone(),
            log_dir: config.server.log_dir.clone(),
            server: config.server.server_id,
            space: Space::new(&config.server.data_dir, &config.server.log_dir, config.log.segment_bytes),
            stage: None,
        })
    }
}

struct Admin {
    settings: Settings,
    control: flume::Sender<ToControl>,
    /// Permits of long answers.
    long: Arc<Semaphore>,
    denied: Mutex<Complaint>,
    snapshots: Snapshots,
    restores: Restores,
}

/// The commands, metrics and probes.
pub(super) fn router(settings: Settings, control: flume::Sender<ToControl>) -> Router {
    let url = settings.command_url.clone();
    let (long, denied) = (Arc::new(Semaphore::new(LONG_MAX)), Mutex::default());
    let Settings { data_dir, log_dir, server, .. } = &settings;
    let source = Source { data_dir: data_dir.clone(), log_dir: log_dir.clone(), server: *server };
    let snapshots = Snapshots::new(source);
    let restores = Restores::new(settings.stage.clone(), &settings.data_dir, settings.space.clone());
    let admin = Arc::new(Admin { settings, control: control.clone(), long, denied, snapshots, restores });
    Router::new()
        .route(&url, get(list))
        .route(&format!("{url}/"), get(list))
        .route(&format!("{url}/{{*name}}"), get(command).post(command))
        .route("/top", get(loads))
        .with_state(admin)
        .merge(http::router(control))
}

/// Links to all commands, as ZooKeeper shows them.
async fn list(State(admin): State<Arc<Admin>>) -> Html<String> {
    let url = &admin.settings.command_url;
    let link = |command: &Command| format!("<a href=\"{url}/{0}\">{0}</a>\n<br/>\n", command.name());
    Html(COMMANDS.iter().map(link).collect())
}

async fn command(
    State(admin): State<Arc<Admin>>,
    Extension(client): Extension<Client>,
    method: Method,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(command) = Command::named(&name) else {
        return json(StatusCode::OK, failed(&name, &format!("Unknown command: {name}")));
    };
    let argument = match argument(command, &uri) {
        Ok(argument) => argument,
        Err(error) => return json(StatusCode::OK, failed(command.name(), &error)),
    };
    let fault = match command.kind {
        Kind::Shows | Kind::Reveals(_) if method == Method::POST => {
            Some((StatusCode::METHOD_NOT_ALLOWED, "the command shows something; send GET".to_owned()))
        }
        Kind::Shows => None,
        Kind::Changes if method == Method::HEAD => {
            Some((StatusCode::METHOD_NOT_ALLOWED, "the command changes something; send GET or POST".to_owned()))
        }
        Kind::Changes => admin.deny_change(command, &client, &headers),
        Kind::Reveals(_) => admin.deny(command, &client, &headers),
        Kind::Restores if method != Method::POST => {
            Some((StatusCode::METHOD_NOT_ALLOWED, "the command takes a snapshot; send POST".to_owned()))
        }
        Kind::Restores => admin.deny_change(command, &client, &headers),
    };
    if let Some((code, error)) = fault {
        return json(code, failed(command.name(), &error));
    }
    if command.kind == Kind::Restores {
        return admin.restores.answer(&admin.control, &client, body).await;
    }
    if let Kind::Reveals(format) = command.kind {
        let streams = query(&uri, "streaming").is_none_or(|value| value.eq_ignore_ascii_case("true"));
        let wanted = Wanted { command: command.name(), format, argument, streams };
        return admin.snapshots.answer(&admin.control, &client, wanted).await;
    }
    admin.carry_out(command, &client, argument).await
}

/// `GET /top`: the clients and paths that load this server most.
async fn loads(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    match http::ask(&admin.control, FourLetter::Top, 0).await {
        Some(gathered) => top::answer(&gathered, &uri),
        None => http::stops(),
    }
}

impl Admin {
    /// Why a client may not change something; `None` if it may.
    fn deny_change(&self, command: &Command, client: &Client, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        if !self.settings.allow_changes {
            let error = "the command changes something, and that is off; set admin.allow_changes = true";
            return Some((StatusCode::FORBIDDEN, error.to_owned()));
        }
        self.deny(command, client, headers)
    }

    /// Why a client has not proven that it may use a command; `None` if it has.
    fn deny(&self, command: &Command, client: &Client, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (name, address) = (command.name(), client.address);
        match self.settings.proofs.accept(authorization, client.subject.as_deref()) {
            Ok(scheme) => {
                tracing::info!(command = name, %address, scheme, "admin command");
                None
            }
            Err(denied) => {
                let mut complaint = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(so_far) = complaint.again(Instant::now()) {
                    let reason =
                        if let Denied::Unusable(sentence) = &denied { sentence.clone() } else { denied.to_string() };
                    tracing::warn!(command = name, %address, so_far, "admin command refused: {reason}");
                }
                let code = match denied {
                    Denied::NotAllowed => StatusCode::FORBIDDEN,
                    _ => StatusCode::UNAUTHORIZED,
                };
                Some((code, denied.to_string()))
            }
        }
    }

    /// Begins to close this share of the connections. Gives its size.
    async fn shed(&self, percent: i64) -> Response {
        let Some(gathered) = http::ask(&self.control, FourLetter::Srvr, 0).await else { return http::stops() };
        if self.control.send(ToControl::Shed { percent: u8::try_from(percent).unwrap_or_default() }).is_err() {
            return http::stops();
        }
        let connections = gathered.report.totals.connections * percent.unsigned_abs();
        let body = object(|fields| {
            fields.put("connections_shed", &connections.div_ceil(100));
            fields.put("percentage_requested", &percent);
            fields.put("command", SHED);
            fields.put("error", &None::<&str>);
        });
        json(StatusCode::OK, body)
    }

    async fn carry_out(&self, command: &Command, client: &Client, argument: i64) -> Response {
        if is_long(command.asks) {
            let Ok(permit) = Arc::clone(&self.long).acquire_owned().await else { return http::stops() };
            client.keep(permit);
        }
        if command.name() == SHED {
            return self.shed(argument).await;
        }
        if command.name() == "observer_connection_stat_reset" && self.control.send(ToControl::ObserversReset).is_err() {
            return http::stops();
        }
        match http::ask(&self.control, command.asks, argument).await {
            Some(mut gathered) => json(StatusCode::OK, command.answer(&mut gathered)),
            None => http::stops(),
        }
    }
}

/// The argument of `set_trace_mask`, with errors in ZooKeeper's words, of [`SHED`] or of [`LOG_ENTRIES`]; 0 of other commands.
fn argument(command: &Command, uri: &Uri) -> Result<i64, String> {
    let (key, needed) = match command.name() {
        "set_trace_mask" => ("traceMask", "setTraceMask requires long traceMask argument"),
        SHED => ("percentage", "shed_connections requires a percentage argument from 0 to 100"),
        LOG_ENTRIES => ("after", "log_entries requires the index of a log entry as argument after"),
        _ => return Ok(0),
    };
    let value = query(uri, key).ok_or_else(|| needed.to_owned())?;
    let allowed = match command.name() {
        SHED => 0..=100,
        LOG_ENTRIES => 0..=i64::MAX,
        _ => i64::MIN..=i64::MAX,
    };
    let number = value.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("{needed}, got {value}"))
}

/// The last value of a key in the query.
fn query<'u>(uri: &'u Uri, key: &str) -> Option<&'u str> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next_back()
}

fn json(code: StatusCode, body: Vec<u8>) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_of_one_command() {
        let mut names: Vec<&str> = COMMANDS.iter().flat_map(|command| command.names).copied().collect();
        assert!(COMMANDS.is_sorted_by_key(|command| command.name()));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn masks_are_numbers() {
        let command = Command::named("stmk").expect("it is there");
        let mask = |query: &str| argument(command, &format!("/commands/stmk{query}").parse().expect("a path"));
        assert_eq!(mask("?traceMask=306"), Ok(306));
        assert_eq!(mask("?a=1&traceMask=-1"), Ok(-1));
        assert!(mask("").is_err_and(|error| error.ends_with("argument")));
        assert!(mask("?traceMask=x").is_err_and(|error| error.ends_with("argument, got x")));
    }
}
