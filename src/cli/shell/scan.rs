//! Reads a subtree in the order of its paths: each znode, then all below it, children by name. Many requests are in flight.
//!
//! Its memory is bounded by the requests in flight, and by the names of siblings that are not read yet.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use corral_client::{Acl, Client, Error, ErrorCode, Stat};
use corral_core::path;
use corral_core::tree::znode::Owner;

use crate::cli::shell::paths::refused;
use crate::exit::Fault;

/// Znodes that are read at once. Each takes up to three requests.
const IN_FLIGHT_MAX: usize = 32;
/// A server's own znodes.
const OWN: &str = "/zookeeper";

/// The parts of a znode to read beside path and Stat.
#[derive(Clone, Copy, Default)]
pub(super) struct Wants {
    pub(super) data: bool,
    pub(super) acl: bool,
    /// Levels below the first znode. `None` for all.
    pub(super) depth: Option<usize>,
    /// Leaves out the server's own znodes, unless the first znode is within.
    pub(super) skips_own: bool,
}

/// A znode of the server.
pub(super) struct Found {
    pub(super) path: String,
    /// Levels below the first znode.
    pub(super) depth: usize,
    /// Whether it is the last of its siblings.
    pub(super) is_last: bool,
    /// With the version of the data, if they are read.
    pub(super) stat: Stat,
    /// `None` is null, or not wanted.
    pub(super) data: Option<Vec<u8>>,
    /// Empty if not wanted.
    pub(super) acl: Vec<Acl>,
}

impl Found {
    pub(super) fn is_ephemeral(&self) -> bool {
        is_ephemeral(&self.stat)
    }
}

pub(super) fn is_ephemeral(stat: &Stat) -> bool {
    matches!(Owner::from_bits(stat.ephemeral_owner), Owner::Session(_))
}

type Answers = Result<(Found, Vec<String>), Error>;
type Asked = Pin<Box<dyn Future<Output = Answers>>>;

/// A znode that was not given yet.
struct Waiting {
    path: String,
    depth: usize,
    is_last: bool,
    asked: Option<Asked>,
}

/// A subtree that is read.
pub(super) struct Scan {
    client: Client,
    wants: Wants,
    /// In the order of the paths.
    waiting: VecDeque<Waiting>,
    in_flight: usize,
}

impl Scan {
    pub(super) fn new(client: &Client, root: &str, wants: Wants) -> Scan {
        let first = Waiting { path: root.to_owned(), depth: 0, is_last: true, asked: None };
        Scan { client: client.clone(), wants, waiting: VecDeque::from([first]), in_flight: 0 }
    }

    /// The next znode. Znodes that are deleted meanwhile are left out.
    ///
    /// # Errors
    /// Of the server. The next call goes on behind that znode.
    pub(super) async fn next(&mut self) -> Result<Option<Found>, Fault> {
        loop {
            self.ask();
            let Some(Waiting { path, depth, asked: Some(asked), .. }) = self.waiting.pop_front() else {
                return Ok(None);
            };
            self.in_flight -= 1;
            match asked.await {
                Ok((found, names)) => {
                    self.insert(&path, depth + 1, names);
                    return Ok(Some(found));
                }
                Err(Error { code: ErrorCode::NoNode, .. }) if depth > 0 => {}
                Err(error) => return Err(refused(&error, &path)),
            }
        }
    }

    /// Sends the requests for the next znodes.
    fn ask(&mut self) {
        for (at, waiting) in self.waiting.iter_mut().take(IN_FLIGHT_MAX).enumerate() {
            if waiting.asked.is_none() && (at == 0 || self.in_flight < IN_FLIGHT_MAX) {
                waiting.asked = Some(ask(&self.client, self.wants, waiting));
                self.in_flight += 1;
            }
        }
    }

    fn insert(&mut self, parent: &str, depth: usize, mut names: Vec<String>) {
        names.sort_unstable();
        let skips_own = self.wants.skips_own && self.client.chroot() == path::ROOT;
        let paths = names.iter().map(|name| path::child(parent, name)).filter(|path| !skips_own || path != OWN);
        for (at, path) in paths.rev().enumerate() {
            self.waiting.push_front(Waiting { path, depth, is_last: at == 0, asked: None });
        }
    }
}

/// Sends the requests at once, and gives the answers later.
fn ask(client: &Client, wants: Wants, waiting: &Waiting) -> Asked {
    let Waiting { path, depth, is_last, .. } = waiting;
    let (path, depth, is_last) = (path.clone(), *depth, *is_last);
    let data = wants.data.then(|| client.get_data(&path, None));
    let acl = wants.acl.then(|| client.get_acl(&path));
    let goes_on = wants.depth.is_none_or(|most| depth < most);
    let children = goes_on.then(|| client.get_children(&path, None));
    let exists = (!goes_on).then(|| client.exists(&path, None));
    Box::pin(async move {
        let mut found = Found { path, depth, is_last, stat: Stat::default(), data: None, acl: Vec::new() };
        let mut names = Vec::new();
        if let Some(asked) = exists {
            found.stat = asked.await?.ok_or(ErrorCode::NoNode)?;
        }
        if let Some(asked) = children {
            (names, found.stat) = asked.await?;
        }
        if let Some(asked) = acl {
            found.acl = asked.await?.0;
        }
        if let Some(asked) = data {
            (found.data, found.stat) = asked.await?;
        }
        Ok((found, names))
    })
}
