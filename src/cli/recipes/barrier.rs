//! `corral barrier`: processes that begin and end a piece of work together, or wait until a znode is gone.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use corral_client::{CreateMode, Error, ErrorCode, Write, watcher};
use corral_core::path;

use crate::cli::client::{Connection, failed};
use crate::cli::recipes::child::{HeldZnode, Holding, hold};
use crate::cli::recipes::examples::{BARRIER_ENTER, BARRIER_LEAVE, BARRIER_WAIT};
use crate::cli::recipes::session::{self, Limit, Session, creation, unique};
use crate::exit::{ExitCode, Fault};

/// Is there while members are in the barrier. The first member of the next round removes it if all members have died.
const READY: &str = "ready";

/// Sub-commands of `corral barrier`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Wait until enough members are in, run the command, and wait until all members have left
    #[command(after_help = BARRIER_ENTER)]
    Enter(Enter),
    /// Wait until no member is in the barrier
    #[command(after_help = BARRIER_LEAVE)]
    Leave(Waiting),
    /// Put a barrier up, which `wait` waits for: it is the znode itself
    #[command(after_help = BARRIER_WAIT)]
    Set(Single),
    /// Remove such a barrier
    #[command(after_help = BARRIER_WAIT)]
    Remove(Single),
    /// Wait until the barrier is removed
    #[command(after_help = BARRIER_WAIT)]
    Wait(Waiting),
}

