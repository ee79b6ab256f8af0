//! Accepting of clients: by the ring of a shard or by a thread, and by the thread of the TLS handshakes.
//!
//! Main thread, once, when everything else serves.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corral_core::ids::ShardId;
use corral_core::rate::Rate;
use nix::sys::resource::{Resource, getrlimit};

use crate::config::Config;
use crate::config::cores::CorePlan;
use crate::config::value::OnClientAddr;
use crate::descriptors::DescriptorBudget;
use crate::exit::{Ending, ExitCode, Fault};
use crate::gauges::Gauges;
use crate::messages::ToShard;
use crate::net::acceptor::{Acceptor, BACKLOG, ConnectionLimits, ConnectionRates, Ended, Give, SharedAcceptor};
use crate::net::handshakes::{HandshakeLimits, Handshakes, Speaks};
use crate::net::tls::clients::ClientTls;
use crate::node::ports::ListensOn;
use crate::runtime::clock::Clock;
use crate::runtime::mailbox::Post;
use crate::runtime::threads::{lower_priority, start_pinned};

/// Where clients connect.
pub(super) struct Listeners {
    pub(super) clients: TcpListener,
    /// For TLS alone.
    pub(super) secure: Option<TcpListener>,
}

/// The parts of the server that accepting needs.
pub(super) struct Accepting<'c> {
    pub(super) config: &'c Config,
    pub(super) plan: &'c CorePlan,
    pub(super) shards: Vec<Post<ToShard>>,
    /// The first shard that has a ring, if one has.
    pub(super) ring: Option<ShardId>,
    pub(super) ended: (flume::Sender<Ended>, flume::Receiver<Ended>),
    pub(super) endings: flume::Sender<Ending>,
    pub(super) clock: Clock,
    pub(super) gauges: Arc<Gauges>,
    pub(super) tls: Option<ClientTls>,
}

impl Accepting<'_> {
    /// Begins to accept. Returns the acceptor of the ordinary port for clients.
    ///
    /// # Errors
    /// When a thread cannot be started, or a port cannot be opened.
    pub(super) fn begin(self, listeners: Listeners) -> Result<ListensOn, Fault> {
        let acceptor = SharedAcceptor::new(self.acceptor());
        let handshakes = self.tls.clone().map(|tls| self.start_handshakes(acceptor.clone(), tls)).transpose()?;
        let plain = if let Some(shard) = self.ring {
            let shard = self.shards[usize::from(shard.0)].clone();
            // A shard that has ended says why itself, and accepts nothing.
            let _ = shard.send(ToShard::Accept(acceptor));
            ListensOn::Ring(shard)
        } else {
            let (listens_on, listeners) = flume::unbounded();
            start_pinned("acceptor", self.plan.control_cpu, move || Acceptor::run(&acceptor, &listeners))?;
            ListensOn::Thread(listens_on)
        };
        let listens_on = match (&handshakes, self.config.tls.on_client_addr) {
            (Some(handshakes), OnClientAddr::Also) => ListensOn::Handshakes(handshakes.clone(), Speaks::TlsOrPlaintext),
            (Some(handshakes), OnClientAddr::Only) => ListensOn::Handshakes(handshakes.clone(), Speaks::Tls),
            _ => plain,
        };
        let failed = |error: io::Error| Fault::new(ExitCode::Internal, format!("clients cannot be accepted: {error}"));
        if let (Some(handshakes), Some(secure)) = (handshakes, listeners.secure) {
            socket2::SockRef::from(&secure).listen(BACKLOG).map_err(failed)?;
            let address = secure.local_addr().map_err(failed)?;
            self.gauges.secure_port.store(address.port(), Ordering::Relaxed);
            ListensOn::Handshakes(handshakes, Speaks::Tls).accept_from(secure).map_err(failed)?;
            tracing::info!(%address, "serving TLS");
        }
        listens_on.accept_from(listeners.clients).map_err(failed)?;
        Ok(listens_on)
    }

    fn acceptor(&self) -> Acceptor {
        let limits = &self.config.limits;
        let per_shard = self.plan.executors.iter().filter(|executor| executor.shard.is_some());
        let (open_files_max, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
        let budget = DescriptorBudget::of(self.config, self.plan.executors.len() as u64);
        let limits = ConnectionLimits {
            descriptors_end: budget.clients_end(open_files_max),
            total: limits.connections_max as usize,
            per_address: limits.connections_per_ip_max as usize,
            rates: self.rates(),
            per_shard: per_shard.map(|one| one.connections_max.map_or(usize::MAX, |max| max as usize)).collect(),
        };
        let give = |shard: &Post<ToShard>| -> Give {
            let shard = shard.clone();
            Box::new(move |accepted| shard.send(ToShard::Accepted(accepted)).is_ok())
        };
        let shards = self.shards.iter().map(give).collect();
        Acceptor::new(limits, shards, self.ended.1.clone(), self.clock, Arc::clone(&self.gauges))
    }

    fn rates(&self) -> ConnectionRates {
        let rates = &self.config.rate_limits;
        let (tokens, fill) = (rates.connection_tokens, rates.connection_fill_count);
        ConnectionRates {
            has_metered_shards: rates.requests_per_second > 0 || rates.bytes_per_second > 0,
            per_address: Rate::per_second(rates.connections_per_second.into(), rates.burst_ms.into()),
            total: Rate::bucket(tokens.into(), fill.into(), rates.connection_fill_ms.into()),
        }
    }

    /// Starts the thread that does the handshakes of TLS. Gives the way to tell it of listeners.
    fn start_handshakes(
        &self,
        acceptor: SharedAcceptor,
        tls: ClientTls,
    ) -> Result<flume::Sender<(TcpListener, Speaks)>, Fault> {
        let (sender, listeners) = flume::unbounded();
        let config = &self.config.tls;
        let limits = HandshakeLimits {
            at_once: config.handshakes_max as usize,
            deadline: Duration::from_millis(u64::from(config.handshake_ms)),
            detection: Duration::from_millis(u64::from(config.detection_ms)),
        };
        let (ended, gauges) = (self.ended.0.clone(), Arc::clone(&self.gauges));
        let handshakes = Handshakes { tls, acceptor, ended, limits, gauges };
        let endings = self.endings.clone();
        let run = move || {
            lower_priority();
            if let Err(error) = handshakes.run(listeners) {
                let sentence = format!("the thread for TLS handshakes cannot be started: {error}");
                let _ = endings.send(Ending::Failed(Fault::new(ExitCode::Internal, sentence)));
            }
        };
        start_pinned("handshakes", self.plan.control_cpu, run)?;
        Ok(sender)
    }
}
