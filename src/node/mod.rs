//! The node: everything that runs between a checked configuration and the end of the process.
//!
//! Main thread. Recovers the state, and starts every thread with the mailboxes they share. Opens the port last, then
//! waits for the one message that states how it ends.

mod accept;
mod configured;
pub(crate) mod ensemble;
pub(crate) mod import;
pub(crate) mod membership;
pub(crate) mod ports;
pub(crate) mod recovery;
mod replay;
pub(crate) mod rescue;
pub(crate) mod restore;
pub(crate) mod roll_forward;
mod shards;
pub(crate) mod staging;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use corral_core::ids::ShardId;
use corral_core::shard::sasl::Users;
use corral_core::shard::{Shard, ShardConfig, ShardMessage};
use corral_core::tree::view::View;
use corral_engine::{CorruptState, Engine, Event, Finding, Moved, StoredServers, ToLog};
use corral_storage::MmapDisk;
use socket2::Socket;

use crate::actor::consensus::{ConsensusActor, ConsensusChannels, Resident};
use crate::actor::log_thread::{self, LogKeeper};
use crate::actor::scrubber::{ScrubSettings, Scrubber};
use crate::actor::shard::{self, ShardActor, ShardChannels};
use crate::actor::snapshot_receiver;
use crate::actor::snapshot_writer::{self, SnapshotSettings};
use crate::actor::taken::Taken;
use crate::audit::AuditLog;
use crate::config::Config;
use crate::config::cores::{CorePlan, ExecutorPlan};
use crate::config::users;
use crate::config::value::OnClientAddr;
use crate::control::http::{Endpoint, EndpointTls, Listener};
use crate::control::service::Service;
use crate::control::{self, Endpoints, Facts, Responder, Signals, admin};
use crate::data::lenders::Lenders;
use crate::descriptors::{self, HTTP_CONNECTIONS_MAX};
use crate::exit::{Ending, ExitCode, Fault};
use crate::gauges::Gauges;
use crate::messages::{ToConsensus, ToControl, ToShard, ToSnapshotReceiver, ToWriter};
use crate::net::acceptor::Ended;
use crate::net::client::Clients;
use crate::net::peers::PeerConnections;
use crate::net::peers::limits::STRANGERS_MAX;
use crate::net::tls::certificates::{self, Kept};
use crate::net::tls::clients::ClientTls;
use crate::node::accept::{Accepting, Listeners};
use crate::node::ports::{CLIENT_ADDR, Configured, HTTP_ADDR, Ports, Sockets, listen_on};
use crate::node::recovery::{Recovery, Start};
use crate::runtime::clock::Clock;
use crate::runtime::executor::{self, ExecutorSettings};
use crate::runtime::mailbox::{Bell, Post, mailbox};
use crate::runtime::random::random;
use crate::runtime::threads::{start, start_pinned};
use crate::runtime::watchdog::{self, Limits, Pulse};

const _: () = assert!((STRANGERS_MAX as u64) < descriptors::STRANGERS, "strangers take no file from the log");

/// A connection for metrics is closed after this time, whatever it does.
const METRICS_TIMEOUT: Duration = Duration::from_secs(30);

/// Both ends of a mailbox with a bell that wakes the receiver.
type BellMailbox<T> = (Post<T>, flume::Receiver<T>);
/// Both ends of a mailbox.
type Mailbox<T> = (flume::Sender<T>, flume::Receiver<T>);

/// The mailboxes of all actors and threads.
struct Mailboxes {
    /// One each shard, which sleeps by it; the consensus actor has that of the shard it shares an executor with.
    bells: Vec<Arc<Bell>>,
    shards: Vec<BellMailbox<ToShard>>,
    consensus: BellMailbox<ToConsensus>,
    log: Mailbox<ToLog>,
    writer: Mailbox<ToWriter>,
    snapshot_receiver: Mailbox<ToSnapshotReceiver>,
    scrub: Mailbox<()>,
    control: Mailbox<ToControl>,
    ports: Mailbox<Moved>,
    ended: Mailbox<Ended>,
    endings: Mailbox<Ending>,
    pulses: Mailbox<Arc<Pulse>>,
    /// One from each executor that has begun to serve: its shard, if that has a ring.
    up: Mailbox<Option<ShardId>>,
}

