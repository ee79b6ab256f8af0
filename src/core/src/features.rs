//! Switches that decide how a command is evaluated. They travel in the batch, stamped by the leader: a replay under
//! another configuration must come to the same result.

/// TTL nodes may be created.
pub const EXTENDED_TYPES: u32 = 1;
/// ACLs are not checked.
pub const SKIP_ACL: u32 = 2;
/// Hard quota limits refuse writes.
pub const ENFORCE_QUOTA: u32 = 4;
/// The membership may be changed by clients.
pub const RECONFIG: u32 = 8;
/// ACLs may name the scheme sasl.
pub const SASL_ACLS: u32 = 16;
/// ACLs may name the scheme x509.
pub const X509_ACLS: u32 = 32;
/// ClickHouse Keeper's operations are served, and its system nodes are there.
pub const KEEPER: u32 = 64;
/// Clients may leave a single server with a vote.
pub const ONE_VOTER: u32 = 128;
/// The server is one of an ensemble.
pub const ENSEMBLE: u32 = 256;
/// The leader has a membership change in hand. No switch of a configuration.
pub const RECONFIGURING: u32 = 512;
/// Work, ACLs, paths and lists of children are bounded. Every leader sets it; older log entries lack it and are
/// evaluated by the rules of their time. No switch of a configuration.
pub const BOUNDED: u32 = 1024;
/// The cost of quotas is bounded too: deletions count with it, and the number of quotas is limited. As BOUNDED, of
/// a later version.
pub const QUOTAS_BOUNDED: u32 = 2048;
/// Work counts the deleted children of a znode where children are looked for. As BOUNDED, of a still later version.
pub const DELETIONS_BOUNDED: u32 = 4096;
/// The bits that every leader sets.
pub const BOUNDS: u32 = BOUNDED | QUOTAS_BOUNDED | DELETIONS_BOUNDED;
/// The leader judged the cost of every command before the batch was logged. Every server carries out the commands, whatever
/// they cost by its own prices. A leader sets it once all members know it, and for ever behind the first entry that has it.
/// No switch of a configuration.
pub const ADMITTED: u32 = 8192;
/// The first batch with this bit gives the data the id of their ensemble, see [`EnsembleId`](crate::apply::EnsembleId). A leader sets it
/// while all members know it. No switch of a configuration.
pub const IDENTIFIED: u32 = 16384;
/// All bits that this version knows. A batch with another bit is refused: its rules are those of a later version.
pub const KNOWN: u32 = 2 * IDENTIFIED - 1;
