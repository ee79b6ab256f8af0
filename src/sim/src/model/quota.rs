//! Quotas in the model (protocol chapter 20): usage kept in the data of znodes, limits that refuse.
//!
//! Written against the tree alone: a subtree has a quota where its limits znode exists.

use std::collections::BTreeMap;

use super::node::{Node, length};
use super::paths::parent_of;

const QUOTA: &str = "/zookeeper/quota";

type Values = BTreeMap<String, i64>;

/// Whether a hard limit refuses so much more, in the state of these znodes.
pub(super) fn is_beyond<'n>(path: &str, znodes: i64, bytes: i64, node: impl Fn(&str) -> Option<&'n Node>) -> bool {
    let Some(root) = root_of(path, &node) else { return false };
    let read = |name: &str| node(&format!("{QUOTA}{root}/{name}")).map(values);
    let (Some(limits), Some(usage)) = (read("zookeeper_limits"), read("zookeeper_stats")) else { return false };
    let beyond = |limit: &str, used: &str, more: i64| {
        let limit = value(&limits, limit);
        more != 0 && limit > -1 && value(&usage, used) + more > limit
    };
    beyond("countHardLimit", "count", znodes) || beyond("byteHardLimit", "bytes", bytes)
}

/// The usage of the subtree that a change belongs to: the path of its znode, and the znode behind the change.
pub(super) fn accounted<'n>(
    path: &str,
    znodes: i64,
    bytes: i64,
    node: impl Fn(&str) -> Option<&'n Node>,
) -> Option<(String, Node)> {
    if (znodes, bytes) == (0, 0) {
        return None;
    }
    let stats = format!("{QUOTA}{}/zookeeper_stats", root_of(path, &node)?);
    let mut node = node(&stats)?.clone();
    let mut usage = values(&node);
    let (count, size) = (value(&usage, "count") + znodes, value(&usage, "bytes") + bytes);
    usage.insert("count".to_owned(), count);
    usage.insert("bytes".to_owned(), size);
    node.data = Some(text(&usage).into_bytes());
    Some((stats, node))
}

/// The subtree with the usage that this znode holds, if it holds one.
pub(super) fn counted_by(path: &str) -> Option<&str> {
    path.strip_prefix(QUOTA)?.strip_suffix("/zookeeper_stats")
}

/// The usage of these znodes, as data.
pub(super) fn usage<'n>(znodes: impl Iterator<Item = &'n Node>) -> Vec<u8> {
    let (mut count, mut bytes) = (0, 0);
    for node in znodes {
        count += 1;
        bytes += length(node.data.as_deref());
    }
    format!("count={count},bytes={bytes}").into_bytes()
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
