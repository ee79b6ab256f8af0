//! The control plane: signals, four-letter commands, HTTP, and facts of the process. Plain threads, off the data path.

pub(crate) mod admin;
mod facts;
pub(crate) mod http;
mod prometheus;
mod responder;
pub(crate) mod service;
mod signals;
pub(crate) mod space;

use std::io;

use tokio::runtime;

use crate::messages::ToControl;
pub(crate) use facts::Facts;
use http::Endpoint;
pub(crate) use responder::Responder;
use service::Service;
pub(crate) use signals::Signals;

/// Where HTTP is served.
pub(crate) struct Endpoints {
    pub(crate) metrics: Option<Endpoint>,
    pub(crate) admin: Option<(Endpoint, admin::Settings)>,
}

/// The life of the control thread: answers four-letter commands, and requests by HTTP.
///
/// # Errors
/// If tokio cannot start.
pub(crate) fn run(
    responder: Responder,
    (control, inbox): (flume::Sender<ToControl>, flume::Receiver<ToControl>),
    Endpoints { metrics, admin }: Endpoints,
    service: Service,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        tokio::spawn(service.run());
        if let Some(endpoint) = metrics {
            tokio::spawn(endpoint.serve(http::router(control.clone())));
        }
        if let Some((endpoint, settings)) = admin {
            tokio::spawn(endpoint.serve(admin::router(settings, control)));
        }
        responder.run(inbox).await;
        Ok(())
    })
}
