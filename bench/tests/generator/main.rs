//! The generator against a server that lies and against the echo. A load runs and its figures add up. Every kind of
//! wrong reply, silence and absence ends a run with exit code 1 and a sentence that names it.

mod lying;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use lying::{Fault, HONEST, server};

/// A running echo; it ends with the test.
struct Echo {
    child: Child,
    addr: String,
}

impl Echo {
    /// Answers with values of this size.
    fn start(program: &str, value_bytes: &str) -> Self {
        let mut child = Command::new(program)
            .args(["--addr", "127.0.0.1:0", "--value-bytes", value_bytes])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the echo can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let addr = lines.find_map(|line| Some(line.ok()?.split_once("listening on ")?.1.to_owned()));
        thread::spawn(move || lines.count());
        Self { child, addr: addr.expect("the echo says where it listens") }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const EPOLL: &str = env!("CARGO_BIN_EXE_epoll-echo");

fn bench(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corral-bench"));
    command.args(line.split_whitespace()).arg("-q").output().expect("the generator can be started")
}

#[track_caller]
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("--json prints one line of JSON")
}

#[track_caller]
fn succeeds(line: &str) -> serde_json::Value {
    let output = bench(&format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    json(&output)
}

#[track_caller]
fn fails(line: &str, part: &str) {
    let output = bench(line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}: {error}");
    assert!(error.contains(part), "{line} says {error:?}, not {part:?}");
    assert!(output.stdout.is_empty(), "{line}: figures of a failed run are printed");
}

/// The flags of a small load.
const SMALL: &str = "--warmup 0 --keys 20 -n 2 --depth 4";

#[track_caller]
fn caught(fault: Fault, load: &str, part: &str) {
    fails(&format!("{load} {SMALL} --duration 60 -s {}", server(HONEST, fault)), part);
}

#[test]
fn wrong_replies_end_the_run() {
    caught(Fault::WrongXid, "", "the request next in turn has");
    caught(Fault::WrongData, "", "value is wrong");
    caught(Fault::FallingZxid, "", "which this session saw already");
    caught(Fault::WrongError, "", "NONODE (-101)");
    caught(Fault::NoFrame, "", "invalid frame");
    caught(Fault::HangUp, "", "the server closed the connection");
    caught(Fault::Silence, "--reply-timeout 0.3", "no reply for");
    caught(Fault::WrongError, "--op exists --rate 5000", "NONODE (-101)");
    caught(Fault::Throttles, "--op set --tolerate NOAUTH", "THROTTLEDOP (-127)");
}

#[test]
fn scenarios_notice_wrong_replies_and_events() {
    let caught = |fault: Fault, line: &str, part: &str| fails(&format!("{line} -s {}", server(0, fault)), part);
    let watches = "watches -n 5 --rounds 2 --reply-timeout 60";
    succeeds(&format!("{watches} -s {}", server(0, Fault::Nothing)));
    caught(Fault::WrongXid, watches, "the request next in turn has");
    caught(Fault::WrongData, watches, "the value read is not the one written");
    caught(Fault::WrongError, watches, "NONODE (-101)");
    caught(Fault::HangUp, watches, "the server closed the connection");
    caught(Fault::WrongEvent, watches, "event path is wrong");
    caught(Fault::StaleRead, watches, "Stat.version is wrong: expected 1, found 0");
    // The second event comes before or after the round's last first one.
    let output = bench(&format!("{watches} -s {}", server(0, Fault::DoubleEvent)));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("two events for one write") || error.contains("which was not requested"), "{error}");
    caught(Fault::EveryoneHolds, "recipes -n 2 --hold-ms 60000 --duration 60", "two hold at once");
    caught(Fault::EveryoneHolds, "recipes -n 2 --duration 60", "number 1 in line holds after number 1");
    caught(Fault::WrongXid, "idle -n 3 --watches 2 --keys 5 --hold 0.1", "the request next in turn has");
    caught(Fault::WrongError, "flood --polite 2 --duration 60", "NONODE (-101)");
}

#[test]
fn every_operation_runs_closed_and_open() {
    for program in [EPOLL, env!("CARGO_BIN_EXE_glommio-echo")] {
        let echo = Echo::start(program, "1000");
        for op in ["get", "exists", "children", "set", "create", "mix"] {
            for pace in ["", "--rate 100000"] {
                let line = format!("-o {op} --ops 300 --warmup 0 --value-bytes 1000 -n 4 -t 2 {pace}");
                let report = succeeds(&format!("{line} -s {} --pid {}", echo.addr, echo.child.id()));
                // A busy host does not serve all that the open pace offers.
                let offered = ["operations", "backlog"].map(|part| report[part].as_u64().unwrap_or(0));
                assert!(offered[0] > 0 && offered.iter().sum::<u64>() >= 300, "{op}: {report}");
                assert!(report["server_cpu_us_per_op"].as_f64() > Some(0.0), "{op}: {report}");
                assert_eq!((&report["op"], report["offered_rate"].is_null()), (&op.into(), pace.is_empty()));
            }
        }
    }
}

#[test]
fn the_figures_add_up_and_the_keys_stay() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let (csv, plots) = (directory.path().join("run.csv"), directory.path().join("plots"));
    let files = format!("--csv {} --svg {}", csv.display(), plots.display());
    let addr = server(HONEST, Fault::Nothing);
    let report = succeeds(&format!("--duration 1 --interval 0.2 -t 2 {files} {SMALL} -s {addr}"));
    let figure = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} is missing in {report}"));
    assert!((figure("throughput") - figure("operations") / figure("seconds")).abs() < 1.0, "{report}");
    let latency = |name: &str| report["latency_us"][name].as_f64().expect("a number");
    let order = ["p50", "p90", "p99", "p99_9", "max"].map(latency);
    assert!(order[0] > 0.0 && order.is_sorted(), "{report}");
    let rows = report["timeline"].as_array().expect("a list");
    // On a machine that is very busy one interval may take the time of several.
    assert!((1..=5).contains(&rows.len()), "{report}");
    let sum = |name: &str| rows.iter().map(|row| row[name].as_f64().expect("a number")).sum::<f64>();
    assert_eq!(sum("operations"), figure("operations"));
    assert!((sum("seconds") - figure("seconds")).abs() < 1e-6, "{report}");
    let lines = std::fs::read_to_string(&csv).expect("the file was written");
    assert_eq!(lines.lines().count(), rows.len() + 1, "{lines}");
    assert!(lines.starts_with("start_s,seconds,operations,throughput,p50_us,p99_us,p99_9_us,max_us,errors\n"));
    for name in ["throughput.svg", "latency.svg"] {
        let plot = std::fs::read_to_string(plots.join(name)).expect("the plot was written");
        assert!(plot.contains("<svg") && plot.contains("get, 2 connections x 4"), "{name}: {plot}");
    }
    let keys: Vec<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = "backlog by_op client_cpu_us_per_op client_cpus_busy command connections depth errors keys \
                    keys_distribution label latency_us machine mix offered_rate op operations percentiles remarks \
                    scenario seconds server_cpu_us_per_op server_cpus_busy server_resident_kib threads throughput \
                    timeline unix_time value_bytes value_bytes_min";
    assert_eq!(keys.join(" "), expected, "scripts rely on these");
}

