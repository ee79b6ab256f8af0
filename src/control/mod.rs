//! The control plane: signals, four-letter commands, HTTP, and facts of the process. Plain threads, off the data path.

mod facts;
mod http;
mod prometheus;
mod responder;
mod signals;

use std::io;
use std::net::TcpListener;

use tokio::runtime;

use crate::messages::ToControl;
pub(crate) use facts::Facts;
pub(crate) use responder::Responder;
pub(crate) use signals::Signals;

/// The life of the control thread: answers four-letter commands, and requests by HTTP if there is a listener. That has
/// so many connections at a time.
///
/// # Errors
/// If tokio cannot start.
pub(crate) fn run(
    responder: Responder,
    (control, inbox): (flume::Sender<ToControl>, flume::Receiver<ToControl>),
    http: Option<(TcpListener, usize)>,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        if let Some((listener, connections_max)) = http {
            tokio::spawn(http::serve(http::listener(listener)?, connections_max, control));
        }
        responder.run(inbox).await;
        Ok(())
    })
}
