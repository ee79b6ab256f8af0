//! The world of one run, drawn from its seed: how many shards and clients, how slow, how faulty. Each run is another
//! world, so that together they reach corners that no single setting would.

use crate::rng::Stream;

/// A bug put in on purpose, to prove that the checkers see it: `docs/simulation.md` says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    AckBeforeSync,
    DropEvent,
    DoubleEvent,
    ApplyTwice,
    MissBatch,
    EarlyRead,
    KeepEphemerals,
    ForgetUsage,
    ReapEarly,
    ExpireEarly,
    HearAnybody,
    LoseReply,
    WrongStat,
    IgnoreFailedSync,
    VoteTwice,
    SkipMajority,
    ForwardTwice,
    UninitialisedVotes,
    FoundAlone,
    LosePiece,
    StaleSync,
    BeginAtOnce,
    AnswerAtOnce,
    RemovedCounts,
    Diverge,
    NoDurableFile,
    RepairReplacesLog,
    JudgeAtReplay,
}

/// Defines [`Options`]: each option with its type and how it is drawn, in the order of the draws.
macro_rules! options {
    ($rng:ident; $($(#[$doc:meta])* $name:ident: $type:ty = $draw:expr,)*) => {
        /// Times in microseconds unless the name says otherwise, shares in a thousand.
        #[derive(Clone, Debug)]
        pub(crate) struct Options {
            pub(crate) seed: u64,
            pub(crate) bug: Option<Bug>,
            $($(#[$doc])* pub(crate) $name: $type,)*
        }

        impl Options {
            pub(crate) fn draw(seed: u64, bug: Option<Bug>) -> Options {
                let mut $rng = Stream::new(seed, "options");
                Options { seed, bug, $($name: $draw,)* }
            }
        }
    };
}

options! {
    rng;
    shards: u16 = rng.pick(&[1, 2, 4]),
    clients: usize = rng.pick(&[2, 3, 5, 8, 12]),
    /// Simulated time with faults; the run then heals and is checked once more.
    busy_ms: u64 = rng.within(4_000, 12_000),
    session_tick_ms: u64 = rng.pick(&[100, 200, 500]),
    /// Usual delays: between actors, over the network, of a sync.
    mailbox_delay: u64 = rng.pick(&[0, 20, 200, 2_000]),
    network_delay: u64 = rng.pick(&[50, 500, 3_000]),
    sync_delay: u64 = rng.pick(&[20, 300, 5_000]),
    snapshot_delay: u64 = rng.pick(&[1_000, 50_000, 500_000]),
    /// Usual pause of a client between two actions.
    think: u64 = rng.pick(&[5_000, 20_000, 60_000]),
    depth_max: usize = rng.pick(&[1, 4, 16]),
    segment_bytes: usize = rng.pick(&[96 << 10, 128 << 10, 256 << 10]),
    batch_bytes_max: usize = rng.pick(&[256, 2 << 10, 8 << 10]),
    snapshot_txns: u64 = rng.pick(&[20, 100, 400]),
    snapshot_floor_bytes: usize = rng.pick(&[1 << 10, 16 << 10, 1 << 20]),
    snapshot_interval_min_ms: u64 = rng.pick(&[0, 200, 2_000]),
    snapshots_retained: usize = rng.pick(&[1, 2, 3]),
    /// Mean time between faults of any kind.
    fault_every_ms: u64 = rng.pick(&[300, 1_000, 3_000]),
    /// How often each kind of fault comes, beside the others.
    weights: Vec<(Fault, u64)> = weights(&mut rng, FAULTS),
    /// Of the kills: how many are followed by the loss of a page of the log.
    lost_page_share: u64 = 0,
    /// Of a client's actions: how many cut its connection, send garbage, stall or fall silent.
    cut_share: u64 = rng.pick(&[0, 10, 40]),
    garbage_share: u64 = rng.pick(&[0, 3, 10]),
    stall_share: u64 = rng.pick(&[0, 10, 30]),
    silence_share: u64 = rng.pick(&[0, 3, 15]),
    close_share: u64 = rng.pick(&[2, 10, 30]),
    /// Of the requests: how many are reads.
    read_share: u64 = rng.pick(&[300, 500, 800]),
    switches: Switches = {
        let mut on = || rng.per_mille(500);
        Switches { extended_types: on(), enforce_quota: on(), reconfig: on(), keeper: on() }
    },
    snapshot_calm_ms: u64 = rng.pick(&[0, 100, 1_000]),
    ensemble: Option<EnsembleOptions> = None,
    /// Servers are of several builds: each start draws how much a command may cost.
    has_builds: bool = false,
    /// Disk space or memory of servers is scarce for a while: leaders may refuse writes that add data.
    has_scarcity: bool = false,
}

/// Faults of every world and of ensembles, with the divisors of their weights; and faults of worlds of one kind.
macro_rules! faults {
    ($($alone:ident/$by:literal)*; $($ensemble:ident/$divisor:literal)*; $($special:ident)*) => {
        /// What breaks. Damage is a state that is found damaged, at a merge or a scrub. An operator may ask for a snapshot.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($alone,)* $($ensemble,)* $($special,)*
        }

        const FAULTS: &[(Fault, u64)] = &[$((Fault::$alone, $by)),*];
        const ENSEMBLE_FAULTS: &[(Fault, u64)] = &[$((Fault::$ensemble, $divisor)),*];
    };
}

faults! {
    PowerCut/1 Kill/1 StopAtStep/1 FailSync/2 DiskFull/2 SlowDisk/1 ShardPause/1 WallJump/1 Stop/2;
    BreakWire/1 CutWire/1 Isolate/1 Clog/1 Freeze/1 AllOut/3 Empty/1;
    Damage SpoilSnapshot Scarcity AskForSnapshot
}

fn weights(rng: &mut Stream, faults: &[(Fault, u64)]) -> Vec<(Fault, u64)> {
    let mut draw = || if rng.per_mille(400) { 0 } else { rng.within(1, 10) };
    faults.iter().map(|(fault, by)| (*fault, draw() / by)).collect()
}

/// The additional options of a world with several servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnsembleOptions {
    pub(crate) servers: usize,
    pub(crate) hold_ms: u64,
    pub(crate) log_cache_bytes: u64,
    pub(crate) wire_delay: u64,
    /// Whether every read waits for the leader's word.
    pub(crate) linearizable: bool,
    /// Clients change the membership.
    pub(crate) list: Option<ListOptions>,
}

/// The options of a world with servers that come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListOptions {
    /// Servers that are not in the list at first.
    pub(crate) spares: usize,
    /// So many servers of the list must have a vote.
    pub(crate) voters_min: usize,
}

/// For a part of the ensembles.
fn draw_list(seed: u64, bug: Option<Bug>) -> Option<ListOptions> {
    let mut rng = Stream::new(seed, "list");
    let wanted = matches!(bug, Some(Bug::BeginAtOnce | Bug::AnswerAtOnce | Bug::RemovedCounts));
    let options = ListOptions { spares: rng.pick(&[1, 2, 2]), voters_min: rng.pick(&[1, 2]) };
    (rng.per_mille(LISTED) || wanted).then_some(options)
}

/// Of the ensembles, in a thousand: how many have a membership that clients change.
const LISTED: u64 = 330;

/// The settings of this world's server that differ from the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    pub(crate) extended_types: bool,
    pub(crate) enforce_quota: bool,
    pub(crate) reconfig: bool,
    pub(crate) keeper: bool,
}

