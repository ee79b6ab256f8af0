//! The rows of the per-core table, and the keys of a row.
//!
//! Start-up only, on the main thread. It does not know what a plan is made of.

use crate::config::value::{CoreRole, Field, Limits, Raw, Rejection};

/// Rows of the per-core table and executors at most.
pub(crate) const CORES_MAX: usize = 1024;

/// One row of the per-core table, as configured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoreRow {
    /// CPU to pin to; `None` = not pinned.
    pub(crate) cpu: Option<u32>,
    pub(crate) role: CoreRole,
    /// Instead of `runtime.ring_depth`.
    pub(crate) ring_depth: Option<u32>,
    /// Instead of `runtime.turn_budget_us`.
    pub(crate) turn_budget_us: Option<u32>,
    /// Instead of `runtime.poll_us`.
    pub(crate) poll_us: Option<u32>,
    /// Connections of this shard alone; `None` = only the limit of the whole server.
    pub(crate) connections_max: Option<u32>,
    /// Line of the row in the file.
    pub(crate) line: u32,
}

impl CoreRow {
    /// An empty row; its role counts only once the file has given one.
    pub(crate) fn at_line(line: u32) -> CoreRow {
        CoreRow {
            cpu: None,
            role: CoreRole::Shard,
            ring_depth: None,
            turn_budget_us: None,
            poll_us: None,
            connections_max: None,
            line,
        }
    }
}

/// One key of a row of the per-core table.
pub(crate) struct RowKey {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) limits: Limits,
    pub(crate) doc: &'static str,
    pub(crate) set: fn(&mut CoreRow, &Raw, Limits) -> Result<(), Rejection>,
}

/// The keys of a row.
pub(crate) const ROW_KEYS: &[RowKey] = &[
    RowKey {
        name: "cpu",
        kind: "whole number",
        unit: "",
        limits: Limits::range(0, 8191),
        doc: "CPU to pin to. Absent = not pinned.",
        set: |row, raw, limits| u32::parse(raw, limits).map(|cpu| row.cpu = Some(cpu)),
    },
    RowKey {
        name: "role",
        kind: CoreRole::KIND,
        unit: "",
        limits: Limits::NONE,
        doc: "The actors on that CPU. Required. Exactly one row runs the consensus actor, at least one a shard.",
        set: |row, raw, limits| CoreRole::parse(raw, limits).map(|role| row.role = role),
    },
    RowKey {
        name: "ring_depth",
        kind: "whole number",
        unit: "entries",
        limits: Limits::range(1024, 32_768),
        doc: "Instead of `runtime.ring_depth`.",
        set: |row, raw, limits| u32::parse(raw, limits).map(|depth| row.ring_depth = Some(depth)),
    },
    RowKey {
        name: "turn_budget_us",
        kind: "whole number",
        unit: "us",
        limits: Limits::range(10, 100_000),
        doc: "Instead of `runtime.turn_budget_us`.",
        set: |row, raw, limits| u32::parse(raw, limits).map(|budget| row.turn_budget_us = Some(budget)),
    },
    RowKey {
        name: "poll_us",
        kind: "whole number",
        unit: "us",
        limits: Limits::range(0, 2000),
        doc: "Instead of `runtime.poll_us`.",
        set: |row, raw, limits| u32::parse(raw, limits).map(|time| row.poll_us = Some(time)),
    },
    RowKey {
        name: "connections_max",
        kind: "whole number",
        unit: "",
        limits: Limits::range(1, 10_000_000),
        doc: "Connections of this shard. Absent = only `limits.connections_max`.",
        set: |row, raw, limits| u32::parse(raw, limits).map(|count| row.connections_max = Some(count)),
    },
];
