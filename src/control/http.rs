//! HTTP for operators: the connections of an endpoint, `GET /metrics`, and the probes `/livez`, `/readyz` and `/healthz`.
//!
//! On the control thread, with tokio. A data core sees nothing of it but the message that asks a shard for its counters. Few of these are
//! under way: a connection serves one request, and time and number of connections are limited. A further one closes the oldest.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use corral_core::report::Gathered;
use corral_core::report::health::{Check, checks};
use corral_wire::fourletter::FourLetter;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::prometheus;
use crate::messages::ToControl;
use crate::net::acceptor::BACKLOG;
use crate::net::handshakes::HANDSHAKE_RECORD;
use crate::net::listen;
use crate::net::tls::clients::ClientTls;
use crate::net::tls::subject::subject;

/// A request's head must be there after this time, and a TLS handshake done.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often an address that is in use is tried before the log says so, and the pause between later tries.
const LISTEN_TRIES: u32 = 20;
const LISTEN_PAUSE: Duration = Duration::from_secs(5);

/// Where and how HTTP is served.
pub(crate) struct Endpoint {
    pub(crate) listener: Listener,
    pub(crate) connections_max: usize,
    /// A connection is closed after this time, whatever it does.
    pub(crate) connection_timeout: Duration,
    pub(crate) tls: Option<EndpointTls>,
}

/// Listens already, or as soon as it can.
pub(crate) enum Listener {
    Open(TcpListener),
    /// At this address, which this key of the configuration gives.
    Wanted(SocketAddr, &'static str),
}

impl Listener {
    /// Waits until it listens.
    async fn open(self) -> io::Result<tokio::net::TcpListener> {
        let listener = match self {
            Listener::Open(listener) => listener,
            Listener::Wanted(address, key) => listen_at(address, key).await,
        };
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    }
}

/// Tries until it listens. After a process was killed, its address is in use for some milliseconds.
async fn listen_at(address: SocketAddr, key: &str) -> TcpListener {
    let mut tries = 0_u32;
    loop {
        let error = match listen::listen(address, BACKLOG) {
            Ok(listener) => return listener,
            Err(error) => error,
        };
        tries = tries.saturating_add(1);
        if tries == LISTEN_TRIES {
            let reason = listen::fault(address, &error, key).sentence;
            tracing::warn!("admin HTTP is not served, trying again: {reason}, or set admin.enabled to false");
        }
        tokio::time::sleep(if tries < LISTEN_TRIES { ACCEPT_PAUSE } else { LISTEN_PAUSE }).await;
    }
}

/// TLS of an endpoint.
#[derive(Clone)]
pub(crate) struct EndpointTls {
    pub(crate) certificates: ClientTls,
    /// Plaintext is served too.
    pub(crate) serves_plaintext: bool,
}

/// The other side of a connection.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// Whether it came over the loopback in plaintext. With TLS the name of the host is that of the certificate.
    is_local: bool,
    /// Subject of its certificate, if it proved one.
    pub(super) subject: Option<Arc<str>>,
    permit: Arc<OnceLock<OwnedSemaphorePermit>>,
    has_deadline: Arc<AtomicBool>,
}

impl Client {
    /// Whether its request is that of another site. Browsers mark such requests. In the name of a host that points to this one, they do
    /// not.
    fn is_kept_out(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_cross_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "none" | "same-origin"));
        is_cross_site || self.is_local && text("host").is_some_and(|host| !is_this_host(host))
    }

    /// Its answer takes as long as it is read.
    pub(super) fn has_no_deadline(&self) {
        self.has_deadline.store(false, Ordering::Relaxed);
    }

    /// Keeps a permit until the connection ends.
    pub(super) fn keep(&self, permit: OwnedSemaphorePermit) {
        // There is one request a connection.
        let _ = self.permit.set(permit);
    }
}

/// Refuses what another site makes a browser send, and names that an attacker lets point to this host.
async fn keep_sites_out(Extension(client): Extension<Client>, request: Request, next: Next) -> Response {
    if client.is_kept_out(request.headers()) {
        let sentence = "requests of other sites are refused: use an address or localhost as host, not a name\n";
        return (StatusCode::FORBIDDEN, sentence).into_response();
    }
    next.run(request).await
}

/// Whether an authority is an address, or `localhost`.
fn is_this_host(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

/// Metrics and probes.
pub(super) fn router(control: flume::Sender<ToControl>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .with_state(control)
}

impl Endpoint {
    /// Serves until the process ends.
    ///
    /// # Errors
    /// If tokio cannot take the listener.
    pub(super) async fn serve(self, router: Router) -> io::Result<()> {
        let (listener, tls) = (self.listener.open().await?, self.tls.is_some());
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, tls, "HTTP is served");
        }
        let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(self.connections_max);
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                // Descriptors are used up, or the connection is gone: both pass.
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            open.retain(|one| !one.is_finished());
            if open.len() >= self.connections_max {
                open.pop_front().inspect(AbortHandle::abort);
                // It closes its socket when it has its turn.
                tokio::task::yield_now().await;
            }
            // An error ends this connection alone.
            let has_deadline = Arc::new(AtomicBool::new(true));
            let connection = connection(stream, address, self.tls.clone(), router.clone(), Arc::clone(&has_deadline));
            open.push_back(tokio::spawn(limited(self.connection_timeout, has_deadline, connection)).abort_handle());
        }
    }
}