impl Mailboxes {
    fn new(plan: &CorePlan) -> std::io::Result<Mailboxes> {
        let bells = (0..plan.shards()).map(|_| Bell::new()).collect::<Result<Vec<_>, _>>()?;
        let host = plan.executors.iter().find(|executor| executor.consensus).and_then(|executor| executor.shard);
        let consensus_bell = host.map_or_else(Bell::new, |shard| Ok(Arc::clone(&bells[usize::from(shard)])))?;
        Ok(Mailboxes {
            shards: bells.iter().map(mailbox).collect(),
            bells,
            consensus: mailbox(&consensus_bell),
            log: flume::unbounded(),
            writer: flume::unbounded(),
            snapshot_receiver: flume::unbounded(),
            scrub: flume::unbounded(),
            control: flume::unbounded(),
            ports: flume::unbounded(),
            ended: flume::unbounded(),
            endings: flume::unbounded(),
            pulses: flume::unbounded(),
            up: flume::unbounded(),
        })
    }

    fn to_shards(&self) -> Vec<Post<ToShard>> {
        self.shards.iter().map(|(sender, _)| sender.clone()).collect()
    }
}

/// The values that every executor thread needs.
struct Context {
    config: Config,
    clock: Clock,
    incarnation: u64,
    boxes: Mailboxes,
    gauges: Arc<Gauges>,
    /// To the other servers of the ensemble.
    connections: Option<Arc<PeerConnections>>,
    /// To clients.
    tls: Option<ClientTls>,
    /// To administrators.
    admin_tls: Option<ClientTls>,
    sasl_users: Option<Arc<Users>>,
    audit: Option<AuditLog>,
    /// Random bytes for nonces.
    nonce_key: [u8; 16],
    /// Where the membership is remembered, and the one of before this start.
    disk: MmapDisk,
    remembered: Option<StoredServers>,
    /// The newest zxid that the view of any shard is at.
    applied: Arc<AtomicU64>,
    /// How far each shard has applied.
    taken: Vec<Taken>,
}

impl Context {
    /// The certificates of this server, with whether their files are watched.
    fn certificates(&self) -> Vec<Kept> {
        let Context { config, connections, tls, admin_tls, .. } = self;
        let mut kept: Vec<Kept> = Vec::new();
        if let Some(tls) = connections.as_ref().and_then(|connections| connections.tls()) {
            kept.push((Box::new(tls.clone()), config.ensemble.tls_watch));
        }
        for tls in [tls, admin_tls].into_iter().flatten() {
            kept.push((Box::new(tls.clone()), config.tls.watch));
        }
        kept
    }
}