impl Options {
    /// The ensemble of this seed: another world, drawn in the same way.
    pub(crate) fn draw_ensemble(seed: u64, bug: Option<Bug>) -> Options {
        let mut rng = Stream::new(seed, "ensemble");
        let mut options = Options::draw(seed, bug);
        let list = draw_list(seed, bug);
        options.switches.reconfig |= list.is_some();
        options.ensemble = Some(EnsembleOptions {
            servers: rng.pick(&[3, 3, 5]),
            hold_ms: rng.pick(&[500, 1_000, 2_000]),
            log_cache_bytes: rng.pick(&[0, 4 << 10, 64 << 10, 32 << 20]),
            wire_delay: rng.pick(&[20, 300, 3_000]),
            linearizable: Stream::new(seed, "linearizable").per_mille(200),
            list,
        });
        options.weights.extend(weights(&mut rng, ENSEMBLE_FAULTS));
        options.shards = rng.pick(&[1, 2]);
        options.clients = rng.pick(&[3, 5, 8]);
        // Shorter sessions would end with every leader.
        options.session_tick_ms = rng.pick(&[500, 1_000]);
        options.sync_delay = rng.pick(&[20, 300, 2_000]);
        options.mailbox_delay = rng.pick(&[0, 20, 200]);
        options
    }

    /// This world, with kills and lost pages in plenty. Worlds without are as they were before there were such losses.
    pub(crate) fn with_lost_pages(mut self) -> Options {
        self.weights.iter_mut().filter(|(fault, _)| *fault == Fault::Kill).for_each(|(_, weight)| *weight = 20);
        Options { lost_page_share: 800, fault_every_ms: self.fault_every_ms.min(1_000), ..self }
    }

    pub(crate) fn with_damage(mut self) -> Options {
        let weight = 2 + self.seed % 10;
        self.weights.extend([(Fault::Damage, weight), (Fault::SpoilSnapshot, weight)]);
        self
    }

    /// This world, with servers of several builds. Clients write at least half of the time.
    pub(crate) fn with_builds(self) -> Options {
        Options { has_builds: true, read_share: self.read_share.min(500), ..self }
    }

    /// This world, with scarce disk space or memory, and with snapshots that an operator requests.
    pub(crate) fn with_scarcity(mut self) -> Options {
        let weight = 5 + self.seed % 20;
        self.weights.extend([(Fault::Scarcity, weight), (Fault::AskForSnapshot, weight)]);
        Options { has_scarcity: true, ..self }
    }

    /// Whether clients change the membership.
    pub(crate) fn has_list(&self) -> bool {
        self.ensemble.is_some_and(|ensemble| ensemble.list.is_some())
    }

    pub(crate) fn servers(&self) -> usize {
        self.ensemble.map_or(1, |ensemble| ensemble.servers + ensemble.list.map_or(0, |list| list.spares))
    }
}