/// Arguments of `corral barrier enter`.
#[derive(Args)]
pub(crate) struct Enter {
    #[command(flatten)]
    single: Single,
    /// Members that begin together
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    members: u32,
    #[command(flatten)]
    holding: Holding,
    /// The command to run when enough members are in
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// A barrier.
#[derive(Args)]
pub(crate) struct Single {
    #[command(flatten)]
    connection: Connection,
    /// The barrier
    path: String,
}

/// A barrier, and a limit for the wait.
#[derive(Args)]
pub(crate) struct Waiting {
    #[command(flatten)]
    single: Single,
    #[command(flatten)]
    limit: Limit,
}

/// Runs the sub-command.
///
/// # Errors
/// If the servers cannot be asked, or the session is lost while the command runs.
pub(crate) fn run(command: &Command) -> Result<u8, Fault> {
    let done = match command {
        Command::Enter(arguments) => return enter(arguments),
        Command::Leave(Waiting { single, limit }) => in_session(single, limit.timeout, empty),
        Command::Set(single) => in_session(single, None, async |session, path| {
            session.make_parent(path).await?;
            set(session, path).await
        }),
        Command::Remove(single) => in_session(single, None, delete),
        Command::Wait(Waiting { single, limit }) => in_session(single, limit.timeout, async |session, path| {
            while session.stat(path).await.map_err(|error| failed(path, &error))?.is_some() {
                session.change_of(path).await?;
            }
            Ok(())
        }),
    };
    done.map(|()| ExitCode::Ok.number())
}

fn in_session(
    Single { connection, path }: &Single,
    limit: Option<Duration>,
    work: impl AsyncFnOnce(&Session, &str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    session::run(connection, limit, path, async |session, stops| session.within(stops, work(session, path)).await)
}

fn enter(arguments: &Enter) -> Result<u8, Fault> {
    let Enter { single: Single { connection, path }, members, holding, command } = arguments;
    session::run(connection, holding.limit.timeout, path, async |session, stops| {
        let count = usize::try_from(*members).unwrap_or(usize::MAX);
        let member = session.within(stops, Member::enter(session, path, count, &holding.id())).await?;
        session.lift_limit();
        let mut code = ExitCode::Ok.number();
        if !command.is_empty() {
            code = hold(session, stops, path, &member.place, holding.on_lost, command).await?;
        }
        session.within(stops, member.leave(session, path)).await?;
        Ok(code)
    })
}

/// This process in the barrier.
struct Member {
    place: HeldZnode,
    /// Names of all members that this one leaves together with.
    all: Vec<String>,
}

impl Member {
    /// Waits until enough members are in. The last one creates `ready`, which the others wait for.
    async fn enter(session: &Session, path: &str, count: usize, id: &str) -> Result<Member, Fault> {
        clear(session, path).await?;
        let own = path::child(path, &format!("{:032x}", unique()?));
        let fault = |error: Error| failed(&own, &error);
        let create = Write::Create { path: &own, creation: creation(Some(id.as_bytes()), CreateMode::Ephemeral) };
        loop {
            match session.once(&[create], async || Ok(session.stat(&own).await?.is_some())).await {
                Ok(()) => break,
                Err(Error { code: ErrorCode::NoNode, .. }) => session.make(path).await?,
                Err(error) => return Err(fault(error)),
            }
        }
        let ready = path::child(path, READY);
        let (watcher, mut events) = watcher();
        let is_ready = session.retry(|client| client.exists(&ready, Some(&watcher))).await.map_err(fault)?.is_some();
        if !is_ready {
            if members(session, path).await?.len() >= count {
                set(session, &ready).await?;
            } else {
                tokio::select! {
                    waited = session.wait(path, events.next()) => drop(waited?),
                    fault = session.gone(&own) => return Err(fault),
                }
            }
        }
        let all = members(session, path).await?;
        Ok(Member { place: HeldZnode::of(session, own).await?, all })
    }

    /// Leaves, and waits until all members have left. The first by name leaves last, and `ready` with it.
    async fn leave(&self, session: &Session, path: &str) -> Result<(), Fault> {
        let own = self.place.znode.as_str();
        loop {
            let mut others = members(session, path).await?;
            let is_in = others.iter().any(|name| own.ends_with(name));
            others.retain(|name| self.all.contains(name) && !own.ends_with(name));
            let (Some(first), Some(last)) = (others.first(), others.last()) else {
                if is_in {
                    leave_last(session, path, own).await?;
                }
                return clear(session, path).await;
            };
            let first = path::child(path, first);
            if is_in && own < first.as_str() {
                session.change_of(&path::child(path, last)).await?;
                continue;
            }
            if is_in {
                delete(session, own).await?;
            }
            session.change_of(&first).await?;
        }
    }
}

/// Deletes the last member's znode together with `ready`. Alone it would let the next members pass.
async fn leave_last(session: &Session, path: &str, own: &str) -> Result<(), Fault> {
    let ready = path::child(path, READY);
    let both = [own, ready.as_str()].map(|path| Write::Delete { path, version: None });
    match session.once(&both, async || Ok(session.stat(own).await?.is_none())).await {
        // kazoo removes `ready` before.
        Err(Error { code: ErrorCode::NoNode, .. }) => delete(session, own).await,
        result => result.map_err(|error| failed(own, &error)),
    }
}

/// Removes `ready` if no member is in.
async fn clear(session: &Session, path: &str) -> Result<(), Fault> {
    if members(session, path).await?.is_empty() {
        delete(session, &path::child(path, READY)).await?;
    }
    Ok(())
}

async fn delete(session: &Session, path: &str) -> Result<(), Fault> {
    session.delete(path).await.map_err(|error| failed(path, &error))
}

/// Creates a znode without data, unless it is there.
async fn set(session: &Session, path: &str) -> Result<(), Fault> {
    match session.retry(|client| client.create(path, &creation(None, CreateMode::Persistent))).await {
        Ok(_) | Err(Error { code: ErrorCode::NodeExists, .. }) => Ok(()),
        Err(error) => Err(failed(path, &error)),
    }
}

/// The names of all members, sorted.
async fn members(session: &Session, path: &str) -> Result<Vec<String>, Fault> {
    let mut names = session.children(path).await.map_err(|error| failed(path, &error))?;
    names.retain(|name| name != READY);
    Ok(names)
}

/// Waits until no member is in.
async fn empty(session: &Session, path: &str) -> Result<(), Fault> {
    while let Some(first) = members(session, path).await?.first() {
        session.change_of(&path::child(path, first)).await?;
    }
    Ok(())
}
