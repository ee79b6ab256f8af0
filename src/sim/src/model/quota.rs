//! Quotas in the model (protocol chapter 20): usage kept in the data of znodes, limits that refuse.
//!
//! Written against the tree alone: a subtree has a quota where its limits znode exists.

use std::collections::BTreeMap;

use super::Node;
use super::rules::{Draft, length, parent_of};

const QUOTA: &str = "/zookeeper/quota";

type Values = BTreeMap<String, i64>;

impl Draft<'_> {
    /// Whether a hard limit refuses so much more, judged by the state before this transaction.
    pub(super) fn is_beyond_quota(&self, path: &str, znodes: i64, bytes: i64) -> bool {
        if !self.model.switches.enforce_quota {
            return false;
        }
        let Some(root) = root_of(path, |path| self.model.node(path)) else { return false };
        let read = |name: &str| self.model.node(&format!("{QUOTA}{root}/{name}")).map(values);
        let (Some(limits), Some(usage)) = (read("zookeeper_limits"), read("zookeeper_stats")) else { return false };
        let beyond = |limit: &str, used: &str, more: i64| {
            let limit = value(&limits, limit);
            more != 0 && limit > -1 && value(&usage, used) + more > limit
        };
        beyond("countHardLimit", "count", znodes) || beyond("byteHardLimit", "bytes", bytes)
    }

    /// Keeps the usage of the subtree that a change belongs to.
    pub(super) fn account(&mut self, path: &str, znodes: i64, bytes: i64) {
        if (znodes, bytes) == (0, 0) {
            return;
        }
        let Some(root) = root_of(path, |path| self.node(path)) else { return };
        let stats = format!("{QUOTA}{root}/zookeeper_stats");
        if let Some(mut node) = self.node(&stats).cloned() {
            let mut usage = values(&node);
            let (count, size) = (value(&usage, "count") + znodes, value(&usage, "bytes") + bytes);
            usage.insert("count".to_owned(), count);
            usage.insert("bytes".to_owned(), size);
            node.data = Some(text(&usage).into_bytes());
            self.set(&stats, node);
        }
    }

    /// A usage znode that was just made counts what is there.
    pub(super) fn count_if_usage(&mut self, path: &str) {
        let Some(rest) = path.strip_prefix(QUOTA) else { return };
        let Some(root) = rest.strip_suffix("/zookeeper_stats") else { return };
        let (mut count, mut bytes) = (0, 0);
        for (_, node) in self.subtree(root) {
            count += 1;
            bytes += length(node.data.as_deref());
        }
        let mut node = self.node(path).cloned().expect("it was just made");
        node.data = Some(format!("count={count},bytes={bytes}").into_bytes());
        self.set(path, node);
    }
}

/// The deepest subtree with limits that holds the path.
fn root_of<'n>(path: &str, node: impl Fn(&str) -> Option<&'n Node>) -> Option<String> {
    let mut root = path;
    while root != "/" && root.starts_with('/') {
        if node(&format!("{QUOTA}{root}/zookeeper_limits")).is_some() {
            return Some(root.to_owned());
        }
        root = parent_of(root);
    }
    None
}

fn value(values: &Values, key: &str) -> i64 {
    values.get(key).copied().unwrap_or(-1)
}

fn values(node: &Node) -> Values {
    let text = String::from_utf8(node.data.clone().unwrap_or_default()).unwrap_or_default();
    let pairs = text.split([',', ';']).filter_map(|pair| {
        let mut parts = pair.split('=');
        Some((parts.next()?.to_owned(), parts.next()?.parse().unwrap_or(-1)))
    });
    pairs.collect()
}

fn text(values: &Values) -> String {
    let text = format!("count={},bytes={}", value(values, "count"), value(values, "bytes"));
    let others = values.iter().filter(|(key, _)| *key != "count" && *key != "bytes");
    let others: String = others.map(|(key, value)| format!(";{key}={value}")).collect();
    if others.is_empty() { text } else { format!("{text}={others}") }
}
