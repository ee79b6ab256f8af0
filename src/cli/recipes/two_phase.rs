//! `corral 2pc`: a decision that several sites take together, to commit or to abort.
//!
//! The transaction is a znode with its data. Below it are a znode for each site, with its vote, and `decision`. The decision is
//! created once, by the coordinator or by a site, and commits only together with a check of all votes. So a site need not
//! wait for a coordinator that died.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use corral_client::{CreateMode, Error, ErrorCode, Watcher, Write, watcher};
use corral_core::path;

use crate::cli::client::{Connection, failed};
use crate::cli::output::{note, plain, print};
use crate::cli::recipes::child::{Child, OnLost};
use crate::cli::recipes::examples::{COORDINATE, VOTE};
use crate::cli::recipes::session::{self, Session, creation, own_id, seconds};
use crate::cli::signals::Stops;
use crate::exit::{ExitCode, Fault};

const DECISION: &str = "decision";
/// An ephemeral znode of the coordinator.
const COORDINATOR: &str = "coordinator";
const COMMIT: &str = "commit";
const ABORT: &str = "abort";
/// Of a site's znode, without and with its vote.
const OPEN_VERSION: i32 = 0;
const VOTED_VERSION: i32 = 1;
const SITES_MAX: usize = 1000;

/// Sub-commands of `corral 2pc`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Begin a transaction, wait for all votes, and print the decision. The time of --timeout aborts it
    #[command(after_help = COORDINATE)]
    Coordinate(Coordinate),
    /// Vote for a site, wait for the decision, and print it. The time of --timeout aborts it, unless it is decided
    #[command(after_help = VOTE)]
    Vote(Vote),
}

