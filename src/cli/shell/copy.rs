//! The verbs `cp` and `mv`: a subtree at a second path, or at another path.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use corral_client::{Acl, Client, CreateMode, Creation, Error, ErrorCode, Write};
use corral_wire::consts::perms;
use serde_json::json;

use crate::cli::shell::paths::{check, refused, usage};
use crate::cli::shell::remote_path::{RemotePath, below};
use crate::cli::shell::scan::{Found, Scan, Wants, is_ephemeral};
use crate::cli::shell::znodes::Call;
use crate::exit::{ExitCode, Fault};

/// Znodes that are written at once, and their bytes of data but for the last. A server makes a session's reads wait for its writes, so
/// both take turns.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;
/// Of one transaction of `mv`. Servers take requests of 1 MiB.
const MOVED_ZNODES_MAX: usize = 1000;
const MOVED_BYTES_MAX: usize = 900 << 10;
/// Of an operation, beside its texts and data.
const OPERATION_BYTES: usize = 64;
const ALL: Wants = Wants { data: true, acl: true, depth: None, skips_own: true };

pub(super) async fn cp(call: &Call<'_>) -> Result<(), Fault> {
    let [from, to] = [0, 1].map(|at| call.words.at(at).unwrap_or_default());
    let (source, target) = (RemotePath::open(call, from).await?, RemotePath::open(call, to).await?);
    let mut copy = Copy::new(&target, call.words.has("f"));
    let mut result = copy.run(&source).await;
    let Copy { znodes, bytes, ephemerals, .. } = copy;
    if let Err(fault) = &mut result
        && znodes > 0
        && fault.code != ExitCode::Usage
    {
        fault.sentence += &format!("\n{znodes} znodes were copied; run the command again with -f");
    } else if result.is_ok() {
        let text = || format!("copied {znodes} znodes, {bytes} bytes of data\n");
        call.screen.show(text, || json!({"znodes": znodes, "bytes": bytes, "ephemerals": ephemerals}));
    }
    if ephemerals > 0 {
        call.screen.aside(&format!("{ephemerals} ephemeral znodes were copied as persistent ones"));
    }
    source.close().await;
    target.close().await;
    result
}

/// A request, and how many znodes it copies.
type Written = Pin<Box<dyn Future<Output = Result<u64, Fault>>>>;

/// A copy that runs.
struct Copy<'a> {
    target: &'a RemotePath,
    /// Whether data and ACLs of znodes that exist are replaced.
    replaces: bool,
    written: VecDeque<Written>,
    /// Znodes that have their final ACL when all below them is there, with their depths.
    late: Vec<(usize, String, Vec<Acl>)>,
    znodes: u64,
    bytes: u64,
    ephemerals: u64,
}

impl<'a> Copy<'a> {
    fn new(target: &'a RemotePath, replaces: bool) -> Copy<'a> {
        let (written, late) = (VecDeque::new(), Vec::new());
        Copy { target, replaces, written, late, znodes: 0, bytes: 0, ephemerals: 0 }
    }

    async fn run(&mut self, source: &RemotePath) -> Result<(), Fault> {
        let RemotePath { path, client, .. } = self.target;
        let within = || usage(&format!("{path} is {} or below it; copy to a path beside it", source.path));
        if source.holds(self.target) {
            return Err(within());
        }
        let failed = |error| refused(&error, path);
        let known = client.exists(path, None).await.map_err(failed)?;
        if known.is_some() && !self.replaces {
            let sentence = format!("Node already exists: {path}; give -f to replace the data of znodes that exist");
            return Err(Fault::new(ExitCode::Conflict, sentence));
        }
        let mut scan = Scan::new(&source.client, &source.path, ALL);
        let mut root = known;
        loop {
            let batch = batch(&mut scan).await?;
            if batch.is_empty() {
                break;
            }
            for found in batch {
                // Another name of the same server leads here.
                if root.is_some_and(|root| (root.czxid, root.ctime) == (found.stat.czxid, found.stat.ctime)) {
                    return Err(within());
                }
                self.close_above(found.depth).await?;
                self.write(source, found).await?;
                if root.is_none() {
                    self.wait(0).await?;
                    root = client.exists(path, None).await.map_err(failed)?;
                }
            }
        }
        self.close_above(0).await?;
        self.wait(0).await
    }

    async fn write(&mut self, source: &RemotePath, found: Found) -> Result<(), Fault> {
        self.ephemerals += u64::from(found.is_ephemeral());
        let Found { path, depth, stat, data, acl, .. } = found;
        let RemotePath { path: root, client, .. } = self.target;
        let rest = below(&source.path, &path).unwrap_or_default();
        let path = if root == "/" && !rest.is_empty() { rest.to_owned() } else { format!("{root}{rest}") };
        let is_open = |one: &Acl| one.scheme == "world" && one.perms & perms::CREATE != 0;
        let mut first = acl.clone();
        if stat.num_children > 0 && !acl.iter().any(is_open) {
            first.push(Acl::new(perms::CREATE | perms::ADMIN, "auth", ""));
            self.late.push((depth, path.clone(), acl));
        }
        self.bytes += data.as_ref().map_or(0, |data| data.len() as u64);
        self.push(written(client.clone(), path, data, first, self.replaces)).await
    }

    /// Gives znodes of this depth and below their final ACLs.
    async fn close_above(&mut self, depth: usize) -> Result<(), Fault> {
        while let Some((_, path, acl)) = self.late.pop_if(|(own, ..)| *own >= depth) {
            self.wait(0).await?;
            let set = self.target.client.set_acl(&path, &acl, None);
            self.push(Box::pin(async move { set.await.map(|_| 0).map_err(|error| refused(&error, &path)) })).await?;
        }
        Ok(())
    }

    async fn push(&mut self, written: Written) -> Result<(), Fault> {
        self.written.push_back(written);
        self.wait(BATCH).await
    }

    /// Waits until no more than so many requests are under way.
    async fn wait(&mut self, most: usize) -> Result<(), Fault> {
        while self.written.len() > most {
            let Some(written) = self.written.pop_front() else { break };
            self.znodes += written.await?;
        }
        Ok(())
    }
}

/// The next znodes of a subtree. Empty at its end.
async fn batch(scan: &mut Scan) -> Result<Vec<Found>, Fault> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < BATCH && bytes < BATCH_BYTES {
        let Some(found) = scan.next().await? else { break };
        bytes += found.data.as_ref().map_or(0, Vec::len);
        batch.push(found);
    }
    Ok(batch)
}

