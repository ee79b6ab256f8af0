//! Accepts clients that speak TLS, and gives each to its shard when its handshake is complete.
//!
//! A plain thread with a runtime of its own: the private key and the certificates of clients cost no time of a shard. The number of
//! handshakes at a time is limited, and each has a deadline. A client has no session and is served nothing before that.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use corral_core::ids::ShardId;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::gauges::Gauges;
use crate::net::acceptor::{Accepted, Ended, Secured, SharedAcceptor, retry_after};
use crate::net::tls::clients::{ClientTls, identity, why_failed};
use crate::runtime::complaint::{Allowance, Complaint};

/// Lines for handshakes that failed.
const LINES_PER_SECOND: u32 = 10;
/// First byte of a TLS handshake.
pub(crate) const HANDSHAKE_RECORD: u8 = 0x16;

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Tls,
    /// The first byte of a connection tells.
    TlsOrPlaintext,
}

/// Bounds of handshakes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeLimits {
    /// At a time. Further connections wait to be accepted.
    pub(crate) at_once: usize,
    pub(crate) deadline: Duration,
    /// For the first byte, where that tells what is spoken. Without it the connection is taken for plaintext.
    pub(crate) detection: Duration,
}

/// The thread of the handshakes.
pub(crate) struct Handshakes {
    pub(crate) tls: ClientTls,
    pub(crate) acceptor: SharedAcceptor,
    pub(crate) ended: flume::Sender<Ended>,
    pub(crate) limits: HandshakeLimits,
    pub(crate) gauges: Arc<Gauges>,
}

/// Why there is no encrypted connection.
enum Failed {
    Tls(io::Error),
    Late,
}

impl Handshakes {
    /// Accepts from these listeners, each until it is shut down: the life of a thread that does nothing else.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    pub(crate) fn run(self, listeners: flume::Receiver<(TcpListener, Speaks)>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let this = Rc::new(self);
        LocalSet::new().block_on(&runtime, async move {
            let permits = Arc::new(Semaphore::new(this.limits.at_once));
            let lines = Rc::new(RefCell::new(Allowance::of(LINES_PER_SECOND)));
            while let Ok((listener, speaks)) = listeners.recv_async().await {
                let (this, permits, lines) = (Rc::clone(&this), Arc::clone(&permits), Rc::clone(&lines));
                tokio::task::spawn_local(async move {
                    if let Err(error) = this.serve(listener, speaks, permits, lines).await {
                        tracing::error!("clients cannot be accepted for TLS: {error}");
                    }
                });
            }
            // No listener is added any more. The present ones go on.
            std::future::pending::<()>().await;
        });
        Ok(())
    }

    async fn serve(
        self: Rc<Self>,
        listener: TcpListener,
        speaks: Speaks,
        permits: Arc<Semaphore>,
        lines: Rc<RefCell<Allowance>>,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (mut complaint, begun) = (Complaint::default(), Instant::now());
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    let Some(pause) = retry_after(&error, &mut complaint) else { return Ok(()) };
                    tokio::time::sleep(pause).await;
                    continue;
                }
            };
            // Behind the accepting: a listener without clients keeps no permit from the others.
            let permit = Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other)?;
            let admitted = stream.into_std().map(|stream| self.acceptor.lock().admit(stream, peer));
            let Ok(Some((shard, accepted))) = admitted else { continue };
            let (this, lines) = (Rc::clone(&self), Rc::clone(&lines));
            tokio::task::spawn_local(async move {
                let peer = accepted.peer;
                match this.secure(shard, accepted, speaks).await {
                    Ok(()) => {}
                    Err(failed) => {
                        let _ = this.ended.send(Ended { shard, address: peer.ip() });
                        let now_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                        this.say(peer, &failed, lines.borrow_mut().line(now_ms));
                    }
                }
                drop(permit);
            });
        }
    }

    /// Does the handshake, if one is due, and gives the connection to its shard.
    async fn secure(&self, shard: ShardId, accepted: Accepted, speaks: Speaks) -> Result<(), Failed> {
        let Accepted { stream, peer, entropy, meter, .. } = accepted;
        let stream = TcpStream::from_std(stream).map_err(Failed::Tls)?;
        if speaks == Speaks::TlsOrPlaintext && !self.begins_with_handshake(&stream).await {
            let stream = blocking(stream).map_err(Failed::Tls)?;
            self.acceptor.lock().pass_on(shard, Accepted { stream, peer, entropy, tls: None, meter });
            return Ok(());
        }
        let handshake = TlsAcceptor::from(self.tls.config()).accept(stream);
        let done = timeout(self.limits.deadline, handshake).await.map_err(|_| Failed::Late)?;
        let (stream, connection) = done.map_err(Failed::Tls)?.into_inner();
        let subject = identity(connection.peer_certificates()).map_err(|error| Failed::Tls(io::Error::other(error)))?;
        let stream = blocking(stream).map_err(Failed::Tls)?;
        let tls = Some(Box::new(Secured { connection, subject }));
        self.acceptor.lock().pass_on(shard, Accepted { stream, peer, entropy, tls, meter });
        Ok(())
    }

    async fn begins_with_handshake(&self, stream: &TcpStream) -> bool {
        let mut first = [0];
        let peeked = timeout(self.limits.detection, stream.peek(&mut first)).await;
        matches!(peeked, Ok(Ok(1..))) && first[0] == HANDSHAKE_RECORD
    }

    /// One line for each handshake that failed, as long as clients cause few.
    fn say(&self, peer: SocketAddr, failed: &Failed, line: Option<u64>) {
        self.gauges.handshakes_failed.fetch_add(1, Ordering::Relaxed);
        let why = match failed {
            Failed::Late => "it was not complete in time (tls.handshake_ms)".to_owned(),
            Failed::Tls(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => why_failed(error),
                None => format!("the connection ended: {error}"),
            },
        };
        match line {
            None => tracing::debug!(%peer, "TLS handshake failed: {why}"),
            Some(0) => tracing::info!(%peer, "TLS handshake failed: {why}"),
            Some(not_logged) => tracing::info!(%peer, not_logged, "TLS handshake failed: {why}"),
        }
    }
}

/// As the sockets are that are accepted without TLS.
fn blocking(stream: TcpStream) -> io::Result<std::net::TcpStream> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}
