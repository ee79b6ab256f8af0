//! `compare`: the same loads against several servers in turn, in interleaved rounds, and one report page.
//!
//! Every round visits every server once, in an order that rotates; every cell of load is a process of its own (this very
//! program), so that each run's command can be repeated by hand. Medians and spread are over the rounds. The main thread
//! only; it sleeps while a load runs.

mod cell;
mod figures;
mod page;
mod server;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use cell::Cell;
use figures::{Figure, Run, SyncProbe};
use page::Page;
use server::{Place, Server, Spec};

use crate::args::{flags, pinnable, seconds, up_to};

/// Appends whose fdatasync is timed before each round.
const SYNC_PROBES: usize = 400;
/// Servers and cells of one comparison; more would take days.
const SERVERS_MAX: usize = 32;
const CELLS_MAX: usize = 200;
const ROUNDS_MAX: u32 = 100;
/// Points of a throughput curve, unless they came too close together.
const INTERVALS: f64 = 20.0;
const INTERVAL_SECONDS_MIN: f64 = 0.1;
/// How often a running load is asked whether it has ended.
const POLL_EVERY: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  corral bench compare --server a=127.0.0.1:2181,pid=$(pidof corral) --server b=127.0.0.1:2182,pid=4711 --out report
  corral bench compare --out report --cells get:64x16,set:64x16 --server-cpu 0 --cpu 1 \\
    --start 'old=/tmp/corral-old serve --data-dir {data_dir} --client-addr 127.0.0.1:{port}' \\
    --start 'new=target/release/corral serve --data-dir {data_dir} --client-addr 127.0.0.1:{port}'
  corral bench compare --from report --out report   make the page again from the raw runs

A command runs in a directory of its own, which goes with it; a program given as target/release/corral is found from
where you are, other relative paths are not.

Cells are OP[N][:CONNECTIONSxDEPTH][@RATE]: get:64x16, get1k:64x16 (1 KiB values), mix90:64x16 (90 % reads),
children1000:8x1, set:1x1, get:64x16@50000 (open loop). N is the number of children for children, the per cent of reads
for mix, else the bytes of the values; without them 100 children, 90 %, 100 B, 64x16.";

/// The flags of a comparison.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct CompareArgs {
    /// A server that runs already; its process id gives CPU per operation
    #[arg(short, long, value_name = "NAME=HOST:PORT[,pid=N]")]
    server: Vec<String>,
    /// A server to start freshly for every round, with {port}, {data_dir} (does not exist yet) and {cpu} filled in
    #[arg(long, value_name = "NAME=COMMAND")]
    start: Vec<String>,
    /// Cells of load
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "get:64x1,get:64x16,set:64x16,create:64x16",
        value_name = "CELL"
    )]
    cells: Vec<String>,
    /// Interleaved rounds
    #[arg(long, default_value_t = 3, value_parser = up_to(ROUNDS_MAX))]
    rounds: u32,
    /// Seconds each cell is measured
    #[arg(long, visible_alias = "duration", default_value_t = 5.0, value_name = "SECONDS")]
    seconds: f64,
    /// Seconds of load (getData) before a server's first cell of a round; a JVM needs ten
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    warm: f64,
    /// The same for one server
    #[arg(long, value_name = "NAME=SECONDS")]
    warm_of: Vec<String>,
    /// Seconds of each cell's own load before it is measured
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    cell_warm: f64,
    /// Print CPU time as multiples of this server's too
    #[arg(long, value_name = "NAME")]
    against: Vec<String>,
    /// CPUs of the client, a thread on each
    #[arg(long, value_delimiter = ',', value_name = "CPU,...")]
    cpu: Vec<usize>,
    /// CPUs of the servers that are started
    #[arg(long, value_delimiter = ',', value_name = "CPU,...")]
    server_cpu: Vec<usize>,
    /// Servers are started on the first free port of the hundred from this one on
    #[arg(long, default_value_t = 24_010, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Where data directories go; its disk is the one measured [default: the report's directory]
    #[arg(long, value_name = "DIRECTORY")]
    work_dir: Option<PathBuf>,
    /// Where report.md, plots/ and results.jsonl go; new runs are appended to a results.jsonl that is there
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// The page's title
    #[arg(long, default_value = "Comparison", value_name = "TEXT")]
    title: String,
    /// Any text, carried into every run's report, such as a commit
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Run nothing: make the page from the results.jsonl of this directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["server", "start"])]
    from: Option<PathBuf>,
}

