//! Locks and leader elections as the standard recipes make them: an ephemeral sequential znode each, and a watch on the
//! one before.
//!
//! The first in line holds. Its number in line proves that it is alone. So does a setData with the expected version,
//! which fails if another contender has been there. A lock is given up by deleting the znode, a leadership by closing
//! the session. One thread plays all contenders.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use corral_wire::consts::{CreateMode, EventType, VERSION_ANY};
use corral_wire::records::{CreateResponse, GetChildren2Response, WatcherEvent};
use corral_wire::{ErrorCode, OpCode, Reader};
use hdrhistogram::Histogram;

use crate::args::{CommonArgs, some_seconds, up_to};
use crate::frames::{create_tail, encoded, encoded_path, set_tail};
use crate::histogram::{Latency, histogram, ratio, us};
use crate::limits::CONTENDERS_MAX;
use crate::report::{Report, fields};
use crate::stage::{Stage, nothing};
use crate::swarm::{Event, Swarm, What, granted_or};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Recipe {
    /// A lock: given up by deleting the znode
    Lock,
    /// A leader election: given up by closing the session; a new session joins
    Election,
}

const HELP: &str = "\
How it works:
  It runs ZooKeeper's standard recipes. Each contender creates an ephemeral sequential znode, lists the queue and watches the
  znode before its own. A holder writes a znode with the expected version: if there were ever two holders, the run fails.

How to read it:
  A hand-over is a delete (or a closeSession), its event and a listing: two writes and two round trips one after the other.
  So acquisitions per second show latency, not throughput. One thread drives all contenders: beyond some thousand of them its
  own work is part of every hand-over, see client CPU.

Examples:
  corral bench recipes                                        a lock with ten contenders
  corral bench recipes -n 50 --pid \"$(pidof corral)\"      a contended lock
  corral bench recipes -n 5 --recipe election --hold-ms 100   leaders that hold for 100 ms";

/// Flags of `recipes`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct RecipeArgs {
    /// Recipe to run
    #[arg(long, value_enum, default_value_t = Recipe::Lock)]
    recipe: Recipe,
    /// Sessions that contend
    #[arg(short = 'n', long, default_value_t = 10, value_parser = up_to(CONTENDERS_MAX))]
    contenders: u32,
    /// Milliseconds that each holder keeps the lock or leadership
    #[arg(long, default_value_t = 0, value_name = "MS")]
    hold_ms: u32,
    /// Seconds to measure
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = some_seconds)]
    duration: Duration,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Join,
    List,
    Watch,
    Prove,
    Release,
}

const LINE: &str = "line";
const PROOF: &str = "proof";

/// One session in line.
#[derive(Clone, Debug, Default)]
struct Contender {
    /// The name of its znode, from the reply to its create.
    name: String,
    /// Whether it is in line and does not hold.
    waits: bool,
    joined_ns: u64,
}

struct Contest<'a> {
    stage: &'a mut Stage,
    swarm: Swarm<Ask>,
    recipe: Recipe,
    hold_ns: u64,
    contenders: Vec<Contender>,
    holder: Option<usize>,
    release_at_ns: u64,
    released_ns: Option<u64>,
    /// The number in line of the last holder.
    last_number: Option<u32>,
    acquisitions: u64,
    hand_over: Histogram<u64>,
    acquire: Histogram<u64>,
}

pub(super) fn run(args: &RecipeArgs) -> Result<()> {
    let mut stage = Stage::set(&args.common, args.contenders * 2)?;
    let names = [stage.path(LINE), stage.path(PROOF)];
    let report = stage.perform(&|| names.to_vec(), &|_| b"", |stage| measure(stage, args), nothing)?;
    report.print(&args.common)
}