/// Runs the server until it is told to stop. It listens for the other servers, if there are any, at `peers_at`.
///
/// # Errors
/// Any fault that keeps it from starting or ends it early.
pub(crate) fn run(
    config: Config,
    plan: &CorePlan,
    peers_at: Option<SocketAddr>,
    signals: &Signals,
) -> Result<(), Fault> {
    let clock = Clock::start();
    staging::put_in_place(&config)?;
    let (tls, sasl_users) = (ClientTls::configured(&config)?, users::configured(&config.security)?.map(Arc::new));
    let (admin_tls, admin) = (ClientTls::for_admin(&config)?, admin::Settings::configured(&config)?);
    let admin = admin::Settings { stage: staging::stage_by(&config), ..admin };
    let sockets = Sockets::bind(&config)?;
    let (incarnation, nonce_key) = (u64::from_le_bytes(random()?), random()?);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let shards = plan.shards();
    let (gauges, applied) = (Arc::new(Gauges::default()), Arc::new(AtomicU64::new(0)));
    let (recovering, counting) = (config.clone(), Arc::clone(&gauges));
    let recovery = move || {
        let mismatches = &counting.digest_mismatches;
        recovery::recover(&recovering, Start { clock, incarnation, threads, shards, mismatches })
    };
    let Some(recovery) = recover(recovery, signals)? else {
        tracing::info!("stopped before anything was served");
        return Ok(());
    };
    let boxes = Mailboxes::new(plan)
        .map_err(|error| Fault::new(ExitCode::NofileTooLow, format!("the mailboxes cannot be made: {error}")))?;
    if let Some(what) = recovery.distrusted.clone() {
        // Before anything else that the actor hears.
        let _ = boxes
            .consensus
            .0
            .send(Event::StateCorrupt(CorruptState { finding: Finding::NotedByEarlierProcess, what }).into());
    }
    if let Some(what) = recovery.log_damaged.clone() {
        let _ = boxes.consensus.0.send(Event::LogDamaged(what).into());
    }
    let (consensus, endings) = (boxes.consensus.0.clone(), boxes.endings.0.clone());
    let (disk, remembered) = (recovery.disk.clone(), ensemble::remembered(&recovery));
    let links = ensemble::Links { incarnation, generation: recovery.generation, remembered: remembered.as_ref() };
    let connections = match peers_at {
        Some(address) => Some(Arc::new(ensemble::start_links(&config, address, &links, consensus, endings)?)),
        None => None,
    };
    if config.own_member().is_some() {
        gauges.start_as_member(remembered.clone().unwrap_or_else(|| configured::stored_servers(&config)));
    }
    let audit = AuditLog::start(&config, clock, plan.control_cpu)?;
    let taken = (0..shards).map(|_| Taken::default()).collect();
    let context = Arc::new(Context {
        config,
        clock,
        incarnation,
        boxes,
        gauges,
        connections,
        tls,
        admin_tls,
        sasl_users,
        audit,
        nonce_key,
        disk,
        remembered,
        applied,
        taken,
    });
    let outcome = serve(&context, plan, recovery, signals, sockets, admin);
    context.audit.iter().for_each(AuditLog::end);
    outcome
}

/// Starts everything, opens the ports, and waits for the end.
fn serve(
    context: &Arc<Context>,
    plan: &CorePlan,
    recovery: Recovery,
    signals: &Signals,
    Sockets { clients, secure, http }: Sockets,
    admin: admin::Settings,
) -> Result<(), Fault> {
    start_certificates(context, plan, signals)?;
    if let Some(audit) = context.audit.clone() {
        let (shards, reopened) = (context.boxes.to_shards(), audit.clone());
        audit.release_by(move || shards.iter().for_each(|shard| drop(shard.send(ShardMessage::WritesGoOn.into()))));
        signals.reload_by(move || reopened.reopen());
    }
    let log_thread = start_threads(context, plan, recovery, signals)?;
    let ring = wait_until_up(&context.boxes, plan.executors.len())?;
    let address = context.config.server.client_addr;
    let bound = clients.local_addr().ok().and_then(|bound| bound.as_socket()).unwrap_or(address);
    context.gauges.client_port.store(bound.port(), Ordering::Relaxed);
    start_control(context, plan, http, admin)?;
    signals.pass_on_to(context.boxes.consensus.0.clone());
    if !signals.is_to_stop() {
        let listeners = Listeners {
            clients: listen_on(clients, address, CLIENT_ADDR)?,
            secure: secure.map(|socket| socket.into()),
        };
        accept(context, plan, listeners, ring)?;
        tracing::info!(address = %bound, shards = plan.shards(), "serving");
        context.audit.iter().for_each(AuditLog::started);
    }
    ended(context, log_thread)
}

