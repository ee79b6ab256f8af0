//! `corral queue`: items that are taken once, in the layout of kazoo's LockingQueue.
//!
//! An item is a znode below `entries`. A taker marks it by an ephemeral znode of the same name below `taken`, and removes both
//! when the item is dealt with.

use std::cell::Cell;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use corral_client::{CreateMode, Error, ErrorCode, Write, watcher};
use corral_core::path;
use tokio::time::timeout;

use crate::cli::client::{Connection, failed};
use crate::cli::output::{is_closed, print};
use crate::cli::recipes::child::{Child, HeldZnode, Holding};
use crate::cli::recipes::contenders::{Contender, Role};
use crate::cli::recipes::examples::{QUEUE_LEN, QUEUE_PEEK, QUEUE_PUT, QUEUE_TAKE};
use crate::cli::recipes::item::{read_all, read_line, show};
use crate::cli::recipes::session::{self, Session, creation, late_as, unique};
use crate::exit::{ExitCode, Fault};

/// Items of one transaction at most.
const BATCH_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Lines do not wait longer for others.
const IDLE: Duration = Duration::from_millis(50);

/// Sub-commands of `corral queue`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Add an item, or many
    #[command(after_help = QUEUE_PUT)]
    Put(Put),
    /// Wait for the first item, give it to a command or print it, and remove it when that is done
    #[command(after_help = QUEUE_TAKE)]
    Take(Take),
    /// Print the first item, and leave it there
    #[command(after_help = QUEUE_PEEK)]
    Peek(Queue),
    /// Print the number of items, with the taken items that are not removed yet
    #[command(after_help = QUEUE_LEN)]
    Len(Queue),
}

/// A queue.
#[derive(Args)]
pub(crate) struct Queue {
    #[command(flatten)]
    connection: Connection,
    /// The queue
    path: String,
}

/// Arguments of `corral queue put`.
#[derive(Args)]
pub(crate) struct Put {
    #[command(flatten)]
    queue: Queue,
    /// The item. Without it standard input is read, and the end of its last line belongs to the item
    data: Option<String>,
    /// Items with a lower number are taken first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=999))]
    priority: u16,
    /// Each line of standard input is an item
    #[arg(long, conflicts_with = "data")]
    lines: bool,
}