fn measure(stage: &mut Stage, args: &RecipeArgs) -> Result<Report> {
    let mut swarm = stage.swarm()?;
    let numbers: Vec<usize> = (0..args.contenders as usize).collect();
    let sessions = stage.open_sessions(&mut swarm, &numbers)?;
    let mut contest = Contest {
        stage,
        swarm,
        recipe: args.recipe,
        hold_ns: u64::from(args.hold_ms) * 1_000_000,
        contenders: vec![Contender::default(); sessions.len()],
        holder: None,
        release_at_ns: 0,
        released_ns: None,
        last_number: None,
        acquisitions: 0,
        hand_over: histogram(),
        acquire: histogram(),
    };
    contest.stage.restart_cpu()?;
    let begin_ns = contest.swarm.now_ns();
    for session in sessions {
        contest.join(session)?;
    }
    let end_ns = begin_ns + u64::try_from(args.duration.as_nanos())?;
    contest.go_on(|contest| contest.swarm.now_ns() >= end_ns)?;
    let acquisitions = contest.acquisitions;
    let seconds = Duration::from_nanos(contest.swarm.now_ns() - begin_ns).as_secs_f64();
    let (server_ns, client_ns) = contest.stage.cpu_ns()?;
    // A hand-over on its way counts with all it takes, so that a server that stalls at the end is charged for it.
    contest.go_on(|contest| contest.holder.is_some() || contest.acquisitions > acquisitions)?;
    // Those still in line are charged what they have waited so far.
    let now_ns = contest.swarm.now_ns();
    let in_line: Vec<u64> = contest.contenders.iter().filter(|of| of.waits).map(|of| of.joined_ns).collect();
    in_line.iter().for_each(|joined_ns| contest.acquire.saturating_record(now_ns.saturating_sub(*joined_ns)));
    // Their znodes leave the line with the sessions. Earlier requests are answered, but nothing follows from the
    // replies.
    contest.swarm.close_all(|_| Ok(()))?;
    let each = |ns| us(ns) / ratio(acquisitions.max(1), 1);
    let recipe = if args.recipe == Recipe::Lock { "lock" } else { "election" };
    let RecipeArgs { contenders, hold_ms, .. } = args;
    Ok(Report {
        scenario: "recipes",
        headline: format!(
            "{recipe}, {contenders} contenders, held for {hold_ms} ms, each acquisition proved exclusive"
        ),
        load: fields! { recipe, contenders, hold_ms },
        figures: fields! {
            seconds,
            acquisitions,
            acquisitions_per_second: ratio(acquisitions, 1) / seconds,
            in_line: in_line.len(),
            hand_over_us: Latency::of(&contest.hand_over),
            acquire_us: Latency::of(&contest.acquire),
            server_cpu_us_per_acquisition: server_ns.map(each),
            client_cpu_us_per_acquisition: each(client_ns),
        },
        remarks: contest.stage.doubts.clone(),
    })
}

