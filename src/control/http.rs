//! HTTP for operators: `GET /metrics`, and the probes `/livez`, `/readyz` and `/healthz`.
//!
//! On the control thread, with tokio. A data core sees nothing of it but the message that asks a shard for its counters. Few of these are
//! under way: a connection serves one request, and time and number of connections are limited. A further one closes the oldest.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use corral_core::report::Gathered;
use corral_core::report::health::{Check, checks};
use corral_wire::fourletter::FourLetter;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::prometheus;
use crate::messages::ToControl;

/// A connection is closed after this time, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// A request's head must be there after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener for [`serve`].
///
/// # Errors
/// If tokio cannot take it.
pub(crate) fn listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Serves until the process ends.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    connections_max: usize,
    control: flume::Sender<ToControl>,
) {
    let service = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .with_state(control);
    let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(connections_max);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Descriptors are used up, or the connection is gone: both pass.
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|one| !one.is_finished());
        if open.len() >= connections_max {
            open.pop_front().inspect(AbortHandle::abort);
            // It closes its socket when it has its turn.
            tokio::task::yield_now().await;
        }
        // An error ends this connection alone.
        let served = tokio::time::timeout(CONNECTION_TIMEOUT, connection(stream, service.clone()));
        open.push_back(tokio::spawn(served).abort_handle());
    }
}

async fn connection(stream: TcpStream, service: Router) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
}

/// `GET /metrics`.
async fn metrics(State(control): State<flume::Sender<ToControl>>) -> Response {
    let Some(gathered) = ask(&control, FourLetter::Mntr).await else { return stops() };
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
    let Some(gathered) = ask(&control, FourLetter::Mntr).await else { return stops() };
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

fn stops() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the server stops\n").into_response()
}

/// Asks the server for everything that the command shows. `None` while it stops.
async fn ask(control: &flume::Sender<ToControl>, command: FourLetter) -> Option<Gathered> {
    let (reply, answer) = oneshot::channel();
    control.send(ToControl::HttpAsked { command, reply }).ok()?;
    answer.await.ok()
}