#[test]
fn tolerated_errors_are_counted() {
    let report = succeeds(&format!("-o set --ops 2000 {SMALL} -s {}", server(HONEST, Fault::Throttles)));
    let errors = report["errors"]["THROTTLEDOP"].as_u64();
    let rows = report["timeline"].as_array().expect("a list");
    let in_rows: u64 = rows.iter().map(|row| row["errors"].as_u64().expect("a count")).sum();
    assert!(errors > Some(100) && in_rows > 0 && Some(in_rows) <= errors, "{report}");
}

#[test]
fn an_open_loop_charges_a_stall_to_all_requests_that_were_due() {
    let report = succeeds(&format!("--rate 1000 --duration 0.5 {SMALL} -s {}", server(HONEST, Fault::Stalls)));
    // Of 500 requests due within the window eight are in flight when it ends.
    assert!(report["backlog"].as_u64() > Some(400), "{report}");
    let remarks = report["remarks"].as_array().expect("a list");
    let mut texts = remarks.iter().filter_map(serde_json::Value::as_str);
    assert!(texts.any(|text| text.starts_with("overloaded: ")), "{report}");
}

#[test]
fn wrong_values_and_missing_processes_end_the_run() {
    let echo = Echo::start(EPOLL, "99");
    let line = format!("-s {} --warmup 0 --duration 60", echo.addr);
    fails(&line, "value length is wrong: expected 100, found 99");
    fails(&format!("{line} -o children --children 7"), "number of children is wrong: expected 7");
    fails(&format!("{line} --pid 2147483647"), "there is no process 2147483647");
}

#[test]
fn a_server_that_cannot_be_reached_or_speaks_another_protocol_ends_the_run() {
    fails("-s 127.0.0.1:1", "cannot be reached");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        let answer =
            |mut client: std::net::TcpStream| client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").map(|()| client);
        listener.incoming().flatten().map(answer).collect::<Vec<_>>()
    });
    for scenario in ["", "sessions"] {
        fails(&format!("{scenario} -s {addr}"), &format!("{addr} does not speak ZooKeeper's protocol"));
    }
}

#[test]
fn figures_are_not_lost_with_a_file() {
    let (echo, directory) =
        (Echo::start(EPOLL, "100"), tempfile::tempdir().expect("a temporary directory can be made"));
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("it can be written");
    // A server that does not answer: the file is looked at first.
    for flag in ["--csv", "--svg"] {
        fails(&format!("-s 127.0.0.1:1 {flag} {}", file.join("below").display()), flag);
    }
    let output = bench(&format!("-s {} --json --warmup 0 --ops 100 --csv /dev/full", echo.addr));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("--csv /dev/full"), "{error}");
    assert!(json(&output)["operations"].as_u64() >= Some(100), "the figures are printed");
}
