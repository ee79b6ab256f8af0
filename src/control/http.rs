//! HTTP for operators: `GET /metrics`.
//!
//! On the control thread, with tokio. A data core sees nothing of it but the message that asks a shard for its counters. Few of these are
//! under way: a connection serves one request, and time and number of connections are limited. Further ones wait to be accepted.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use corral_core::report::Gathered;
use corral_wire::fourletter::FourLetter;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

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
    let service = Router::new().route("/metrics", get(metrics)).with_state(control);
    let permits = Arc::new(Semaphore::new(connections_max));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = service.clone();
                tokio::spawn(async move {
                    // An error ends this connection alone.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection(stream, service)).await;
                    drop(permit);
                });
            }
            // Descriptors are used up, or the connection is gone: both pass.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, service: Router) -> hyper::Result<()> {
    let mut builder = http1::Builder::new();
    builder.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
}

/// `GET /metrics`.
async fn metrics(State(control): State<flume::Sender<ToControl>>) -> Response {
    let Some(gathered) = ask(&control, FourLetter::Mntr).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server stops\n").into_response();
    };
    match prometheus::text(&gathered) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Asks the server for everything that the command shows. `None` while it stops.
async fn ask(control: &flume::Sender<ToControl>, command: FourLetter) -> Option<Gathered> {
    let (reply, answer) = oneshot::channel();
    control.send(ToControl::HttpAsked { command, reply }).ok()?;
    answer.await.ok()
}
