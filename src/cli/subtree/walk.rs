//! Reads a subtree of a running server, parents first, with many requests in flight.
//!
//! The main thread. Its memory is bounded by the requests in flight, and by the names of siblings that are not read yet.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;

use corral_client::{Acl, Client, Error, ErrorCode, Stat};
use corral_core::path;

use crate::cli::client::failed;
use crate::exit::Fault;

/// Znodes that are read at once. Each takes three requests.
pub(super) const IN_FLIGHT_MAX: usize = 32;
/// A server's own znodes. They belong to no subtree, unless its path is within.
const OWN: &str = "/zookeeper";

/// A znode of the server.
pub(super) struct Found {
    pub(super) path: String,
    pub(super) data: Vec<u8>,
    pub(super) acl: Vec<Acl>,
    pub(super) stat: Stat,
}

type Data = (Option<Vec<u8>>, Stat);
type Answers = (Result<Data, Error>, Result<(Vec<Acl>, Stat), Error>, Result<(Vec<String>, Stat), Error>);
type Asked = Pin<Box<dyn Future<Output = Answers>>>;

/// Gives each znode from `root` on to `take`. Without `skipped` a znode that may not be read is an error. With it these are
/// counted there, and left out with all below them. Znodes that are deleted meanwhile are left out.
///
/// # Errors
/// Of the server, or of `take`.
pub(super) async fn walk(
    client: &Client,
    root: &str,
    mut skipped: Option<&mut u64>,
    mut take: impl FnMut(Found) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (mut waiting, mut asked) = (vec![root.to_owned()], VecDeque::new());
    loop {
        while asked.len() < IN_FLIGHT_MAX {
            let Some(path) = waiting.pop() else { break };
            asked.push_back((ask(client, &path), path));
        }
        let Some((answers, path)) = asked.pop_front() else { return Ok(()) };
        let (data, stat, acl, names) = match answers.await {
            (Ok((data, stat)), Ok((acl, _)), Ok((names, _))) => (data.unwrap_or_default(), stat, acl, names),
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => match (error, skipped.as_deref_mut()) {
                (Error { code: ErrorCode::NoNode, .. }, _) => continue,
                (Error { code: ErrorCode::NoAuth, .. }, Some(count)) => {
                    *count += 1;
                    continue;
                }
                (error, _) => return Err(failed(&path, &error)),
            },
        };
        let children = names.iter().map(|name| path::child(&path, name));
        waiting.extend(children.filter(|path| path != OWN || client.chroot() != path::ROOT));
        take(Found { path, data, acl, stat })?;
    }
}

/// Reads single znodes. Paths without a znode are left out.
///
/// # Errors
/// Of the server.
pub(super) async fn read<'a>(
    client: &Client,
    mut paths: impl Iterator<Item = &'a String>,
) -> Result<BTreeMap<String, Found>, Fault> {
    let (mut asked, mut all) = (VecDeque::new(), BTreeMap::new());
    loop {
        while asked.len() < IN_FLIGHT_MAX {
            let Some(path) = paths.next() else { break };
            asked.push_back((path, client.get_data(path, None), client.get_acl(path)));
        }
        let Some((path, data, acl)) = asked.pop_front() else { return Ok(all) };
        match (data.await, acl.await) {
            (Ok((data, stat)), Ok((acl, _))) => {
                let found = Found { path: path.clone(), data: data.unwrap_or_default(), acl, stat };
                all.insert(path.clone(), found);
            }
            (Err(error), _) | (_, Err(error)) if error.code == ErrorCode::NoNode => {}
            (Err(error), _) | (_, Err(error)) => return Err(failed(path, &error)),
        }
    }
}

/// Sends the requests at once, and gives the answers later.
fn ask(client: &Client, path: &str) -> Asked {
    let (data, acl, names) = (client.get_data(path, None), client.get_acl(path), client.get_children(path, None));
    Box::pin(async { (data.await, acl.await, names.await) })
}