/// Waits for the one message that says how the server ends.
fn ended(context: &Context, log_thread: thread::JoinHandle<()>) -> Result<(), Fault> {
    match context.boxes.endings.1.recv() {
        Ok(Ending::Stopped) => {
            // It has been told to close; when it ends, everything is synced.
            log_thread.join().map_err(|_| Fault::new(ExitCode::Internal, "the log thread ended in a panic"))?;
            if let Some(connections) = &context.connections {
                connections.stop();
            }
            if let Ok(Ending::Failed(fault)) = context.boxes.endings.1.try_recv() {
                return Err(fault);
            }
            tracing::info!("stopped");
            Ok(())
        }
        Ok(Ending::Failed(fault)) => Err(fault),
        Err(_) => Err(Fault::new(ExitCode::Internal, "every actor ended without a word")),
    }
}

/// Recovers on a thread of its own, which ends. Memory that a thread took comes back, once others have freed it, only
/// when that thread takes more or is gone. `None` when the server is told to stop meanwhile. A short recovery is
/// completed then. A long one, which reads, is left where it is, as a crash would leave it.
fn recover(
    recovery: impl FnOnce() -> Result<Recovery, Fault> + Send + 'static,
    signals: &Signals,
) -> Result<Option<Recovery>, Fault> {
    const WAIT_AT_STOP: Duration = Duration::from_secs(1);
    let (sender, recovered) = flume::bounded(1);
    let recovering = start("recovery", move || drop(sender.send(recovery())))?;
    let Some(outcome) = signals.wait_for(&recovered) else {
        return match recovered.recv_timeout(WAIT_AT_STOP) {
            Ok(Err(fault)) => Err(fault),
            Ok(Ok(_)) | Err(_) => Ok(None),
        };
    };
    let panicked = || Fault::new(ExitCode::Internal, "the recovery ended in a panic");
    recovering.join().map_err(|_| panicked())?;
    outcome.map_err(|_| panicked())?.map(Some)
}

/// Until every executor serves, so that the port opens for no server that cannot. Gives the first shard that has a
/// ring.
fn wait_until_up(boxes: &Mailboxes, executors: usize) -> Result<Option<ShardId>, Fault> {
    let mut first: Option<ShardId> = None;
    for _ in 0..executors {
        let up = flume::Selector::new()
            .recv(&boxes.up.1, |up| Ok(up.ok().flatten()))
            .recv(&boxes.endings.1, |ending| Err(ending.ok()))
            .wait();
        match up {
            Ok(Some(ring)) => first = Some(first.map_or(ring, |first| first.min(ring))),
            Err(Some(Ending::Failed(fault))) => return Err(fault),
            Ok(None) | Err(_) => {}
        }
    }
    Ok(first)
}

