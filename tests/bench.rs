//! Black-box tests of `corral bench`: every scenario in a small size against the real server, all replies checked.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it ends with the test.
struct Server {
    child: Child,
    addr: String,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        Self::with_places(2000)
    }

    /// A server that takes so many connections from one address, at a port that the system gives it.
    fn with_places(places: u32) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let log = dir.path().join("stderr");
        let mut child = Command::new(env!("CARGO_BIN_EXE_corral"))
            .args(["serve", "--shards", "1", "--client-addr", "127.0.0.1:0", "--set"])
            .arg(format!("limits.connections_per_ip_max={places}"))
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .stderr(File::create(&log).expect("the directory takes a file"))
            .stdout(Stdio::null())
            .spawn()
            .expect("the server can be started");
        let limit = Instant::now() + Duration::from_secs(30);
        let addr = loop {
            let said = std::fs::read_to_string(&log).expect("the log is a file of this test");
            if let Some(addr) = serving_address(&said) {
                break addr.to_owned();
            }
            let ended = child.try_wait().expect("it can be asked for");
            assert!(ended.is_none() && Instant::now() < limit, "the server does not serve ({ended:?}): {said}");
            std::thread::sleep(Duration::from_millis(1));
        };
        Self { child, addr, _dir: dir }
    }

    /// Runs `corral bench`; gives its report.
    #[track_caller]
    fn bench(&self, flags: &str) -> Report {
        let pid = self.child.id().to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_corral"))
            .arg("bench")
            .args(flags.split_whitespace())
            .args(["-s", &self.addr, "--pid", &pid, "--json", "-q"])
            .output()
            .expect("the binary can be run");
        assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
        Report(String::from_utf8(output.stdout).expect("JSON is UTF-8"))
    }

    /// What is left below the root.
    fn is_clean(&self) {
        // A load whose znode exists already is refused: the same chroot twice shows that the first has removed its own.
        self.bench("--chroot /clean --ops 10 --warmup 0 --keys 5");
        self.bench("--chroot /clean --ops 10 --warmup 0 --keys 5");
    }
}