/// Sends the request at once. A znode that exists is replaced later, but for the ephemeral of a client.
fn written(client: Client, path: String, data: Option<Vec<u8>>, acl: Vec<Acl>, replaces: bool) -> Written {
    let creation = Creation { data: data.as_deref(), acl: &acl, mode: CreateMode::Persistent, ttl_ms: 0 };
    let created = client.create(&path, &creation);
    Box::pin(async move {
        let failed = |error: Error| refused(&error, &path);
        match created.await {
            Err(Error { code: ErrorCode::NodeExists, .. }) if replaces => {
                let known = client.exists(&path, None).await.map_err(failed)?;
                if known.is_some_and(|stat| is_ephemeral(&stat)) {
                    let sentence = format!("Node already exists: {path}; it is ephemeral and stays with its session");
                    return Err(Fault::new(ExitCode::Conflict, sentence));
                }
                let (data, acl) = (client.set_data(&path, data.as_deref(), None), client.set_acl(&path, &acl, None));
                data.await.map_err(failed)?;
                acl.await.map(|_| 1).map_err(failed)
            }
            created => created.map(|_| 1).map_err(failed),
        }
    })
}

pub(super) async fn mv(call: &Call<'_>) -> Result<(), Fault> {
    let [from, to] = [0, 1].map(|at| call.words.at(at).unwrap_or_default());
    check(from)?;
    check(to)?;
    if below(from, to).is_some() {
        return Err(usage(&format!("{to} is {from} or below it; move to a path beside it")));
    }
    let (mut scan, mut moved, mut bytes) = (Scan::new(call.client, from, ALL), Vec::new(), 0);
    while let Some(found) = scan.next().await? {
        if found.is_ephemeral() {
            let sentence = format!("nothing was moved: {} is ephemeral and stays with its session", found.path);
            return Err(Fault::new(ExitCode::Conflict, sentence));
        }
        let path = format!("{to}{}", below(from, &found.path).unwrap_or_default());
        let acl: usize = found.acl.iter().map(|one| one.scheme.len() + one.id.len() + OPERATION_BYTES).sum();
        bytes += found.path.len() + path.len() + found.data.as_ref().map_or(0, Vec::len) + acl + 2 * OPERATION_BYTES;
        moved.push((found, path));
        if moved.len() > MOVED_ZNODES_MAX || bytes > MOVED_BYTES_MAX {
            let sentence = format!(
                "nothing was moved: {from} does not fit into one transaction of {MOVED_ZNODES_MAX} znodes and 900 KiB; \
                 use cp {from} {to}, then deleteall {from}"
            );
            return Err(Fault::new(ExitCode::Conflict, sentence));
        }
    }
    let create = |(found, path): &'_ (Found, String)| (path.clone(), found.data.clone(), found.acl.clone());
    let creates: Vec<(String, Option<Vec<u8>>, Vec<Acl>)> = moved.iter().map(create).collect();
    let creates = creates.iter().map(|(path, data, acl)| {
        let creation = Creation { data: data.as_deref(), acl, mode: CreateMode::Persistent, ttl_ms: 0 };
        Write::Create { path, creation }
    });
    let delete = |(found, _): &'_ (Found, String)| (found.path.clone(), found.stat.version);
    let deletes: Vec<(String, i32)> = moved.iter().rev().map(delete).collect();
    let deletes = deletes.iter().map(|(path, version)| Write::Delete { path, version: Some(*version) });
    let writes: Vec<Write<'_>> = creates.chain(deletes).collect();
    let znodes = moved.len();
    if let Err(error) = call.client.multi(&writes).await {
        let at = error.reason.parse().ok().and_then(|at: usize| writes.get(at));
        let path = match at {
            Some(Write::Create { path, .. } | Write::Delete { path, .. }) => path,
            _ => from,
        };
        let fault = refused(&Error::from(error.code), path);
        return Err(Fault { sentence: format!("nothing was moved: {}", fault.sentence), ..fault });
    }
    call.screen.show(|| format!("moved {znodes} znodes\n"), || json!({"znodes": znodes}));
    Ok(())
}