/// Starts every thread but the acceptor; gives the log thread, which ends last.
fn start_threads(
    context: &Arc<Context>,
    plan: &CorePlan,
    recovery: Recovery,
    signals: &Signals,
) -> Result<thread::JoinHandle<()>, Fault> {
    let settings_of_engine = ensemble::settings(&context.config, plan.shards(), &recovery, context.remembered.clone());
    let Recovery { member, log, disk, frozen, offered, distrusted, .. } = recovery;
    let boxes = &context.boxes;
    let limits = Limits {
        frozen: Duration::from_millis(u64::from(context.config.runtime.watchdog_frozen_ms)),
        exit: Duration::from_millis(u64::from(context.config.runtime.watchdog_exit_ms)),
    };
    let (pulses, gauges, endings) = (boxes.pulses.1.clone(), Arc::clone(&context.gauges), boxes.endings.0.clone());
    let watch = move || watchdog::run(limits, &pulses, &|| gauges.freezes.note(), &endings);
    start_pinned("watchdog", plan.control_cpu, watch)?;

    if context.connections.is_some() {
        let (disk, inbox, consensus) = (disk.clone(), boxes.snapshot_receiver.1.clone(), boxes.consensus.0.clone());
        let gauges = Arc::clone(&context.gauges);
        let take = move || snapshot_receiver::run(&disk, &inbox, &consensus, &gauges.digest_mismatches);
        start_pinned("snapshots in", plan.control_cpu, take)?;
    }
    let kept = &context.config.snapshot;
    let settings = SnapshotSettings { retained: kept.snapshots_retained as usize, purge: kept.purge, paced: true };
    // While the state is not trusted, an older snapshot may be the better one.
    let served = offered.filter(|_| distrusted.is_none()).map(|offered| (offered.zxid, offered.index));
    let (inbox, consensus) = (boxes.writer.1.clone(), boxes.consensus.0.clone());
    let gauges = Arc::clone(&context.gauges);
    let scrub = &context.config.scrub;
    let settings_of_scrub = ScrubSettings {
        interval: (scrub.interval_s > 0).then(|| Duration::from_secs(u64::from(scrub.interval_s))),
        bytes_per_s: scrub.bytes_per_s_max,
        log_dir: context.config.server.log_dir.clone(),
    };
    let lenders = Arc::new(Lenders::default());
    let (gauges_of_scrub, to_consensus) = (Arc::clone(&context.gauges), boxes.consensus.0.clone());
    let scrubber = Scrubber::new(disk.clone(), settings_of_scrub, gauges_of_scrub, to_consensus, Arc::clone(&lenders));
    let asked = boxes.scrub.1.clone();
    start_pinned("scrubber", plan.control_cpu, move || scrubber.run(&asked))?;
    let write = move || snapshot_writer::run(&disk, &settings, served, &gauges.snapshots, &inbox, &consensus, &lenders);
    start_pinned("snapshots", plan.control_cpu, write)?;

    let (inbox, consensus, endings) = (boxes.log.1.clone(), boxes.consensus.0.clone(), boxes.endings.0.clone());
    let slow_sync = Duration::from_millis(u64::from(context.config.log.sync_warning_ms));
    let gauges = Arc::clone(&context.gauges);
    let signals = signals.clone();
    let serve_log = move || {
        let is_overdue = &|after| signals.is_overdue(after);
        let keeper = LogKeeper {
            slow_sync,
            slow_syncs: &gauges.slow_syncs,
            syncs: &gauges.syncs,
            consensus: &consensus,
            is_overdue,
        };
        log_thread::run(log, &keeper, &inbox, &endings);
    };
    let log_thread = start_pinned("log", plan.log_cpu, serve_log)?;

    if let Some(frozen) = frozen {
        let _ = boxes.writer.0.send(ToWriter::Write(Box::new(frozen)));
    }
    let sequencer = &member.machine;
    let (view, sessions) = (sequencer.view().clone(), sequencer.sessions_alive());
    let mut engine = Some(Box::new(Engine::new(member, settings_of_engine)));
    for executor in &plan.executors {
        let (context, executor) = (Arc::clone(context), executor.clone());
        let state = executor.shard.map(|_| view.clone());
        let engine = if executor.consensus { engine.take() } else { None };
        start(&executor.name(), move || run_executor(&context, &executor, state, sessions, engine))?;
    }
    Ok(log_thread)
}

/// Starts the thread that reads certificates and users of SASL again, if there are any.
fn start_certificates(context: &Context, plan: &CorePlan, signals: &Signals) -> Result<(), Fault> {
    let kept = context.certificates();
    let has_users = context.sasl_users.is_some();
    if kept.is_empty() && !has_users {
        return Ok(());
    }
    let (asks, asked) = flume::bounded(1);
    // If it is full, what was asked for is still to be done.
    signals.reload_by(move || {
        let _ = asks.try_send(());
    });
    let (security, shards) = (context.config.security.clone(), context.boxes.to_shards());
    let reload_users = move || {
        let users = Arc::new(users::read(&security)?.unwrap_or_default());
        // A shard that has ended serves no client.
        shards.iter().for_each(|shard| drop(shard.send(ShardMessage::SaslUsers(Arc::clone(&users)).into())));
        Ok(())
    };
    let run = move || certificates::run(&kept, has_users.then_some(&reload_users), &asked);
    start_pinned("certificates", plan.control_cpu, run).map(drop)
}

