//! Every bound of a shard by name. A shard that reaches one stops reading the socket, or ends the connection with a
//! reason. Nothing grows beyond its bound, and nothing is dropped without a report.

use crate::rate::Rate;

/// Limits of one shard and of each of its connections.
#[derive(Clone, Debug)]
pub struct ShardLimits {
    /// Largest request frame, bytes after the length word (`jute.maxbuffer`).
    pub frame_bytes_max: usize,
    /// Requests of one connection that may be unanswered before it is read no further.
    pub requests_in_flight_per_connection_max: usize,
    /// Requests of one connection that may wait queued before it is read no further. Those with a write behind them are
    /// all answered before that write is applied, whatever the size of their replies.
    pub queued_per_connection_max: usize,
    /// Bytes of queued requests of one connection before it is read no further.
    pub queued_bytes_max: usize,
    /// Unsent bytes of replies before a connection's requests are read no further.
    pub reply_buffer_bytes_soft_max: usize,
    /// Unsent bytes at which a connection that does not read its events is ended. One read's reply may be larger.
    pub reply_buffer_bytes_hard_max: usize,
    /// Bytes of commands that a shard may have on their way before its connections are read no further.
    pub inflight_bytes_per_shard_max: usize,
    /// This shard's share of the bytes that all connections hold together. They are the memory of unsent replies and
    /// events, lists under way, and requests that are incomplete or wait. A reply that does not fit waits until others
    /// have been sent. A connection with more than [`SMALL_BYTES`] unsent is ended when an event is due to it.
    pub reply_buffer_bytes_total_max: usize,
    /// Bytes of the proposals that are handed out together, if they are more than one. Those of a turn are handed out early when they
    /// are a quarter of it.
    pub proposals_bytes_max: usize,
    /// This shard's share of the commands that may be on their way before connections are read no further.
    pub requests_in_flight_max: usize,
    /// A request that waited longer than this for the requests before it is answered THROTTLEDOP. 0 = never.
    pub throttled_op_wait_ms: u64,
    /// Requests of the clients of one address, for connections with [`NewClient::meter`](crate::shard::NewClient::meter).
    pub request_rate: Rate,
    /// Bytes received from them.
    pub byte_rate: Rate,
    /// A request frame above this is a large one. 0 = none is.
    pub large_request_bytes: usize,
    /// This shard's share of the bytes of large writes that may be on their way; one more closes its connection.
    pub large_requests_bytes_max: usize,
    /// Paths one connection may watch.
    pub watches_per_connection_max: usize,
    /// Bytes of one connection's watches, each counted with the length of its path.
    pub watch_bytes_per_connection_max: usize,
    /// This shard's share of the bytes of all watches.
    pub watch_bytes_total_max: usize,
    /// Identities one connection may prove.
    pub identities_per_connection_max: usize,
    /// Living sessions of the whole server.
    pub sessions_max: u64,
    /// Work of a turn after which the rest waits for the next one: [`TURN_COST_MAX`]; less in tests.
    pub turn_cost_max: usize,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: corral_wire::limits::FRAME_MAX_DEFAULT,
            requests_in_flight_per_connection_max: 1000,
            queued_per_connection_max: 128,
            queued_bytes_max: 4 << 20,
            reply_buffer_bytes_soft_max: 1 << 20,
            reply_buffer_bytes_hard_max: 64 << 20,
            inflight_bytes_per_shard_max: 64 << 20,
            reply_buffer_bytes_total_max: 512 << 20,
            proposals_bytes_max: 1 << 20,
            requests_in_flight_max: usize::MAX,
            throttled_op_wait_ms: 0,
            request_rate: Rate::default(),
            byte_rate: Rate::default(),
            large_request_bytes: 0,
            large_requests_bytes_max: 100 << 20,
            watches_per_connection_max: 1_000_000,
            watch_bytes_per_connection_max: 256 << 20,
            watch_bytes_total_max: 1 << 30,
            identities_per_connection_max: 16,
            sessions_max: 1_000_000,
            turn_cost_max: TURN_COST_MAX,
        }
    }
}