/// Arguments of `corral queue take`.
#[derive(Args)]
pub(crate) struct Take {
    #[command(flatten)]
    queue: Queue,
    #[command(flatten)]
    holding: Holding,
    /// Gets the item as standard input. If it ends with 0 the item is removed, else others can take it
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// Runs the sub-command.
///
/// # Errors
/// If the servers cannot be asked, an item is too large, or the session is lost while an item is taken.
pub(crate) fn run(command: &Command) -> Result<u8, Fault> {
    let done = match command {
        Command::Take(arguments) => return take(arguments),
        Command::Put(arguments) => put(arguments),
        Command::Peek(Queue { connection, path }) => session::run(connection, None, path, async |session, stops| {
            session.within(stops, peek(session, path)).await
        }),
        Command::Len(Queue { connection, path }) => session::run(connection, None, path, async |session, stops| {
            let count =
                session.within(stops, async { Ok(names(session, &Paths::of(path).entries).await?.len()) }).await?;
            print(&format!("{count}\n"))
        }),
    };
    done.map(|()| ExitCode::Ok.number())
}

struct Paths {
    entries: String,
    taken: String,
    /// Takers that wait, so that a new item wakes one of them.
    waiting: String,
    /// An ephemeral znode for each transaction of a `put`.
    puts: String,
}

impl Paths {
    fn of(queue: &str) -> Paths {
        let [entries, taken, waiting, puts] =
            ["entries", "taken", "waiting", "puts"].map(|name| path::child(queue, name));
        Paths { entries, taken, waiting, puts }
    }
}

async fn names(session: &Session, path: &str) -> Result<Vec<String>, Fault> {
    session.children(path).await.map_err(|error| failed(path, &error))
}

async fn peek(session: &Session, path: &str) -> Result<(), Fault> {
    let entries = Paths::of(path).entries;
    for name in names(session, &entries).await? {
        let entry = path::child(&entries, &name);
        match session.retry(|client| client.get_data(&entry, None)).await {
            Ok((data, _)) => return show(data.unwrap_or_default()).await,
            Err(Error { code: ErrorCode::NoNode, .. }) => {}
            Err(error) => return Err(failed(&entry, &error)),
        }
    }
    Err(Fault::new(ExitCode::NoZnode, format!("{path}: the queue is empty")))
}

fn put(arguments: &Put) -> Result<(), Fault> {
    let Put { queue: Queue { connection, path }, data, priority, lines } = arguments;
    session::run(connection, None, path, async |session, stops| {
        let count = Cell::new(0);
        let put = async {
            let mut batches = Batches { session, paths: Paths::of(path), priority: *priority, count: &count };
            if let Some(data) = data {
                return batches.put(&[data.clone().into_bytes()]).await;
            }
            if !lines {
                return batches.put(&[read_all().await?]).await;
            }
            let (mut batch, mut next): (Vec<Vec<u8>>, _) = (Vec::new(), Box::pin(read_line()));
            loop {
                let line = match timeout(if batch.is_empty() { Duration::MAX } else { IDLE }, &mut next).await {
                    Ok(line) => line?,
                    Err(_) => {
                        batches.put(&batch).await?;
                        batch.clear();
                        continue;
                    }
                };
                next = Box::pin(read_line());
                let is_last = line.is_none();
                let line = line.unwrap_or_default();
                let bytes: usize = batch.iter().map(Vec::len).sum();
                if is_last || batch.len() == BATCH_MAX || bytes + line.len() > BATCH_BYTES_MAX {
                    batches.put(&batch).await?;
                    batch.clear();
                }
                if is_last {
                    return Ok(());
                }
                batch.push(line);
            }
        };
        let told =
            |fault: Fault| Fault { sentence: format!("{}; items added: {}", fault.sentence, count.get()), ..fault };
        session.within(stops, put).await.map_err(told)
    })
}

struct Batches<'a> {
    session: &'a Session,
    paths: Paths,
    priority: u16,
    count: &'a Cell<usize>,
}

impl Batches<'_> {
    /// Adds items in one transaction. Its ephemeral znode tells whether it was done, should the answer be lost.
    async fn put(&mut self, items: &[Vec<u8>]) -> Result<(), Fault> {
        if items.is_empty() {
            return Ok(());
        }
        let Paths { entries, puts, .. } = &self.paths;
        let entry = path::child(entries, &format!("entry-{:03}-", self.priority));
        let mark = path::child(puts, &format!("{:032x}", unique()?));
        let mut writes: Vec<Write<'_>> = Vec::new();
        for item in items {
            let creation = creation(Some(item), CreateMode::PersistentSequential);
            writes.push(Write::Create { path: &entry, creation });
        }
        writes.push(Write::Create { path: &mark, creation: creation(None, CreateMode::Ephemeral) });
        loop {
            match self.session.once(&writes, async || Ok(self.session.stat(&mark).await?.is_some())).await {
                Ok(()) => break,
                Err(Error { code: ErrorCode::NoNode, .. }) => {
                    self.session.make_as(entries, CreateMode::Persistent).await?;
                    self.session.make(puts).await?;
                }
                Err(error) => return Err(failed(entries, &error)),
            }
        }
        self.count.set(self.count.get() + items.len());
        Ok(())
    }
}