/// Runs the comparison and prints the tables.
///
/// # Errors
/// Flags that make no sense, files that cannot be written, and after the last round every cell that failed.
pub fn compare(args: &CompareArgs) -> Result<()> {
    if let Some(from) = &args.from {
        return remake(args, from);
    }
    let mut comparison = Comparison::of(args)?;
    let ran = comparison.run();
    // What was measured before an interruption or a fault is worth a page too.
    if !comparison.runs.is_empty() {
        let text = comparison.page().write(&args.out)?;
        std::io::stdout().lock().write_all(text.as_bytes()).context("the report cannot be printed")?;
    }
    ran?;
    let failed = comparison.failures.len();
    ensure!(failed == 0, "{failed} cells failed: {}", comparison.failures.join("; "));
    Ok(())
}

fn remake(args: &CompareArgs, from: &Path) -> Result<()> {
    let path = from.join("results.jsonl");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let read = |(at, line): (usize, &str)| {
        serde_json::from_str::<Run>(line).with_context(|| format!("{}:{}", path.display(), at + 1))
    };
    let runs: Vec<Run> = text.lines().enumerate().map(read).collect::<Result<_>>()?;
    let (mut servers, mut names) = (Vec::new(), Vec::new());
    for run in &runs {
        if !servers.contains(&run.server) {
            servers.push(run.server.clone());
        }
        if !names.contains(&run.cell) {
            names.push(run.cell.clone());
        }
    }
    let unknown = args.against.iter().find(|name| !servers.contains(name));
    flags(unknown.map_or(Ok(()), |name| Err(no_server("--against", name))))?;
    let cells: Vec<Cell> = names.iter().map(|name| Cell::of(name)).collect::<Result<_>>()?;
    let (title, against, command) = (&args.title, &args.against, &shown_command());
    let page = Page { title, command, servers: &servers, cells: &cells, against, runs: &runs, failures: &[] };
    let text = page.write(&args.out)?;
    std::io::stdout().lock().write_all(text.as_bytes()).context("the report cannot be printed")
}

/// What the flags of a comparison name, each checked.
struct Wanted {
    specs: Vec<Spec>,
    warm_of: Vec<(String, f64)>,
    servers: Vec<String>,
    cells: Vec<Cell>,
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    specs: Vec<Spec>,
    warm_of: Vec<(String, f64)>,
    servers: Vec<String>,
    cells: Vec<Cell>,
    command: String,
    /// This program and the words before its flags, to start a load with.
    program: (PathBuf, Vec<OsString>),
    work: PathBuf,
    results: File,
    interrupted: Arc<AtomicBool>,
    runs: Vec<Run>,
    failures: Vec<String>,
}

impl Wanted {
    fn of(args: &CompareArgs) -> Result<Self> {
        let running = args.server.iter().map(|text| Spec::running(text));
        let specs: Vec<Spec> =
            running.chain(args.start.iter().map(|text| Spec::started(text))).collect::<Result<_>>()?;
        let servers: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        ensure!((1..=SERVERS_MAX).contains(&specs.len()), "name 1 to {SERVERS_MAX} servers with --server or --start");
        for (at, name) in servers.iter().enumerate() {
            ensure!(!servers[..at].contains(name), "two servers are called {name}");
        }
        let known = |flag: &str, name: &String| {
            if servers.contains(name) { Ok(()) } else { Err(no_server(flag, name)) }
        };
        args.against.iter().try_for_each(|name| known("--against", name))?;
        let warm_of: Vec<(String, f64)> = args.warm_of.iter().map(|text| named_seconds(text)).collect::<Result<_>>()?;
        warm_of.iter().try_for_each(|(name, _)| known("--warm-of", name))?;
        let cells: Vec<Cell> = args.cells.iter().map(|text| Cell::of(text)).collect::<Result<_>>()?;
        ensure!((1..=CELLS_MAX).contains(&cells.len()), "--cells: give 1 to {CELLS_MAX}");
        for cell in &cells {
            cell.check().with_context(|| format!("--cells: {}", cell.name))?;
        }
        for (flag, value) in [("--warm", args.warm), ("--cell-warm", args.cell_warm)] {
            seconds(flag, value, 0.0)?;
        }
        warm_of.iter().try_for_each(|(_, value)| seconds("--warm-of", *value, 0.0).map(|_| ()))?;
        seconds("--seconds", args.seconds, 0.001)?;
        pinnable("--cpu", &args.cpu)?;
        pinnable("--server-cpu", &args.server_cpu)?;
        Ok(Self { specs, warm_of, servers, cells })
    }
}