impl ShardLimits {
    /// Bytes that one connection may hold whatever the others hold.
    pub(crate) fn small(&self) -> usize {
        SMALL_BYTES.min(self.reply_buffer_bytes_soft_max)
    }
}

const _: () = assert!(corral_wire::limits::FRAME_MAX_DEFAULT < 4 << 20, "a frame fits what may be queued");

/// Bytes of one connection's identities, however many they are. They travel with its commands, in each log entry that
/// holds any. An ACL entry for `auth` stands for all of them.
pub const IDENTITIES_BYTES_MAX: usize = 2 << 10;
/// Bytes of the path of a znode that is created. ZooKeeper's only limit is that of a request.
///
/// The limits on created znodes cannot be configured, because they decide how the log is replayed. Znodes of former
/// versions that are beyond them are served, changed and deleted as others.
pub const PATH_BYTES_MAX: usize = 64 << 10;
/// Levels of the path of a znode that is created.
pub const PATH_LEVELS_MAX: usize = 1000;
/// Bytes of the last part of that path.
pub const NAME_BYTES_MAX: usize = 16 << 10;
/// Bytes of the names of one znode's children, each with its length: what a listing must hold, and a section of a
/// snapshot.
pub const NAMES_BYTES_MAX: u64 = 256 << 20;
/// Ephemerals of one session: they are deleted in one transaction.
pub const EPHEMERALS_PER_SESSION_MAX: usize = 10_000;
/// Bytes of the paths of one session's ephemerals; the request that reaches it may go beyond.
pub const EPHEMERALS_BYTES_MAX: usize = 4 << 20;
/// Connections, watches or sessions told of in one pass of a core: well below a millisecond.
pub const PIECE_ENTRIES: usize = 1024;
/// Sessions that the leader checks the deadlines of, or starts them, in one pass: a few milliseconds.
pub const SESSIONS_PIECE: usize = 16 * PIECE_ENTRIES;
/// Bytes of watched paths told of in one pass; the last may go beyond.
pub const PIECE_PATH_BYTES: usize = 256 << 10;
/// Places of a hash table looked at in one pass, most of them empty after a great shrinking.
pub const PIECE_PLACES: usize = 64 * PIECE_ENTRIES;
/// Bytes of the answer to a four-letter command, by and large: what is longer is cut and says so.
pub const FOUR_LETTER_BYTES_MAX: usize = 32 << 20;
/// Four-letter commands with long answers that a shard has asked for and not been given; those beyond wait, beside the queue for
/// memory. Fewer if their answers could take more than half of the memory for replies; one always may.
pub const LONG_COMMANDS_MAX: usize = 4;

/// Replies of which a shard knows the times until its driver takes them: more than those of a turn.
pub const ANSWERED_MAX: usize = 8192;
/// Addresses, sessions and beginnings of paths of which a shard knows the load.
pub const LOAD_ENTRIES: usize = 64;
/// Bytes of the beginning of a path there.
pub const LOAD_PREFIX_BYTES: usize = 128;

