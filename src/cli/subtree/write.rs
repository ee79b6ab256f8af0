//! Writes a plan to a server, with many requests in flight.
//!
//! Each step is one transaction. So an import that stops leaves whole znodes, and a second one goes on.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corral_client::{Acl, Client, CreateMode, Creation, Error, ErrorCode};
use corral_core::path;
use corral_wire::consts::perms;
use indicatif::{ProgressBar, ProgressFinish};

use crate::cli::client::failed;
use crate::cli::subtree::plan::Plan;
use crate::cli::subtree::record::{Mode, Znode};
use crate::cli::subtree::walk::IN_FLIGHT_MAX;
use crate::exit::{ExitCode, Fault};

/// Conflicts that a fault names.
const NAMED_MAX: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Change,
    Delete,
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// The steps that were sent, and their outcomes.
pub(super) struct Writing<'a> {
    client: &'a Client,
    asked: VecDeque<(Step, &'a str, Asked<'a>)>,
    /// Changed by others since the plan, and not overwritten.
    conflicts: BTreeSet<&'a str>,
    changed: BTreeSet<&'a str>,
    created: u64,
    deleted: u64,
    fault: Option<Fault>,
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl<'a> Writing<'a> {
    pub(super) fn new(client: &'a Client, plan: &Plan, interrupted: Arc<AtomicBool>) -> Writing<'a> {
        let steps = plan.creates.len() + plan.changes.len() + plan.deletes.len();
        Writing {
            client,
            asked: VecDeque::new(),
            conflicts: BTreeSet::new(),
            changed: BTreeSet::new(),
            created: 0,
            deleted: 0,
            fault: None,
            interrupted,
            bar: ProgressBar::new(steps as u64).with_finish(ProgressFinish::AndClear),
        }
    }

    /// Writes all, and gives the counts in words.
    ///
    /// # Errors
    /// Of the server, at a conflict, or if the import was interrupted.
    pub(super) async fn run(mut self, plan: &'a Plan) -> Result<String, Fault> {
        let late = self.create(plan).await;
        for (path, version) in plan.deletes.iter().rev() {
            if self.has_room().await {
                self.push(Step::Delete, path, self.client.delete(path, Some(*version)));
            }
        }
        self.drain().await;
        for (path, version) in late.into_iter().rev() {
            if self.has_room().await && !self.conflicts.contains(path) {
                let set = self.client.set_acl(path, &plan.wanted[path].acl, Some(version));
                self.push(Step::Change, path, async { set.await.map(drop) });
            }
        }
        self.drain().await;
        let Writing { created, deleted, changed, .. } = &self;
        let counts = format!("created {created}, changed {}, deleted {deleted}", changed.len());
        if let Some(fault) = self.fault {
            let sentence =
                format!("{}\n{counts}; run the same command again, and it goes on from there", fault.sentence);
            return Err(Fault::new(fault.code, sentence));
        }
        if self.conflicts.is_empty() {
            return Ok(counts);
        }
        let named: Vec<&str> = self.conflicts.iter().copied().take(NAMED_MAX).collect();
        let (count, named) = (self.conflicts.len(), named.join(", "));
        let sentence =
            format!("{counts}; changed by others since the plan and not overwritten: {count} ({named}); run it again");
        Err(Fault::new(ExitCode::Conflict, sentence))
    }

    /// Creates and changes data, parents first. Gives the ACLs that are to be set later, with the versions of the ACLs before.
    async fn create(&mut self, plan: &'a Plan) -> Vec<(&'a str, i32)> {
        let mut late = Vec::new();
        let closed: BTreeSet<&str> = closed_parents(plan).collect();
        let (mut creates, mut changes) = (plan.creates.iter().peekable(), plan.changes.iter().peekable());
        while self.has_room().await {
            let next = match (creates.peek(), changes.peek()) {
                (Some(create), Some((change, _))) => create < change,
                (create, _) => create.is_some(),
            };
            if let (true, Some(path)) = (next, creates.next_if(|_| next)) {
                let znode = &plan.wanted[path];
                let mut acl = znode.acl.clone();
                if closed.contains(path.as_str()) {
                    acl.push(Acl::new(perms::CREATE | perms::ADMIN, "auth", ""));
                    late.push((path.as_str(), 0));
                }
                let create = self.client.create(path, &creation(znode, &acl));
                self.push(Step::Create, path, async { create.await.map(drop) });
            } else if let Some((path, change)) = changes.next() {
                late.extend(change.acl.map(|version| (path.as_str(), version)));
                if let Some(version) = change.data {
                    let set = self.client.set_data(path, Some(&plan.wanted[path].data), Some(version));
                    self.push(Step::Change, path, async { set.await.map(drop) });
                }
            } else {
                break;
            }
        }
        late.sort_unstable();
        late
    }

    fn push(&mut self, step: Step, path: &'a str, asked: impl Future<Output = Result<(), Error>> + 'a) {
        self.asked.push_back((step, path, Box::pin(asked)));
    }

    /// Waits until one more request may be sent. False after a fault.
    async fn has_room(&mut self) -> bool {
        if self.interrupted.load(Ordering::Relaxed) && self.fault.is_none() {
            self.fault = Some(Fault::new(ExitCode::Internal, "interrupted"));
        }
        while self.asked.len() >= IN_FLIGHT_MAX {
            self.take_answer().await;
        }
        self.fault.is_none()
    }

    async fn drain(&mut self) {
        while !self.asked.is_empty() {
            self.take_answer().await;
        }
    }

    async fn take_answer(&mut self) {
        let Some((step, path, asked)) = self.asked.pop_front() else { return };
        self.bar.inc(1);
        match asked.await {
            Err(Error { code: ErrorCode::NoNode, .. }) if step == Step::Delete => {}
            Ok(()) => match step {
                Step::Create => self.created += 1,
                Step::Change => {
                    self.changed.insert(path);
                }
                Step::Delete => self.deleted += 1,
            },
            Err(error) => match error.code {
                ErrorCode::BadVersion | ErrorCode::NodeExists | ErrorCode::NoNode | ErrorCode::NotEmpty => {
                    self.conflicts.insert(path);
                }
                _ => {
                    self.fault.get_or_insert_with(|| failed(path, &error));
                }
            },
        }
    }
}

fn creation<'a>(znode: &'a Znode, acl: &'a [Acl]) -> Creation<'a> {
    let (mode, ttl_ms) = match znode.mode {
        Mode::Container => (CreateMode::Container, 0),
        Mode::TtlMs(ms) => (CreateMode::PersistentWithTtl, ms),
        _ => (CreateMode::Persistent, 0),
    };
    Creation { data: Some(&znode.data), acl, mode, ttl_ms }
}

/// New znodes with children, below which not everyone may create. Until their children are there, the identities of the import may.
pub(super) fn closed_parents(plan: &Plan) -> impl Iterator<Item = &str> {
    let parents: BTreeSet<&str> = plan.wanted.keys().map(|path| path::parent(path)).collect();
    let is_open = |one: &Acl| one.scheme == "world" && one.perms & perms::CREATE != 0;
    let creates = plan.creates.iter().map(String::as_str);
    creates.filter(move |path| parents.contains(path) && !plan.wanted[*path].acl.iter().any(is_open))
}