impl<'a> Comparison<'a> {
    fn of(args: &'a CompareArgs) -> Result<Self> {
        let Wanted { specs, warm_of, servers, cells } = flags(Wanted::of(args))?;
        fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
        let work = args.work_dir.as_ref().unwrap_or(&args.out);
        let work = work.join(format!("compare-{}", std::process::id()));
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let work = fs::canonicalize(&work).with_context(|| work.display().to_string())?;
        let path = args.out.join("results.jsonl");
        let results = OpenOptions::new().create(true).append(true).open(&path);
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("taking signals over")?;
        }
        Ok(Self {
            args,
            specs,
            warm_of,
            servers,
            cells,
            command: shown_command(),
            program: program()?,
            work,
            results: results.with_context(|| path.display().to_string())?,
            interrupted,
            runs: Vec::new(),
            failures: Vec::new(),
        })
    }

    fn page(&self) -> Page<'_> {
        let Self { args, servers, cells, command, runs, failures, .. } = self;
        Page { title: &args.title, command, servers, cells, against: &args.against, runs, failures }
    }

    fn run(&mut self) -> Result<()> {
        for round in 1..=self.args.rounds {
            let sync = sync_probe(&self.work).context("timing fdatasync")?;
            let load = load_average();
            let count = self.specs.len();
            for step in 0..count {
                let at = (step + round as usize - 1) % count;
                self.say(&format!("round {round} of {}: {}", self.args.rounds, self.specs[at].name));
                self.one_server(at, round, sync, load)?;
                ensure!(!self.stopped(), "interrupted; every server that was started has been ended");
            }
        }
        Ok(())
    }

    /// Runs every cell against one server. A cell that fails is noted, and ends this server's round.
    fn one_server(&mut self, at: usize, round: u32, sync: SyncProbe, load: Option<f64>) -> Result<()> {
        let spec = self.specs[at].clone();
        let directory = self.work.join(format!("{round}-{at}"));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let port = server::free_port(self.args.port)?;
        let place = Place { directory: &directory, port, cpus: &self.args.server_cpu };
        let interrupted = Arc::clone(&self.interrupted);
        match Server::ready(&spec, &place, &|| interrupted.load(Ordering::Relaxed)) {
            Ok(server) => {
                if let Err(error) = self.cells_of(&spec, &server, round, sync, load) {
                    self.fail(&spec, round, &format!("{error:#}{}", server.log_tail()));
                }
                if server.stop() {
                    self.say(&format!("note: {} did not end on SIGTERM and was killed", spec.name));
                }
            }
            Err(error) => self.fail(&spec, round, &format!("{error:#}")),
        }
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())
    }

    fn cells_of(&mut self, spec: &Spec, server: &Server, round: u32, sync: SyncProbe, load: Option<f64>) -> Result<()> {
        let own = self.warm_of.iter().find(|(name, _)| *name == spec.name).map(|(_, seconds)| *seconds);
        let warm = own.unwrap_or(self.args.warm);
        if warm > 0.0 {
            self.load(server, &Cell::of("get").expect("get is a cell"), 0.0, warm).context("warming up")?;
        }
        for cell in self.cells.clone() {
            if self.stopped() {
                return Ok(());
            }
            let text =
                self.load(server, &cell, self.args.cell_warm, self.args.seconds).with_context(|| cell.name.clone())?;
            let report =
                serde_json::from_str(&text).with_context(|| format!("{}: the report is no JSON", cell.name))?;
            let started = server.command.is_some();
            let run = Run {
                server: spec.name.clone(),
                cell: cell.name.clone(),
                round,
                server_command: server.command.clone().map(|command| self.without_directories(&command)),
                server_cpus: if started { self.args.server_cpu.clone() } else { Vec::new() },
                load_average: load,
                fdatasync: Some(sync),
                report,
            };
            let line = serde_json::to_string(&run).expect("a run is strings, numbers and what was JSON");
            writeln!(self.results, "{line}").context("results.jsonl")?;
            self.say(&told(&run));
            self.runs.push(run);
        }
        Ok(())
    }

    /// Runs the load generator and gives its one line of JSON.
    fn load(&self, server: &Server, cell: &Cell, warm: f64, seconds: f64) -> Result<String> {
        let (program, words) = &self.program;
        let mut command = Command::new(program);
        command.args(words).args(["--server", &server.address]).args(cell.flags());
        let interval = (seconds / INTERVALS).max(INTERVAL_SECONDS_MIN).to_string();
        command.args(["--warmup", &warm.to_string(), "--duration", &seconds.to_string()]);
        command.args(["--interval", &interval, "--json", "--quiet"]);
        let list = |cpus: &[usize]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        if !self.args.cpu.is_empty() {
            let threads = self.args.cpu.len().min(cell.connections as usize);
            command.args(["--cpu", &list(&self.args.cpu), "--threads", &threads.to_string()]);
        }
        if let Some(label) = &self.args.label {
            command.args(["--label", label]);
        }
        if let Some(pid) = server.pid {
            command.args(["--pid", &pid.to_string()]);
        }
        if server.command.is_some() {
            // The znodes go with the data directory.
            command.arg("--keep");
        }
        let Output { status, stdout, stderr } = self.output(command)?;
        let errors = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "{}", errors.trim().trim_start_matches("corral-bench: "));
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// Runs a command to its end; ends it early when this program is interrupted.
    fn output(&self, mut command: Command) -> Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().context("the load generator cannot be started")?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("process ids are small")?);
        let waiting = thread::spawn(move || child.wait_with_output());
        let mut told = false;
        while !waiting.is_finished() {
            if self.stopped() && !told {
                told = true;
                // It may have ended in this moment.
                let _ = kill(pid, Signal::SIGTERM);
            }
            thread::sleep(POLL_EVERY);
        }
        let Ok(output) = waiting.join() else { bail!("a thread of this program panicked") };
        output.context("waiting for the load generator")
    }

    fn stopped(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn fail(&mut self, spec: &Spec, round: u32, what: &str) {
        let failure = self.without_directories(&format!("{}, round {round}: {what}", spec.name));
        self.say(&format!("FAILED {failure}"));
        self.failures.push(failure);
    }

    /// Directories of this machine are nobody's business in a published report.
    fn without_directories(&self, text: &str) -> String {
        let text = text.replace(&self.work.display().to_string(), "WORK");
        let home = std::env::current_dir().map(|place| place.display().to_string()).unwrap_or_default();
        if home.len() > 1 { text.replace(&format!("{home}/"), "") } else { text }
    }

    fn say(&self, text: &str) {
        // Progress that cannot be printed is no reason to end a run.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

impl Drop for Comparison<'_> {
    fn drop(&mut self) {
        // What is left there is only in the way; a directory that cannot be removed harms nobody.
        let _ = fs::remove_dir_all(&self.work);
    }
}

fn no_server(flag: &str, name: &str) -> Error {
    anyhow!("{flag}: there is no server {name}")
}

fn named_seconds(text: &str) -> Result<(String, f64)> {
    let read = text.split_once('=').and_then(|(name, seconds)| Some((name.to_owned(), seconds.parse().ok()?)));
    read.with_context(|| format!("--warm-of {text:?} is not NAME=SECONDS"))
}

/// One line of progress.
fn told(run: &Run) -> String {
    let figure =
        |figure: Figure| figure.of(run).map_or_else(|| "-".to_owned(), |value| format!("{value:.0$}", figure.digits()));
    let remarks = run.report["remarks"].as_array().map_or(0, Vec::len);
    let remarks = if remarks > 0 { format!("  {remarks} remarks") } else { String::new() };
    let (cpu, throughput, p99) = (figure(Figure::Cpu), figure(Figure::Throughput), figure(Figure::P99));
    format!("  {:<18} {cpu:>9} us/op {throughput:>10} ops/s   p99 {p99} us{remarks}", run.cell)
}

/// This program, and the words that lead to the load generator in it: `bench` for `corral bench compare`.
fn program() -> Result<(PathBuf, Vec<OsString>)> {
    let path = std::env::current_exe().context("the path of this program")?;
    let words = std::env::args_os().skip(1).take_while(|word| word != "compare").collect();
    Ok((path, words))
}

/// The command line, the program without its directory.
fn shown_command() -> String {
    let quoted = |word: String| if word.contains([' ', '{']) { format!("'{word}'") } else { word };
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(program).chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// Times fdatasync after appends of 512 bytes in a directory: what a durable write costs in this minute.
fn sync_probe(directory: &Path) -> Result<SyncProbe> {
    let path = directory.join("fdatasync");
    let mut file = File::create(&path)?;
    let mut taken = Vec::with_capacity(SYNC_PROBES);
    for _ in 0..SYNC_PROBES {
        file.write_all(&[b'x'; 512])?;
        let begun = Instant::now();
        file.sync_data()?;
        taken.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    fs::remove_file(&path)?;
    taken.sort_by(f64::total_cmp);
    Ok(SyncProbe { p50_us: taken[SYNC_PROBES / 2], p99_us: taken[SYNC_PROBES * 99 / 100] })
}

/// The one-minute load average.
fn load_average() -> Option<f64> {
    let mut text = String::new();
    File::open("/proc/loadavg").ok()?.read_to_string(&mut text).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_by_name() {
        assert_eq!(named_seconds("ZooKeeper NIO=8.5").unwrap(), ("ZooKeeper NIO".to_owned(), 8.5));
        for text in ["", "a", "a=", "a=x"] {
            assert!(named_seconds(text).is_err(), "{text:?} is taken");
        }
    }

    #[test]
    fn a_disk_takes_some_time() {
        let directory = tempfile::tempdir().unwrap();
        let probe = sync_probe(directory.path()).unwrap();
        assert!(probe.p50_us > 0.0 && probe.p50_us <= probe.p99_us, "{probe:?}");
        assert!(fs::read_dir(directory.path()).unwrap().next().is_none(), "nothing is left behind");
    }
}