fn take(arguments: &Take) -> Result<u8, Fault> {
    let Take { queue: Queue { connection, path }, holding, command } = arguments;
    if command.is_empty() && is_closed() {
        let sentence = format!("{path}: standard output is closed, so an item would be lost; give a command or a file");
        return Err(Fault::new(ExitCode::Internal, sentence));
    }
    session::run(connection, holding.limit.timeout, path, async |session, stops| {
        let paths = Paths::of(path);
        let late = late_as(format!("{path}: no item came"));
        let taken = session.within(stops, wait(session, &paths, &holding.id())).await.map_err(late)?;
        if command.is_empty() {
            session.within(stops, show(taken.data)).await?;
        } else {
            let token = taken.place.token.to_string();
            let mut child = Child::start(command, &taken.place.environment(path, &token), Some(taken.data))?;
            let kept = session.gone(&taken.mark);
            let code = child.run(stops, holding.on_lost, kept).await?;
            if code != ExitCode::Ok.number() {
                // If that fails, the session's end frees the item.
                let _ = session.within(stops, async { Ok(session.delete(&taken.mark).await) }).await;
                return Ok(code);
            }
        }
        let both = [&taken.place.znode, &taken.mark].map(|path| Write::Delete { path, version: None });
        let is_done = async || Ok(session.stat(&taken.place.znode).await?.is_none());
        let removed = session.within(stops, async { Ok(session.once(&both, is_done).await) }).await?;
        removed.map_err(|error| failed(&taken.place.znode, &error))?;
        Ok(ExitCode::Ok.number())
    })
}

/// An item that this process has.
struct Taken {
    place: HeldZnode,
    mark: String,
    data: Vec<u8>,
}

/// Takes the first item that is free. Only the first of the waiting takers looks at the queue.
async fn wait(session: &Session, paths: &Paths, id: &str) -> Result<Taken, Fault> {
    for path in [&paths.entries, &paths.taken] {
        // kazoo does not expect them to vanish.
        session.make_as(path, CreateMode::Persistent).await?;
    }
    if let Some(taken) = try_take(session, paths, id).await? {
        return Ok(taken);
    }
    let contender = Contender::enter(session, &paths.waiting, Role::Exclusive, id).await?;
    contender.turn().await?;
    let taken = loop {
        let (watcher, mut events) = watcher();
        for path in [&paths.entries, &paths.taken] {
            let set = session.retry(|client| client.get_children(path, Some(&watcher))).await;
            set.map_err(|error| failed(path, &error))?;
        }
        if let Some(taken) = try_take(session, paths, id).await? {
            break taken;
        }
        session.wait(&paths.entries, events.next()).await?;
    };
    contender.leave().await.map_err(|error| failed(&paths.waiting, &error))?;
    Ok(taken)
}

async fn try_take(session: &Session, paths: &Paths, id: &str) -> Result<Option<Taken>, Fault> {
    let taken = names(session, &paths.taken).await?;
    for name in names(session, &paths.entries).await?.iter().filter(|name| taken.binary_search(name).is_err()) {
        let (entry, mark) = (path::child(&paths.entries, name), path::child(&paths.taken, name));
        let own = format!("{id} {:032x}", unique()?);
        let create = Write::Create { path: &mark, creation: creation(Some(own.as_bytes()), CreateMode::Ephemeral) };
        let is_done = async || {
            let data = session.retry(|client| client.get_data(&mark, None)).await;
            Ok(data.is_ok_and(|(data, _)| data.as_deref() == Some(own.as_bytes())))
        };
        match session.once(&[create], is_done).await {
            Ok(()) => {}
            Err(Error { code: ErrorCode::NodeExists | ErrorCode::NoNode, .. }) => continue,
            Err(error) => return Err(failed(&mark, &error)),
        }
        match session.retry(|client| client.get_data(&entry, None)).await {
            Ok((data, _)) => {
                let place = HeldZnode { znode: entry, ..HeldZnode::of(session, mark.clone()).await? };
                return Ok(Some(Taken { place, mark, data: data.unwrap_or_default() }));
            }
            // Its taker has removed it since.
            Err(Error { code: ErrorCode::NoNode, .. }) => {
                drop(session.delete(&mark).await);
            }
            Err(error) => return Err(failed(&entry, &error)),
        }
    }
    Ok(None)
}
