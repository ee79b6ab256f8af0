//! The difference between a file and a server's subtree, as the steps of an import.

use std::collections::{BTreeMap, BTreeSet};

use corral_client::{Client, ErrorCode};
use corral_core::path;

use crate::cli::client::failed;
use crate::cli::output::{Output, plain};
use crate::cli::subtree::record::{Mode, Tree, Znode};
use crate::cli::subtree::walk::{Found, walk};
use crate::exit::Fault;

/// Lines of a plan that are shown.
const LINES_MAX: usize = 100;

/// A change of a znode: the versions of data and ACL that the plan saw, if they differ.
#[derive(Default)]
pub(super) struct Change {
    pub(super) data: Option<i32>,
    pub(super) acl: Option<i32>,
}

/// The steps from the server's subtree to that of the file.
pub(crate) struct Plan {
    /// The file's znodes by their paths on the server.
    pub(super) wanted: BTreeMap<String, Znode>,
    pub(super) creates: Vec<String>,
    pub(super) changes: BTreeMap<String, Change>,
    /// With the versions of their data. Parents come first.
    pub(super) deletes: BTreeMap<String, i32>,
    /// Ephemerals of clients in the place of other znodes. They are left alone.
    taken: Vec<String>,
    equal: u64,
    /// Only on the server.
    kept: u64,
    ephemerals: u64,
}

impl Plan {
    fn new(wanted: BTreeMap<String, Znode>, ephemerals: u64) -> Plan {
        Plan {
            wanted,
            creates: Vec::new(),
            changes: BTreeMap::new(),
            deletes: BTreeMap::new(),
            taken: Vec::new(),
            equal: 0,
            kept: 0,
            ephemerals,
        }
    }

    /// Compares single znodes with those of the server.
    pub(super) fn of(wanted: BTreeMap<String, Znode>, present: BTreeMap<String, Found>) -> Plan {
        let mut plan = Plan::new(wanted, 0);
        plan.creates = plan.wanted.keys().filter(|path| !present.contains_key(*path)).cloned().collect();
        present.into_values().for_each(|found| plan.compare(found));
        plan
    }

    /// Also deletes the other znodes below a path, but for ephemerals.
    ///
    /// # Errors
    /// Of the server.
    pub(super) async fn delete_others(&mut self, client: &Client, root: &str) -> Result<(), Fault> {
        walk(client, root, None, |found| {
            if self.wanted.contains_key(&found.path) {
                return Ok(());
            }
            if matches!(Mode::of(&found.stat), Mode::Ephemeral(_)) {
                self.taken.push(found.path);
            } else {
                self.deletes.insert(found.path, found.stat.version);
            }
            Ok(())
        })
        .await?;
        // Their parents stay too.
        for mut path in self.taken.iter().map(String::as_str) {
            while path != path::ROOT {
                path = path::parent(path);
                self.deletes.remove(path);
            }
        }
        Ok(())
    }

    /// Compares the file with the subtree at `root`. Without `persistent` ephemerals are left out. With `delete` znodes that the file
    /// does not hold are deleted.
    ///
    /// # Errors
    /// Of the server, or if the parent of the root does not exist.
    pub(super) async fn make(
        client: &Client,
        tree: Tree,
        root: &str,
        persistent: bool,
        delete: bool,
    ) -> Result<Plan, Fault> {
        let parent = path::parent(root);
        let found = client.exists(parent, None).await.map_err(|error| failed(parent, &error))?;
        found.ok_or_else(|| failed(parent, &ErrorCode::NoNode.into()))?;
        let (mut wanted, mut ephemerals, mut left_out) = (BTreeMap::new(), 0, BTreeSet::new());
        for (below, mut znode) in tree.znodes {
            let path = if below == path::ROOT { root.to_owned() } else { path::child(root, &below[1..]) };
            if matches!(znode.mode, Mode::Ephemeral(_)) {
                ephemerals += 1;
                if !persistent {
                    left_out.insert(path);
                    continue;
                }
                znode.mode = Mode::Persistent;
            }
            wanted.insert(path, znode);
        }
        let mut plan = Plan::new(wanted, ephemerals);
        let mut seen = BTreeSet::new();
        walk(client, root, None, |found| {
            if plan.wanted.contains_key(&found.path) {
                seen.insert(found.path.clone());
                plan.compare(found);
            } else if delete && !left_out.contains(&found.path) {
                plan.deletes.insert(found.path, found.stat.version);
            } else {
                plan.kept += 1;
            }
            Ok(())
        })
        .await?;
        plan.creates = plan.wanted.keys().filter(|path| !seen.contains(*path)).cloned().collect();
        Ok(plan)
    }

    fn compare(&mut self, found: Found) {
        let Some(znode) = self.wanted.get(&found.path) else { return };
        let change = Change {
            data: (znode.data != found.data).then_some(found.stat.version),
            acl: (znode.acl != found.acl).then_some(found.stat.aversion),
        };
        if matches!(Mode::of(&found.stat), Mode::Ephemeral(_)) {
            self.taken.push(found.path);
        } else if change.data.is_none() && change.acl.is_none() {
            self.equal += 1;
        } else {
            self.changes.insert(found.path, change);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.changes.is_empty() && self.deletes.is_empty()
    }

    /// The sign, the path and more words of each step.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (char, &str, &'static str)> {
        let creates = self.creates.iter().map(|path| ('+', path, ""));
        let others = self.taken.iter().map(|path| ('!', path, "left alone: an ephemeral"));
        let deletes = self.deletes.keys().map(|path| ('-', path, ""));
        let steps = creates.chain(self.changes.iter().map(changed)).chain(others).chain(deletes);
        steps.map(|(sign, path, words)| (sign, path.as_str(), words))
    }

    /// The counts in words.
    pub(crate) fn counts(&self) -> String {
        let acls = self.changes.values().filter(|change| change.acl.is_some()).count();
        let data = self.changes.values().filter(|change| change.data.is_some()).count();
        let (creates, deletes) = (self.creates.len(), self.deletes.len());
        let Plan { equal, kept, ephemerals, .. } = self;
        format!(
            "plan: create {creates}, change data {data}, change ACL {acls}, delete {deletes}; \
             equal {equal}, only on the server {kept}, ephemerals in the file {ephemerals}"
        )
    }

    /// Prints a line for each znode, and the counts.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn print(&self, out: &mut Output, verbose: bool) -> Result<(), Fault> {
        let count = self.steps().count();
        for step in self.steps().take(if verbose { usize::MAX } else { LINES_MAX }) {
            out.line(&line(step))?;
        }
        if !verbose && count > LINES_MAX {
            out.line(&format!("... and {} more, which --verbose shows", count - LINES_MAX))?;
        }
        out.line(&self.counts())?;
        out.finish()
    }
}

/// The step of a change.
fn changed<'a>((path, change): (&'a String, &Change)) -> (char, &'a String, &'static str) {
    let what = match (change.data, change.acl) {
        (Some(_), Some(_)) => "data, ACL",
        (Some(_), None) => "data",
        _ => "ACL",
    };
    ('~', path, what)
}

/// A step as text.
pub(crate) fn line((sign, path, words): (char, &str, &str)) -> String {
    let words = if words.is_empty() { String::new() } else { format!(" ({words})") };
    format!("{sign} {}{words}", plain(path))
}