/// Ends a connection after this time, unless its answer may take longer.
async fn limited(limit: Duration, has_deadline: Arc<AtomicBool>, connection: impl Future<Output = ()>) {
    let mut connection = pin!(connection);
    if timeout(limit, &mut connection).await.is_err() && !has_deadline.load(Ordering::Relaxed) {
        connection.await;
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<EndpointTls>,
    router: Router,
    has_deadline: Arc<AtomicBool>,
) {
    let is_local = stream.local_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback());
    let mut client = Client { address, is_local, subject: None, permit: Arc::default(), has_deadline };
    let Some(EndpointTls { certificates, serves_plaintext }) = tls else {
        return request(stream, &client, router).await;
    };
    let mut first = [0];
    if serves_plaintext {
        match timeout(HEAD_TIMEOUT, stream.peek(&mut first)).await {
            Ok(Ok(1)) if first[0] == HANDSHAKE_RECORD => {}
            Ok(Ok(1)) => return request(stream, &client, router).await,
            _ => return,
        }
    }
    if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, TlsAcceptor::from(certificates.config()).accept(stream)).await {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        client.is_local = false;
        client.subject = chain.first().and_then(|first| subject(first)).map(Arc::from);
        request(stream, &client, router).await;
    }
}

/// Serves the one request of a connection.
async fn request(stream: impl AsyncRead + AsyncWrite + Unpin, client: &Client, router: Router) {
    let layers = router.layer(middleware::from_fn(keep_sites_out)).layer(Extension(client.clone()));
    let service = TowerToHyperService::new(layers);
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // The client is told the fault of a request.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// `GET /metrics`.
async fn metrics(State(control): State<flume::Sender<ToControl>>) -> Response {
    let Some(gathered) = ask(&control, FourLetter::Mntr, 0).await else { return stops() };
    match prometheus::text(&gathered) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// `GET /readyz`: whether the server accepts sessions and writes.
async fn readyz(state: State<flume::Sender<ToControl>>, uri: Uri) -> Response {
    probe("readyz", |check| check.is_for_readiness, state, &uri).await
}

/// `GET /healthz`: whether nothing needs an operator.
async fn healthz(state: State<flume::Sender<ToControl>>, uri: Uri) -> Response {
    probe("healthz", |_| true, state, &uri).await
}

/// 200 if all of these checks hold, else 503. The text has a line for each if one fails, or if the query has `verbose`.
async fn probe(
    name: &str,
    is_of_probe: fn(&Check) -> bool,
    State(control): State<flume::Sender<ToControl>>,
    uri: &Uri,
) -> Response {
    let Some(gathered) = ask(&control, FourLetter::Mntr, 0).await else { return stops() };
    let checks: Vec<Check> = checks(&gathered).into_iter().filter(is_of_probe).collect();
    let is_well = checks.iter().all(|check| check.fault.is_none());
    let is_verbose = uri.query().is_some_and(|query| query.split('&').any(|word| word.starts_with("verbose")));
    if is_well && !is_verbose {
        return "ok\n".into_response();
    }
    let line = |check: &Check| match &check.fault {
        None => format!("[+]{} ok\n", check.name),
        Some(fault) => format!("[-]{} failed: {fault}\n", check.name),
    };
    let mut text: String = checks.iter().map(line).collect();
    let (code, end) = if is_well { (StatusCode::OK, "passed") } else { (StatusCode::SERVICE_UNAVAILABLE, "failed") };
    text += &format!("{name} check {end}\n");
    (code, text).into_response()
}

/// The answer while the server stops.
pub(super) fn stops() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the server stops\n").into_response()
}

/// Asks the server for everything that the command shows, or has it carried out. `None` while it stops.
pub(super) async fn ask(control: &flume::Sender<ToControl>, command: FourLetter, argument: i64) -> Option<Gathered> {
    let (reply, answer) = oneshot::channel();
    control.send(ToControl::HttpAsked { command, argument, reply }).ok()?;
    answer.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_hosts() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "192.0.2.1"] {
            assert!(is_this_host(host), "{host}");
        }
        for host in ["example.org", "127.0.0.1.example.org:8080", "localhost.example.org", "", "a b", "user@"] {
            assert!(!is_this_host(host), "{host}");
        }
    }
}