/// Work of one turn after which a connection's next requests wait for the turns of others, and a batch's next
/// transactions for the next turn. A unit is about a nanosecond. A request counts with its look-ups and with the bytes
/// of its reply.
pub const TURN_COST_MAX: usize = 1_000_000;
/// Work of a multiRead beyond which it is refused.
pub const MULTI_READ_COST_MAX: usize = 20_000_000;
/// Bytes of a multiRead's reply beyond which it is refused: it is made in one go, in memory that is new.
pub const MULTI_READ_BYTES_MAX: usize = 16 << 20;
/// A multiRead of more work, or of a longer request, waits for its connection's turn: each turn has one.
pub const MULTI_READ_FREE_COST: usize = TURN_COST_MAX / 8;
/// .. and a request of more bytes is a longer one.
pub(crate) const MULTI_READ_FREE_BYTES: usize = 4 << 10;
/// Work of reads that one transaction waits for, because its client sent them before it. Reads beyond it are refused,
/// because everything behind the transaction waits as well.
pub const DELAY_COST_MAX: usize = MULTI_READ_COST_MAX;
/// Least cost of a request, and of a change that is applied.
pub const REQUEST_COST: usize = 500;
/// One operation of a multi, decoded.
pub const MULTI_OP_COST: usize = 200;
/// Bytes copied that cost one unit.
pub const BYTES_PER_COST: usize = 4;
/// Cost of one event for each connection that receives it, besides its bytes.
pub const EVENT_COST: usize = 200;
/// Cost of each watch that is checked for an event.
pub const WATCH_LOOK_COST: usize = 20;
/// Cost of each znode where watches are looked up for an event.
pub(crate) const WATCHED_COST: usize = 100;
/// Watchers of one event that are told before the work of the turn is looked at.
pub const WATCHERS_PIECE: usize = 1024;
/// Cost of a change for each list under way that it does not concern.
pub const UNCONCERNED_COST: usize = 20;
/// Cost of dropping a watch of a connection that has ended.
pub const DROP_COST: usize = 100;
/// Cost of a look-up of a znode.
pub const LOOK_UP_COST: usize = 300;
/// Cost of each entry of an ACL in a check of it.
pub const ACL_ENTRY_COST: usize = 20;
/// Cost of each identity of the connection in that check, because it is hashed.
pub const ACL_IDENTITY_COST: usize = 100;
/// Cost of a byte of an auth packet, most of it for the hash.
pub const AUTH_BYTE_COST: usize = 4;
/// Cost of a name of a list, besides its bytes.
pub const NAME_COST: usize = 40;
/// Cost of a byte of a list of watches, where a path has five at least.
pub const WATCH_COST: usize = 50;
/// Names, and marks of deleted children, that a list may be made of and still be written in one turn ...
pub const LIST_ENTRIES_AT_ONCE: usize = 10_000;
/// ... unless its children are looked up one by one ...
pub const LOOK_UPS_AT_ONCE: usize = 2000;
/// ... and bytes of the names.
pub const LIST_BYTES_AT_ONCE: usize = 1 << 20;
/// Names looked at in one piece of a longer list: some hundred microseconds.
pub const LIST_PIECE: usize = 8192;
/// Lists that are written in pieces at the same time, on one shard. Others wait: each change is compared with these.
pub const LISTS_MAX: usize = 16;
/// Ephemerals that getEphemerals tells of: some ten milliseconds. More are refused.
pub const EPHEMERALS_MAX: usize = 100_000;
/// Bytes of one reply: a list that is longer is refused. Half of the largest value of a length word.
pub const REPLY_FRAME_BYTES_MAX: usize = 1 << 30;
/// Bytes of a setWatches that is carried out in one turn.
pub const REWATCH_BYTES_AT_ONCE: usize = 16 << 10;
/// Watches set again in one piece of a longer one.
pub const WATCHES_PIECE: usize = 2000;
/// Slots of connections that are checked in one piece of a pass over all of them. That takes some hundred microseconds,
/// and about a millisecond if all of them end.
pub const SLOTS_PIECE: usize = 1024;
/// Of more slots a look at all of them begins at every second tick, of twice as many at every third ...
pub(crate) const SLOTS_A_TICK: usize = 32 << 10;
/// ... and so on.
pub(crate) const ROUND_TICKS_MAX: usize = 8;
/// Connections that hold memory for too long, ended in one piece.
pub const ENDED_PIECE: usize = 256;
/// Watches of a connection that has ended that are dropped in one piece ...
pub const DROPPED_PIECE: usize = 1000;
/// ... where so many bytes of a path, which are hashed, count for one watch more.
pub const DROPPED_BYTES: usize = 1 << 10;
/// Bytes that a connection may hold, whatever the others hold: small replies are never kept waiting.
pub const SMALL_BYTES: usize = 16 << 10;
/// Bytes of a connect request: a connection without a session holds little.
pub const CONNECT_BYTES_MAX: usize = 16 << 10;
/// A connection that holds no more than this does not wait behind the large replies of others ...
pub(crate) const MODERATE_BYTES: usize = 256 << 10;
/// ... because one of so many parts of the memory for all is not for these.
pub(crate) const RESERVED_SHARE: usize = 8;
/// Wait for a leader after which a server that stops closes the connections that it owes answers.
pub const DRAIN_WAIT_MS: u64 = 5000;
/// Wait for memory after which slow readers are ended. A slow reader has held memory for a second, and takes its
/// replies at less than 256 KiB a second.
pub const MEMORY_WAIT_MS: u64 = 2000;
/// A slow reader has held memory for so long.
pub(crate) const READER_LOOK_MS: u64 = 1000;
/// Wait for memory after which slow senders are ended. A slow sender does not send the rest of a request, for which
/// memory is set aside.
pub const PART_WAIT_MS: u64 = 500;
/// Interval between two checks for slow readers and senders. They take, or send, less than 256 KiB a second.
pub const SLOW_LOOK_MS: u64 = 500;
/// Slow readers and senders move fewer bytes in a second.
pub(crate) const SLOW_BYTES_PER_S: u64 = 256 << 10;

