//! The counts of a run.

counts! {
    /// The counts of a run.
    Counts:
    operations,
    replies,
    events,
    sessions,
    expiries,
    /// Attaches that were refused without a log entry.
    refused,
    reaped,
    crashes,
    stops,
    cuts,
    snapshots,
    failed_syncs,
    full_disks,
    replayed,
    /// Of ensembles: leaderships, connections ended because the fate of their writes was unknown, links that broke.
    leaders,
    uncertain,
    broken_wires,
    /// .. servers that began as founders, snapshots taken over, disks emptied.
    founders,
    installs,
    emptied,
    /// .. states found damaged.
    distrusted,
    /// .. bytes of snapshots changed, those found by a merge or a scrub, and those passed over at a start.
    spoiled,
    found,
    passed_over,
    /// .. and leaders cut off from a server during the repair of its state.
    silenced,
    /// Commands that a leader refused because of their cost.
    too_costly,
    /// Writes that were refused because they add data.
    growth_refused,
    /// Leaders that let another lead because their disks were slow.
    slow_disk_transfers,
    /// Steps of membership changes, and lists that servers saw come about.
    members_changed,
    lists,
    /// Servers that were told to listen at another port for their peers.
    moves,
    /// Power cuts at an append that replaces entries.
    cuts_at_replacement,
    /// Pages of logs lost while the process was down, and those with which the log was refused.
    lost_pages,
    refused_logs,
}