/// Arguments of `corral 2pc coordinate`.
#[derive(Args)]
pub(crate) struct Coordinate {
    #[command(flatten)]
    connection: Connection,
    /// The transaction. If it is there already and not decided, go on with it
    path: String,
    /// Names of the sites that vote, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    sites: Vec<String>,
    /// Data for the sites
    #[arg(long, value_name = "TEXT", default_value = "")]
    data: String,
    /// Abort if votes are missing after that. Also limits the wait for a server
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

/// Arguments of `corral 2pc vote`.
#[derive(Args)]
pub(crate) struct Vote {
    #[command(flatten)]
    connection: Connection,
    /// The transaction. It is waited for
    path: String,
    /// Name of the site that votes
    #[arg(long, value_name = "NAME")]
    site: String,
    /// Vote for the commit
    #[arg(long, conflicts_with_all = ["abort", "command"])]
    commit: bool,
    /// Vote against it
    #[arg(long, conflicts_with = "command")]
    abort: bool,
    /// End with 19 if there is no transaction after that, and abort it if it is not decided
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Gets the transaction's data as standard input. Its end with 0 votes for the commit, another one against it
    #[arg(value_name = "COMMAND", last = true, required_unless_present_any = ["commit", "abort"])]
    command: Vec<OsString>,
}

/// Runs the sub-command.
///
/// # Errors
/// If the servers cannot be asked, or the transaction is another one.
pub(crate) fn run(command: &Command) -> Result<u8, Fault> {
    match command {
        Command::Coordinate(arguments) => {
            let Coordinate { connection, path, timeout, sites, .. } = arguments;
            let is_name = |site: &String| !site.contains('/') && ![DECISION, COORDINATOR].contains(&site.as_str());
            let is_site = |site: &String| is_name(site) && session::check(&path::child(path, site)).is_ok();
            let different: BTreeSet<&String> = sites.iter().collect();
            if sites.len() > SITES_MAX || different.len() < sites.len() || !sites.iter().all(is_site) {
                let sentence = format!(
                    "--sites takes at most {SITES_MAX} different names of znodes, and neither {DECISION} nor {COORDINATOR}"
                );
                return Err(Fault::new(ExitCode::Usage, sentence));
            }
            session::run(connection, *timeout, path, async |session, stops| {
                shown(&session.within(stops, coordinate(session, arguments)).await?)
            })
        }
        Command::Vote(arguments) => {
            session::run(&arguments.connection, arguments.timeout, &arguments.path, async |session, stops| {
                shown(&vote(session, stops, arguments).await?)
            })
        }
    }
}

fn shown(decision: &str) -> Result<u8, Fault> {
    if ![COMMIT, ABORT].contains(&decision) {
        let sentence = format!("the decision is neither {COMMIT} nor {ABORT}, but {:?}", plain(decision));
        return Err(Fault::new(ExitCode::Internal, sentence));
    }
    print(&format!("{decision}\n"))?;
    Ok(if decision == COMMIT { ExitCode::Ok } else { ExitCode::Aborted }.number())
}

async fn coordinate(session: &Session, arguments: &Coordinate) -> Result<String, Fault> {
    let path = arguments.path.as_str();
    begin(session, arguments).await?;
    let voted = async {
        loop {
            let (watcher, mut events) = watcher();
            if let Some(decision) = decision(session, path, &watcher).await? {
                return Ok(decision);
            }
            let mut votes = Vec::new();
            for site in &arguments.sites {
                let site = path::child(path, site);
                let got = session.retry(|client| client.get_data(&site, Some(&watcher))).await;
                votes.push(got.map_err(|error| failed(&site, &error))?.0.unwrap_or_default());
            }
            if votes.iter().any(|vote| vote == ABORT.as_bytes()) {
                return decide(session, path, ABORT, &[]).await;
            }
            if votes.iter().all(|vote| vote == COMMIT.as_bytes()) {
                return decide(session, path, COMMIT, &arguments.sites).await;
            }
            session.wait(path, events.next()).await?;
        }
    };
    or_abort(session, path, voted.await).await
}

/// Creates the transaction, unless it is there.
async fn begin(session: &Session, arguments: &Coordinate) -> Result<(), Fault> {
    let Coordinate { path, sites, data, .. } = arguments;
    let id = own_id();
    let coordinator = path::child(path, COORDINATOR);
    let znodes: Vec<String> = sites.iter().map(|site| path::child(path, site)).collect();
    let create = |path, data, mode| Write::Create { path, creation: creation(data, mode) };
    let mut writes = vec![create(path.as_str(), Some(data.as_bytes()), CreateMode::Persistent)];
    writes.push(create(&coordinator, Some(id.as_bytes()), CreateMode::Ephemeral));
    writes.extend(znodes.iter().map(|znode| create(znode, None, CreateMode::Persistent)));
    let is_done =
        async || Ok(session.retry(|client| client.get_ephemerals(&coordinator)).await?.contains(&coordinator));
    loop {
        match session.once(&writes, is_done).await {
            Ok(()) => return Ok(()),
            Err(Error { code: ErrorCode::NoNode, .. }) => session.make_parent(path).await?,
            Err(Error { code: ErrorCode::NodeExists, .. }) => break,
            Err(error) => return Err(failed(path, &error)),
        }
    }
    let known = self::sites(session, path).await?;
    let mut given = sites.clone();
    given.sort_unstable();
    if known != given {
        let sentence = format!("{path}: there is such a transaction, and its sites are {}", known.join(","));
        return Err(Fault::new(ExitCode::Conflict, sentence));
    }
    let known = session.retry(|client| client.get_data(path, None)).await.map_err(|error| failed(path, &error))?.0;
    if known.unwrap_or_default() != data.as_bytes() {
        return Err(Fault::new(ExitCode::Conflict, format!("{path}: there is such a transaction with other data")));
    }
    note(&format!("{path}: there is such a transaction; going on with it"));
    Ok(())
}

/// The names of a transaction's sites, sorted.
async fn sites(session: &Session, path: &str) -> Result<Vec<String>, Fault> {
    let names = session.retry(|client| client.get_children(path, None)).await;
    let (mut names, _) = names.map_err(|error| failed(path, &error))?;
    names.retain(|name| ![DECISION, COORDINATOR].contains(&name.as_str()));
    names.sort_unstable();
    Ok(names)
}

async fn vote(session: &Session, stops: &mut Stops, arguments: &Vote) -> Result<String, Fault> {
    let Vote { path, site, commit, abort, command, .. } = arguments;
    let znode = path::child(path, site);
    session::check(&znode)?;
    let data = session.within(stops, appeared(session, path, &znode)).await?;
    let known = session.within(stops, async {
        let got = session.retry(|client| client.get_data(&znode, None)).await;
        Ok((
            decision(session, path, &watcher().0).await?,
            got.map_err(|error| failed(&znode, &error))?.0.unwrap_or_default(),
        ))
    });
    let (decided, known) = known.await?;
    if let Some(decision) = decided {
        return Ok(decision);
    }
    let differs = |vote: &str| !known.is_empty() && known != vote.as_bytes();
    if *commit && differs(COMMIT) || *abort && differs(ABORT) {
        return Err(Fault::new(ExitCode::Conflict, format!("{znode}: the site has voted already, and otherwise")));
    }
    let vote = match (std::str::from_utf8(&known), commit, abort) {
        // It voted before it was started again.
        (Ok(COMMIT), ..) => COMMIT,
        (Ok(ABORT), ..) | (_, false, true) => ABORT,
        (_, true, _) => COMMIT,
        _ => {
            let environment = [("CORRAL_PATH", path.as_str()), ("CORRAL_ZNODE", znode.as_str())];
            let mut child = Child::start(command, &environment, Some(data))?;
            let kept = async { session.wait(path, session.gone(&znode)).await.unwrap_or_else(|late| late) };
            match child.run(stops, OnLost::Kill, kept).await {
                Ok(code) if code == ExitCode::Ok.number() => COMMIT,
                Ok(_) => ABORT,
                Err(fault) if fault.code == ExitCode::TimedOut => ABORT,
                Err(fault) => return Err(fault),
            }
        }
    };
    session.within(stops, Box::pin(cast(session, path, &znode, vote))).await
}

/// Waits until the transaction has this site, and gives its data.
async fn appeared(session: &Session, path: &str, znode: &str) -> Result<Vec<u8>, Fault> {
    loop {
        let (watcher, mut events) = watcher();
        let stat = session.retry(|client| client.exists(znode, Some(&watcher))).await;
        let is_there = stat.map_err(|error| failed(znode, &error))?.is_some();
        match session.retry(|client| client.get_data(path, None)).await {
            Ok((data, _)) if is_there => return Ok(data.unwrap_or_default()),
            // The transaction is created together with its sites.
            Ok(_) => {
                if session.stat(znode).await.map_err(|error| failed(znode, &error))?.is_none() {
                    let sites = sites(session, path).await?.join(",");
                    let sentence = format!("{path}: the transaction has no such site; its sites are {sites}");
                    return Err(Fault::new(ExitCode::Conflict, sentence));
                }
                continue;
            }
            Err(Error { code: ErrorCode::NoNode, .. }) => {}
            Err(error) => return Err(failed(path, &error)),
        }
        session.wait(path, events.next()).await?;
    }
}

/// Writes the vote, and waits for the decision.
async fn cast(session: &Session, path: &str, znode: &str, vote: &str) -> Result<String, Fault> {
    let set = session.retry(|client| client.set_data(znode, Some(vote.as_bytes()), Some(OPEN_VERSION))).await;
    match set {
        Ok(_) => {}
        Err(Error { code: ErrorCode::BadVersion, .. }) => {
            let got = session.retry(|client| client.get_data(znode, None)).await;
            if got.map_err(|error| failed(znode, &error))?.0.as_deref() != Some(vote.as_bytes()) {
                return Err(Fault::new(ExitCode::Conflict, format!("{znode}: another process voted for this site")));
            }
        }
        Err(error) => return Err(failed(znode, &error)),
    }
    if vote == ABORT {
        return decide(session, path, ABORT, &[]).await;
    }
    let decided = async {
        loop {
            let (watcher, mut events) = watcher();
            if let Some(decision) = decision(session, path, &watcher).await? {
                return Ok(decision);
            }
            session.wait(path, events.next()).await?;
        }
    };
    let decided = async {
        tokio::select! {
            decided = decided => decided,
            fault = session.gone(znode) => Err(fault),
        }
    };
    or_abort(session, path, decided.await).await
}

/// Aborts if the time of `--timeout` passed.
async fn or_abort(session: &Session, path: &str, result: Result<String, Fault>) -> Result<String, Fault> {
    match result {
        Err(fault) if fault.code == ExitCode::TimedOut => decide(session, path, ABORT, &[]).await,
        result => result,
    }
}

/// Creates the decision, unless there is one. Gives the decision that is there then.
async fn decide(session: &Session, path: &str, decision_to_take: &str, sites: &[String]) -> Result<String, Fault> {
    let znode = path::child(path, DECISION);
    let sites: Vec<String> = sites.iter().map(|site| path::child(path, site)).collect();
    let mut writes: Vec<Write<'_>> =
        sites.iter().map(|path| Write::Check { path, version: Some(VOTED_VERSION) }).collect();
    let creation = creation(Some(decision_to_take.as_bytes()), CreateMode::Persistent);
    writes.push(Write::Create { path: &znode, creation });
    match session.once(&writes, async || Ok(session.stat(&znode).await?.is_some())).await {
        Ok(()) | Err(Error { code: ErrorCode::NodeExists, .. }) => {}
        Err(error) => return Err(failed(&znode, &error)),
    }
    let gone = || Fault::new(ExitCode::NoZnode, format!("{znode}: the decision was deleted"));
    decision(session, path, &watcher().0).await?.ok_or_else(gone)
}

/// The decision, if there is one. Else the watcher is told of it.
async fn decision(session: &Session, path: &str, watcher: &Watcher) -> Result<Option<String>, Fault> {
    let znode = path::child(path, DECISION);
    let found = session.watched(&znode, watcher, |client| client.get_data(&znode, None)).await;
    let found = found.map_err(|error| failed(&znode, &error))?;
    Ok(found.map(|(data, _)| String::from_utf8_lossy(&data.unwrap_or_default()).into_owned()))
}