/// Starts the control thread, which answers four-letter commands and serves HTTP on this socket.
fn start_control(
    context: &Arc<Context>,
    plan: &CorePlan,
    http: Option<Socket>,
    admin: admin::Settings,
) -> Result<(), Fault> {
    let Context { config, clock, boxes, .. } = &**context;
    let certificates = context.certificates().into_iter().map(|(one, _)| one).collect();
    let facts = Facts::new(
        config,
        *clock,
        Arc::clone(&context.gauges),
        context.connections.clone(),
        certificates,
        context.audit.clone(),
    );
    let service = Service {
        gauges: Arc::clone(&context.gauges),
        space: facts.space().clone(),
        consensus: boxes.consensus.0.clone(),
        reserves_disk_space: config.limits.reserve_disk_space,
        memory_bytes_max: config.limits.memory_bytes_max,
    };
    let responder = Responder::new(boxes.to_shards(), boxes.consensus.0.clone(), facts);
    let (mailbox, endings) = (boxes.control.clone(), boxes.endings.0.clone());
    let metrics = match http.zip(config.metrics.http_addr) {
        Some((socket, address)) => Some(Listener::Open(listen_on(socket, address, HTTP_ADDR)?)),
        None => None,
    };
    let endpoint = |listener, connection_timeout, tls| Endpoint {
        listener,
        connections_max: usize::from(HTTP_CONNECTIONS_MAX),
        connection_timeout,
        tls,
    };
    let metrics = metrics.map(|listener| endpoint(listener, METRICS_TIMEOUT, None));
    let admin = if config.admin.enabled {
        let serves_plaintext = config.admin.tls != OnClientAddr::Only;
        let tls = context.admin_tls.clone().map(|certificates| EndpointTls { certificates, serves_plaintext });
        let listener = Listener::Wanted(config.admin.http_addr, "admin.http_addr");
        let timeout = Duration::from_millis(u64::from(config.admin.idle_timeout_ms));
        Some((endpoint(listener, timeout, tls), admin))
    } else {
        None
    };
    let endpoints = Endpoints { metrics, admin };
    let run = move || {
        if let Err(error) = control::run(responder, mailbox, endpoints, service) {
            let sentence = format!("the control thread cannot start: {error}");
            let _ = endings.send(Ending::Failed(Fault::new(ExitCode::Internal, sentence)));
        }
    };
    start_pinned("control", plan.control_cpu, run).map(drop)
}

/// The life of an executor's thread.
fn run_executor(
    context: &Arc<Context>,
    plan: &ExecutorPlan,
    view: Option<View>,
    sessions: u64,
    engine: Option<Box<Engine>>,
) {
    let pulse = Pulse::of_this_thread(plan.name());
    let _ = context.boxes.pulses.0.send(Arc::clone(&pulse));
    let settings = ExecutorSettings::new(&context.config, plan);
    let (inner, shard, ring_depth) = (Arc::clone(context), plan.shard.map(ShardId), plan.ring_depth);
    let failed = context.boxes.endings.0.clone();
    let ended = executor::run(&settings, Arc::clone(&pulse), move |turn| async move {
        let consensus = engine.map(|engine| {
            let actor = ConsensusActor::new(engine, consensus_links(&inner), inner.clock, Rc::clone(&turn));
            Resident::new(actor, inner.boxes.consensus.1.clone())
        });
        if let (Some(id), Some(view)) = (shard, view) {
            let shard = Shard::new(shard_config(&inner, id), view, sessions, inner.clock.now());
            let (bell, inbox) = (&inner.boxes.bells[usize::from(id.0)], &inner.boxes.shards[usize::from(id.0)].1);
            let clients = match Clients::start(inner.config.runtime.transport, ring_depth, bell, id) {
                Ok(clients) => clients,
                Err(fault) => return drop(failed.send(Ending::Failed(fault))),
            };
            let ring = clients.sleeps_in_ring().then_some(id);
            let actor = ShardActor::new(shard, shard_links(&inner, id), clients, inner.clock, turn);
            let _ = inner.boxes.up.0.send(ring);
            shard::run(actor, inbox.clone(), consensus).await;
        } else if let Some(consensus) = consensus {
            let _ = inner.boxes.up.0.send(None);
            consensus.run().await;
        }
    });
    pulse.end();
    if let Err(fault) = ended {
        let _ = context.boxes.endings.0.send(Ending::Failed(fault));
    }
}