/// The address that a server said that it serves, once the line is whole.
fn serving_address(log: &str) -> Option<&str> {
    log.split_once("serving address=")?.1.split_once(' ').map(|(addr, _)| addr)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line of JSON, looked into without a parser: the server's tests know none.
struct Report(String);

impl Report {
    /// The number of a key that occurs once, or the first of several.
    #[track_caller]
    fn number(&self, key: &str) -> f64 {
        let found = self.0.split_once(&format!("\"{key}\":"));
        let (_, rest) = found.unwrap_or_else(|| panic!("{key} is missing in {}", self.0));
        let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
        rest[..end].parse().unwrap_or_else(|_| panic!("{key} is no number in {}", self.0))
    }

    #[track_caller]
    fn has(&self, part: &str) {
        assert!(self.0.contains(part), "{part} is missing in {}", self.0);
    }
}

#[test]
fn a_mix_of_everything() {
    let server = Server::start();
    let mix = "get=6,set=3,create=3,delete=2,exists=1,children=1,multi=1";
    let report = server
        .bench(&format!("--mix {mix} --ops 3000 --warmup 0 -n 8 -t 2 --keys-distribution zipf --value-bytes 0..300"));
    assert!(report.number("operations") >= 3000.0);
    assert!(report.number("server_cpu_us_per_op") > 0.01);
    for part in ["\"children\":{", "\"multi\":{", "\"delete\":{", "\"scenario\":\"load\"", "zipf 0.99", "\"errors\":{}"]
    {
        report.has(part);
    }
    let deletes = server.bench("load -o delete --keys 200 --ops 600 --warmup 0 -n 4");
    deletes.has("nothing was left to delete");
    server.is_clean();
}

#[test]
fn watches_fan_out() {
    let server = Server::start();
    for flags in ["watches -n 50 --rounds 3", "watches -n 50 --rounds 3 --persistent"] {
        let report = server.bench(flags);
        assert_eq!(report.number("events"), 150.0);
        assert!(report.number("server_cpu_us_per_event") > 0.0);
        assert!(report.number("events_per_second") > 0.0);
    }
    server.is_clean();
}

#[test]
fn sessions_open_and_close() {
    let server = Server::start();
    let report = server.bench("sessions --duration 3 --warmup 0 --concurrency 8");
    assert!(report.number("sessions") > 0.0);
    report.has("\"close_us\":{");
    let held = server.bench("sessions --no-close -n 100");
    assert_eq!(held.number("sessions"), 100.0);
    held.has("\"close_us\":null");
    let paced = server.bench("sessions --rate 100 --duration 1 --warmup 0.2");
    paced.has("\"offered_rate\":100.0");
}

#[test]
fn idle_sessions_have_their_memory_told() {
    let server = Server::start();
    let report = server.bench("idle -n 300 --watches 40 --keys 50 --hold 0.3 --settle 0.2");
    // So few may fit into memory the server has already: only that there are figures can be said.
    for figure in ["rss_bytes_per_session", "anonymous_bytes_per_session", "rss_bytes_per_watch"] {
        assert!(report.number(figure).is_finite(), "{figure}");
    }
    assert!(report.number("rss_kib") > 1000.0);
    report.has("\"memory_with_watches\":{");
    assert!(report.number("server_cpu_percent") >= 0.0);
    server.is_clean();
}

#[test]
fn recipes_are_exclusive() {
    let server = Server::start();
    for flags in ["recipes -n 5 --duration 0.5", "recipes -n 5 --duration 0.5 --recipe election"] {
        let report = server.bench(flags);
        assert!(report.number("acquisitions") > 0.0, "{}", report.0);
    }
    let held = server.bench("recipes -n 3 --hold-ms 20 --duration 0.5");
    held.has("\"hold_ms\":20,");
    server.is_clean();
}

#[test]
fn a_flood_leaves_the_polite_ones_their_figures() {
    let server = Server::start();
    for threads in ["", " --threads 2", " --threads 2 --op set"] {
        a_flood(&server, threads);
    }
    server.is_clean();
}

#[track_caller]
fn a_flood(server: &Server, flags: &str) {
    let flood = "flood --polite 10 --polite-rate 50 --flood-depth 200 --duration 1 --warmup 0.2";
    let report = server.bench(&format!("{flood}{flags}"));
    let (_, polite) = report.0.split_once("\"polite\":{").expect("the polite ones");
    let polite = Report(polite.to_owned());
    assert!(polite.number("operations") > 0.0, "{}", polite.0);
    let (_, flood) = report.0.split_once("\"flood\":{").expect("the flood");
    assert!(Report(flood.to_owned()).number("operations") > 0.0, "{flood}");
}

/// SIGINT in the middle of a run: the znodes are removed, and the exit code is 1.
#[test]
fn an_interrupted_run_removes_its_znodes() {
    let server = Server::start();
    for line in ["--duration 600 -n 60", "idle -n 60 --watches 2 --keys 5 --hold 600"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corral"));
        command.arg("bench").args(line.split_whitespace()).args(["-s", &server.addr, "-q", "--chroot", "/mine"]);
        let child = command.stderr(Stdio::piped()).spawn().expect("the binary can be run");
        let until = Instant::now() + Duration::from_secs(60);
        while std::fs::read_dir(format!("/proc/{}/fd", child.id())).map_or(0, Iterator::count) < 60 {
            assert!(Instant::now() < until, "the sessions are not opened");
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("process ids are small"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
        let output = child.wait_with_output().expect("it is a child");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("interrupted") && !error.contains("left behind"), "{error}");
        server.bench("--chroot /mine --ops 10 --warmup 0 --keys 5");
    }
}

#[test]
fn help_speaks_of_the_sub_command() {
    let help = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_corral")).args(words).output().expect("the binary can be run");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    let text = help(&["bench", "--help"]);
    assert!(text.contains("Usage: corral bench") && text.contains("corral bench --depth 1"), "{text}");
    assert!(!text.contains("corral-bench "), "{text}");
    for scenario in ["load", "watches", "sessions", "idle", "recipes", "flood"] {
        assert!(text.contains(scenario), "{scenario} is missing in {text}");
        help(&["bench", scenario, "--help"]);
    }
}

/// Runs `corral bench` on an address; gives its exit code and what it says.
fn fails(addr: &str, flags: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = flags.split_whitespace().collect();
    let (code, _, errors) = says(&[&words[..], &["-q", "-s", addr]].concat());
    (code, errors)
}

/// Runs `corral bench`; gives its exit code, what it prints and what it says.
fn says(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corral"));
    let output = command.arg("bench").args(words).output().expect("the binary can be run");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_was_prepared_goes_when_the_server_has_too_few_places() {
    let server = Server::with_places(6);
    let short = ["-n 7 -o delete --keys 30", "flood --polite 5 --flooders 2", "watches -n 300", "recipes -n 9"];
    for flags in short.into_iter().chain(["idle -n 20 --watches 3 --keys 7 --settle 0"]) {
        let (code, error) = fails(&server.addr, &format!("{flags} --chroot /full"));
        assert_eq!(code, Some(1), "{flags}: {error}");
        assert!(error.contains("has it a limit on connections"), "{flags}: {error}");
        assert!(!error.contains("left behind"), "{flags}: {error}");
        server.bench("--chroot /full --ops 10 --warmup 0 --keys 5 -n 1");
    }
    let (_, error) = fails(&server.addr, "-n 7 --chroot /kept --keep");
    assert!(error.contains("left behind: /kept"), "{error}");
    // The server may not have seen yet that the sessions of the run before are closed.
    let until = Instant::now() + Duration::from_secs(60);
    let error = loop {
        let (_, error) = fails(&server.addr, "-n 1 --chroot /kept");
        if !error.contains("has it a limit on connections") || Instant::now() > until {
            break error;
        }
    };
    assert!(error.contains("NODEEXISTS"), "{error}");
}

#[test]
fn a_process_that_is_not_the_server_is_doubted() {
    let server = Server::start();
    let (own, all) = (std::process::id(), server.child.id());
    let load = ["-s", &server.addr, "-q", "--ops", "10", "--warmup", "0", "--keys", "5"];
    let storm = ["sessions", "-s", &server.addr, "-q", "--duration", "0.1", "--warmup", "0"];
    let watches = ["watches", "-s", &server.addr, "-q", "-n", "2", "--rounds", "1"];
    for words in [&load[..], &storm, &watches] {
        let (code, table, errors) = says(&[words, &["--pid", &own.to_string()]].concat());
        let doubt = format!("process {own} (");
        assert_eq!(code, Some(0), "{errors}");
        assert!(errors.contains(&doubt) && errors.contains("is --pid the server's?"), "{errors}");
        assert!(table.contains(&doubt) && table.contains("server cpu us per"), "{table}");
        let (code, _, errors) = says(&[words, &["--pid", &all.to_string()]].concat());
        assert_eq!((code, errors.as_str()), (Some(0), ""));
    }
}

#[test]
fn process_ids_are_taken_as_pidof_prints_them() {
    let (one, other) = (Server::start(), Server::start());
    let (first, second) = (one.child.id(), other.child.id());
    let load = ["-s", &one.addr, "-q", "-n", "2", "--ops", "10", "--warmup", "0"];
    for pids in [format!("{first} {second}\n"), format!("{first},{second}"), format!("{first}, {second}")] {
        let (code, _, errors) = says(&[&load[..], &["--pid", &pids]].concat());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{pids:?}");
    }
    for (pids, part) in
        [("", "does the server run?"), ("12 x", "\"x\" is not a process id"), ("-1", "\"-1\" is not a process id")]
    {
        let (code, _, errors) = says(&[&load[..], &["--pid", pids]].concat());
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains("--pid") && errors.contains(part), "{errors}");
    }
}

#[test]
fn wrong_flags_have_their_exit_code_and_nothing_is_sent() {
    let check = |flags: &str, part: &str| {
        let (code, error) = fails("127.0.0.1:1", flags);
        assert_eq!(code, Some(2), "{flags}: {error}");
        assert!(error.contains(part), "{flags}: {error}");
    };
    check("-n 0", "1..=50000");
    check("--keys 99999999999", "1..=10000000");
    check("--mix foo=1", "no operation");
    check("--rate nan", "'nan' for '--rate");
    check("--rate -5", "'-5' for '--rate");
    check("--duration -1", "'-1' for '--duration");
    check("-s foo", "--server foo");
    check("--chroot foo", "--chroot");
    check("-o get --read-percent 50", "no effect without --op mix");
    check("--zipf-theta 0.5", "no effect without --keys-distribution zipf");
    check("-n 2 -t 3", "--threads 3");
    check("--value-bytes 5..4", "the smallest is above");
    check("-n 50000 --depth 65536", "bytes in flight");
    check("-o multi --multi-ops 1000 --value-bytes 2000", "--multi-ops x --value-bytes");
    check("--interval 0.001", "--interval 0.001 is below 0.01");
    check("--duration 604800 --interval 0.1", "--duration / --interval");
    check("--tolerate NOSUCH", "'NOSUCH' for '--tolerate");
    for scenario in ["", "watches ", "idle ", "recipes ", "sessions ", "flood "] {
        check(&format!("{scenario}--cpu 1023"), "--cpu 1023");
        check(&format!("{scenario}--cpu 1000000"), "--cpu 1000000: no such CPU");
    }
    check("sessions --duration 0", "'0' for '--duration");
    check("idle --watches 5 --keys 4", "--watches 5");
    check("flood --polite-rate 0", "'0' for '--polite-rate");
    let (code, error) = fails("127.0.0.1:1", "--ops 1");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("cannot be reached") && !error.contains("limit"), "{error}");
}

#[test]
fn silence_is_not_taken_for_a_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = silent.local_addr().expect("it is bound").to_string();
    for scenario in ["", "sessions", "watches -n 2"] {
        let (code, error) = fails(&addr, &format!("{scenario} --reply-timeout 0.3"));
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains(&format!("does it speak ZooKeeper's protocol at {addr}?")), "{error}");
        assert!(!error.contains("limit") && !error.contains("left behind"), "{error}");
    }
}
