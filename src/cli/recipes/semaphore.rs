//! `corral semaphore`: runs a command while one of a number of leases is held.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use corral_client::{CreateMode, Error, ErrorCode, Write, watcher};
use corral_core::path;

use crate::cli::client::{Connection, failed};
use crate::cli::recipes::child::{HeldZnode, Holding, hold};
use crate::cli::recipes::contenders::{Contender, Role};
use crate::cli::recipes::session::{self, Session, creation, deleted, late_as, unique};
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral semaphore`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The semaphore
    path: String,
    /// Leases that are held at once at most. All users of the semaphore give the same number
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    leases: u32,
    /// The znodes to use
    #[arg(long, value_enum, default_value_t = Layout::Curator)]
    layout: Layout,
    #[command(flatten)]
    holding: Holding,
    /// The command to run
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

/// Names and data of the znodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// Those of Curator's InterProcessSemaphoreV2
    Curator,
    /// Those of kazoo's Semaphore
    Kazoo,
}

/// Runs the command, and gives its exit code.
///
/// # Errors
/// If no lease can be had, or it is lost while the command runs.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let Arguments { connection, path, holding, command, .. } = arguments;
    session::run(connection, holding.limit.timeout, path, async |session, stops| {
        let late = late_as(format!("{path}: no lease is free, or others wait for one"));
        let place = session.within(stops, lease(session, arguments, &holding.id())).await.map_err(late)?;
        let code = hold(session, stops, path, &place, holding.on_lost, command).await?;
        // If that fails, the session's end removes the lease.
        let _ = session.within(stops, async { Ok(session.delete(&place.znode).await) }).await;
        Ok(code)
    })
}

/// Takes a lease. Only the holder of a lock waits for one.
async fn lease(session: &Session, arguments: &Arguments, id: &str) -> Result<HeldZnode, Fault> {
    let Arguments { path, leases: count, layout, .. } = arguments;
    let hex = format!("{:032x}", unique()?);
    let (lock, leases, name) = match layout {
        Layout::Curator => (path::child(path, "locks"), path::child(path, "leases"), format!("_c_{hex}-lease-")),
        Layout::Kazoo => (format!("{path}-__lock__"), path.clone(), hex.clone()),
    };
    match layout {
        Layout::Curator => session.make(&leases).await?,
        Layout::Kazoo => agree(session, path, *count).await?,
    }
    let contender = Contender::enter(session, &lock, Role::Exclusive, id).await?;
    let lock_held = contender.turn().await?;
    loop {
        let (watcher, mut events) = watcher();
        let names = match session.retry(|client| client.get_children(&leases, Some(&watcher))).await {
            Ok((names, _)) => names,
            Err(Error { code: ErrorCode::NoNode, .. }) => {
                session.make(&leases).await?;
                continue;
            }
            Err(error) => return Err(failed(&leases, &error)),
        };
        if names.len() >= usize::try_from(*count).unwrap_or(usize::MAX) {
            session.wait(path, events.next()).await?;
            continue;
        }
        let mode = if *layout == Layout::Curator { CreateMode::EphemeralSequential } else { CreateMode::Ephemeral };
        let create =
            Write::Create { path: &path::child(&leases, &name), creation: creation(Some(id.as_bytes()), mode) };
        // Without the lock another one may have counted the leases, too.
        let checks = lock_held.znodes().map(|path| Write::Check { path, version: None });
        let writes: Vec<Write<'_>> = checks.chain([create]).collect();
        match session.once(&writes, async || Ok(own(session, &leases, &hex).await?.is_some())).await {
            Ok(()) => break,
            Err(Error { code: ErrorCode::NoNode, .. }) => drop(contender.turn().await?),
            Err(error) => return Err(failed(&leases, &error)),
        }
    }
    contender.leave().await.map_err(|error| failed(&lock, &error))?;
    let own = own(session, &leases, &hex).await.map_err(|error| failed(&leases, &error))?;
    HeldZnode::of(session, own.ok_or_else(|| deleted(&leases))?).await
}

/// The own lease, if it is there.
async fn own(session: &Session, leases: &str, hex: &str) -> Result<Option<String>, Error> {
    let names = session.children(leases).await?;
    Ok(names.iter().find(|name| name.contains(hex)).map(|name| path::child(leases, name)))
}

/// Compares the number of leases with the semaphore's data, or writes it there, as kazoo does.
async fn agree(session: &Session, path: &str, count: u32) -> Result<(), Fault> {
    let fault = |error: Error| failed(path, &error);
    let text = count.to_string();
    let creation = creation(Some(text.as_bytes()), CreateMode::Persistent);
    session.make_parent(path).await?;
    match session.retry(|client| client.create(path, &creation)).await {
        Ok(_) => return Ok(()),
        Err(Error { code: ErrorCode::NodeExists, .. }) => {}
        Err(error) => return Err(fault(error)),
    }
    let (data, _) = session.retry(|client| client.get_data(path, None)).await.map_err(fault)?;
    let known: Option<u32> = data.and_then(|data| String::from_utf8(data).ok()).and_then(|text| text.parse().ok());
    match known {
        Some(known) if known != count => Err(Fault::new(
            ExitCode::Conflict,
            format!("{path}: the semaphore has {known} leases; give --leases {known}, or set the data of {path}"),
        )),
        _ => Ok(()),
    }
}