/// Servers of an ensemble at most.
pub const ENSEMBLE_SERVERS_MAX: usize = 64;
/// Longest texts of a reconfig together: more than such a list takes with the longest names.
pub const RECONFIG_BYTES_MAX: usize = 64 << 10;
/// Largest id of one: it is the highest byte of session ids, and 255 there is ZooKeeper's mark of local sessions.
pub const ENSEMBLE_ID_MAX: u8 = 254;

/// How long a leader that wants to let another lead waits for the others to send nothing more.
pub const PAUSE_MAX_MS: u64 = 300;

/// Bytes of commands that wait for a log entry at a leader, at most, before another server may send more. So many are
/// in flight on 128 shards of all servers, at the default of `limits.inflight_bytes_per_shard_max`.
pub const FORWARDED_BYTES_MAX: usize = 8 << 30;

/// Sessions named in one message to the leader, at most.
pub const REPORT_SESSIONS_MAX: usize = 64 * 1024;
/// More than so many sessions go in several messages: the leader looks each one up.
pub const REPORT_SESSIONS: usize = 16 * 1024;
/// Times of the leader that are kept until the shards' reports have come that far.
pub const HEARTBEATS_MAX: usize = 64;
/// Servers of an ensemble that this one keeps an account of. Ids are 1..=255.
pub const SERVERS_MAX: usize = 255;
/// How often an uninitialised server reports that it is.
pub const UNINITIALISED_EVERY_MS: u64 = 200;
/// A founder of a new ensemble is absent when its name has not resolved for so long since the start.
pub const ABSENT_AFTER_MS: u64 = 10_000;
/// Znodes that a walk over a subtree visits in one piece: some hundred microseconds.
pub const WALK_PIECE: usize = 1000;
/// After so long a membership change goes on without servers that have not caught up, if a majority of the new list
/// has. They get their votes later.
pub const RECONFIG_GRACE_MS: u64 = 3000;
/// Longest wait of a membership change until a leaving server is in step, so that this server receives its end.
pub const RECONFIG_FAREWELL_MS: u64 = 500;
/// A membership change fails when for so long no majority of the new list could be reached ...
pub const RECONFIG_UNREACHED_MS: u64 = 5000;
/// ... or when after so long none has caught up.
pub const RECONFIG_CATCH_UP_MS: u64 = 120_000;