impl Contest<'_> {
    /// Goes on until it is over or Ctrl-C is pressed.
    ///
    /// # Errors
    /// A wrong reply, and if no contender becomes the holder for longer than a reply may take.
    fn go_on(&mut self, over: impl Fn(&Self) -> bool) -> Result<()> {
        let reply_timeout = self.swarm.reply_timeout + Duration::from_nanos(self.hold_ns);
        let (mut last_ns, mut last) = (self.swarm.now_ns(), self.acquisitions);
        while !over(self) && !self.stage.stopped() {
            self.turn()?;
            let now_ns = self.swarm.now_ns();
            if self.acquisitions > last {
                (last_ns, last) = (now_ns, self.acquisitions);
            }
            let waited = Duration::from_nanos(now_ns.saturating_sub(last_ns));
            ensure!(waited < reply_timeout, "no contender became the holder for {waited:.1?}");
            self.stage.progress.now_and_then(|| format!("{last} acquisitions"));
        }
        Ok(())
    }

    /// Takes what has come, and lets the holder go when its time is over.
    fn turn(&mut self) -> Result<()> {
        let left_ns = self.release_at_ns.saturating_sub(self.swarm.now_ns());
        let wait_ns = if self.holder.is_some() { left_ns.min(20_000_000) } else { 20_000_000 };
        for event in self.swarm.poll(Duration::from_nanos(wait_ns))? {
            self.take(&event).with_context(|| format!("session {}", event.peer))?;
        }
        if self.holder.is_some() && self.swarm.now_ns() >= self.release_at_ns {
            self.release()?;
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<Ask>) -> Result<()> {
        let session = event.peer;
        match event.what {
            What::Opened => self.join(session),
            // A leader that has gone is followed by a new contender.
            What::Closed => self.swarm.open(self.stage.target.server(session)).map(|_| ()),
            What::Reply(Ask::Join, error) => {
                granted_or("create", error)?;
                let reply = CreateResponse::decode(&mut Reader::new(&event.body))?;
                let path = reply.path.unwrap_or_default();
                let name = path.strip_prefix(&self.stage.path(LINE)).and_then(|rest| rest.strip_prefix('/'));
                name.context("the created znode is elsewhere")?.clone_into(&mut self.contenders[session].name);
                self.list(session)
            }
            What::Reply(Ask::List, error) => {
                granted_or("getChildren2", error)?;
                self.look_at_the_line(event)
            }
            What::Reply(Ask::Watch, error) if error == ErrorCode::NoNode.code() => self.list(session),
            What::Reply(Ask::Watch, error) => granted_or("exists", error),
            What::Reply(Ask::Prove, error) => {
                granted_or("two held at once: the holder's setData with the expected version", error)
            }
            What::Reply(_, error) => {
                granted_or("delete", error)?;
                self.join(session)
            }
            What::Notified(kind) => {
                let record = WatcherEvent::decode(&mut Reader::new(&event.body))?;
                let expected = EventType::NodeDeleted.number();
                ensure!(kind == expected, "an event of type {kind} for {:?}, not {expected}", record.path);
                self.list(session)
            }
        }
    }

    fn join(&mut self, session: usize) -> Result<()> {
        if self.contenders.len() <= session {
            self.contenders.resize(session + 1, Contender::default());
        }
        self.contenders[session] = Contender { name: String::new(), waits: true, joined_ns: self.swarm.now_ns() };
        let path = encoded_path(&self.stage.path(&format!("{LINE}/m-")));
        let tail = encoded(|writer| create_tail(writer, b"", CreateMode::EphemeralSequential.flag()));
        self.swarm.request(session, OpCode::Create, [&path, &tail], Ask::Join)
    }

    fn list(&mut self, session: usize) -> Result<()> {
        let path = encoded_path(&self.stage.path(LINE));
        self.swarm.request(session, OpCode::GetChildren2, [&path, &[0]], Ask::List)
    }

    /// The first in line holds, every other watches the one before it.
    fn look_at_the_line(&mut self, event: &Event<Ask>) -> Result<()> {
        let session = event.peer;
        let own = number(&self.contenders[session].name)?;
        let reply = GetChildren2Response::decode(&mut Reader::new(&event.body))?;
        let (mut before, mut found) = (None::<(u32, &str)>, false);
        for name in reply.children.context("no list of children")? {
            let name = name.context("a child without a name")?;
            let other = number(name)?;
            found |= other == own;
            if other < own && before.is_none_or(|(nearest, _)| other > nearest) {
                before = Some((other, name));
            }
        }
        ensure!(found, "its own znode {} is not in line", self.contenders[session].name);
        let Some((_, name)) = before else { return self.acquired(session, own, event.at_ns) };
        let path = encoded_path(&self.stage.path(&format!("{LINE}/{name}")));
        self.swarm.request(session, OpCode::Exists, [&path, &[1]], Ask::Watch)
    }

    fn acquired(&mut self, session: usize, number: u32, at_ns: u64) -> Result<()> {
        if let Some(other) = self.holder {
            bail!("two hold at once: session {other} has not given up");
        }
        let last = self.last_number.unwrap_or(0);
        ensure!(self.last_number.is_none_or(|last| last < number), "number {number} in line holds after number {last}");
        self.holder = Some(session);
        self.contenders[session].waits = false;
        self.last_number = Some(number);
        let proof = encoded_path(&self.stage.path(PROOF));
        let version = i32::try_from(self.acquisitions).unwrap_or(VERSION_ANY);
        let tail = encoded(|writer| set_tail(writer, b"", version));
        self.swarm.request(session, OpCode::SetData, [&proof, &tail], Ask::Prove)?;
        self.acquisitions += 1;
        self.acquire.saturating_record(at_ns.saturating_sub(self.contenders[session].joined_ns));
        if let Some(released_ns) = self.released_ns {
            self.hand_over.saturating_record(at_ns.saturating_sub(released_ns));
        }
        self.release_at_ns = at_ns + self.hold_ns;
        if self.hold_ns == 0 { self.release() } else { Ok(()) }
    }

    fn release(&mut self) -> Result<()> {
        let session = self.holder.take().context("there is a holder")?;
        self.released_ns = Some(self.swarm.now_ns());
        match self.recipe {
            Recipe::Lock => {
                let name = &self.contenders[session].name;
                let path = encoded_path(&self.stage.path(&format!("{LINE}/{name}")));
                let version = VERSION_ANY.to_be_bytes();
                self.swarm.request(session, OpCode::Delete, [&path, &version], Ask::Release)
            }
            Recipe::Election => self.swarm.close(session),
        }
    }
}

/// The number in line, the ten digits at the end of a sequential znode's name.
fn number(name: &str) -> Result<u32> {
    let digits = name.len().checked_sub(10).and_then(|at| name.get(at..));
    digits.and_then(|digits| digits.parse().ok()).with_context(|| format!("{name:?} has no number in line"))
}