fn consensus_links(context: &Context) -> ConsensusChannels {
    let boxes = &context.boxes;
    ConsensusChannels {
        shards: boxes.to_shards(),
        taken: context.taken.clone(),
        log: boxes.log.0.clone(),
        writer: boxes.writer.0.clone(),
        snapshot_receiver: boxes.snapshot_receiver.0.clone(),
        scrub: boxes.scrub.0.clone(),
        ports: boxes.ports.0.clone(),
        control: boxes.control.0.clone(),
        endings: boxes.endings.0.clone(),
        gauges: Arc::clone(&context.gauges),
        own: boxes.consensus.0.clone(),
        peers: context.connections.clone(),
        tick: configured::tick(&context.config),
    }
}

fn shard_links(context: &Context, shard: ShardId) -> ShardChannels {
    let boxes = &context.boxes;
    ShardChannels {
        consensus: boxes.consensus.0.clone(),
        writer: boxes.writer.0.clone(),
        control: boxes.control.0.clone(),
        ended: boxes.ended.0.clone(),
        audit: context.audit.clone(),
        gauges: Arc::clone(&context.gauges),
        applied: Arc::clone(&context.applied),
        taken: context.taken[usize::from(shard.0)].clone(),
    }
}

fn shard_config(context: &Context, shard: ShardId) -> ShardConfig {
    ShardConfig {
        shard,
        incarnation: context.incarnation,
        sasl_users: context.sasl_users.clone(),
        nonce_key: context.nonce_key,
        ..shards::configured(&context.config, context.boxes.shards.len())
    }
}

/// Accepts connections: the ports are open from here on. Starts the thread that moves them with the membership.
fn accept(context: &Context, plan: &CorePlan, listeners: Listeners, ring: Option<ShardId>) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::new(ExitCode::Internal, format!("clients cannot be accepted: {error}"));
    let clients = listeners.clients.try_clone().map_err(failed)?;
    let boxes = &context.boxes;
    let accepting = Accepting {
        config: &context.config,
        plan,
        shards: boxes.to_shards(),
        ring,
        ended: boxes.ended.clone(),
        endings: boxes.endings.0.clone(),
        clock: context.clock,
        gauges: Arc::clone(&context.gauges),
        tls: context.tls.clone(),
    };
    let listens_on = accepting.begin(listeners)?;
    let Some(connections) = context.connections.clone() else { return Ok(()) };
    let (gauges, peer_addr) = (Arc::clone(&context.gauges), context.config.ensemble.peer_addr);
    let peers = context.config.own_member().map(|own| (own.host.clone(), own.port));
    let configured = Configured { peers, clients: context.config.server.client_addr };
    let disk = context.disk.clone();
    let ports = Ports { listens_on, gauges, connections, disk, peer_addr, configured, clients, is_shut: false };
    let inbox = context.boxes.ports.1.clone();
    start_pinned("ports", plan.control_cpu, move || ports.run(&inbox)).map(drop)
}
