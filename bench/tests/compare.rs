//! `compare` with two echoes, one that runs already and one it starts itself: rounds, tables, plots, raw runs, failures.

mod running_echo;

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use running_echo::Echo;

fn compare(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corral-bench"));
    command.arg("compare").args(flags).output().expect("the generator can be started")
}

/// A port nobody has, most likely also in a moment.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port().to_string()
}

fn lines_of(path: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).expect("the raw runs are kept");
    text.lines().map(|line| serde_json::from_str(line).expect("each is JSON")).collect()
}

#[test]
fn two_echoes_are_compared() {
    let (echo, directory) = (Echo::start(None), tempfile::tempdir().unwrap());
    let out = directory.path().join("report");
    let running = format!("glommio={},pid={}", echo.addr, echo.child.id());
    let started = format!("epoll={} --addr 127.0.0.1:{{port}}", env!("CARGO_BIN_EXE_epoll-echo"));
    let (out_flag, port) = (out.display().to_string(), free_port());
    let quick = ["--rounds", "2", "--seconds", "0.3", "--warm", "0", "--cell-warm", "0.1", "--port", &port];
    let servers = ["--server", &running, "--start", &started, "--against", "epoll", "--out", &out_flag];
    let cells = ["--cells", "get:4x2,get1k:4x2,children:2x1,set:1x1,create:2x2,get:2x2@500"];
    let output = compare(&[&quick[..], &servers, &cells].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, fs::read_to_string(out.join("report.md")).unwrap());
    assert!(text.contains("| glommio |") && text.contains("| epoll |") && text.contains("CPU x epoll"), "{text}");

    let runs = lines_of(&out.join("results.jsonl"));
    assert_eq!(runs.len(), 2 * 2 * 6, "every server, round and cell");
    for run in &runs {
        assert!(run["report"]["operations"].as_u64() > Some(0), "{run}");
        assert!(run["report"]["server_cpu_us_per_op"].as_f64() > Some(0.0), "{run}");
        assert!(run["fdatasync"]["p50_us"].as_f64() > Some(0.0), "{run}");
        assert_eq!(run["server_command"].is_null(), run["server"] == "glommio", "{run}");
    }
    let order = |round: u64| -> Vec<&str> {
        let of_round = runs.iter().filter(|run| run["round"] == round && run["cell"] == "get:4x2");
        of_round.filter_map(|run| run["server"].as_str()).collect()
    };
    assert_eq!((order(1), order(2)), (vec!["glommio", "epoll"], vec!["epoll", "glommio"]));
    for entry in fs::read_dir(out.join("plots")).unwrap() {
        let svg = fs::read_to_string(entry.unwrap().path()).unwrap();
        roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    }
    assert!(out.join("plots/cpu.svg").exists());
    let left: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "no data directory is left behind: {left:?}");

    let again = compare(&["--from", &out_flag, "--out", &out_flag, "--against", "epoll"]);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("| ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&again), rows(&text), "the page can be made again from the raw runs");
}

#[test]
fn a_server_that_fails_is_named_and_the_others_are_measured() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().display().to_string();
    let good = format!("good={} --addr 127.0.0.1:{{port}}", env!("CARGO_BIN_EXE_epoll-echo"));
    // Its values are shorter than the load's.
    let liar = format!("liar={} --addr 127.0.0.1:{{port}} --value-bytes 9", env!("CARGO_BIN_EXE_epoll-echo"));
    let port = free_port();
    let quick = ["--rounds", "1", "--seconds", "0.2", "--warm", "0", "--cell-warm", "0", "--cells", "get:2x2"];
    let servers = ["--start", "gone=false {port}", "--start", &liar, "--start", &good, "--port", &port, "--out", &out];
    let output = compare(&[&quick[..], &servers].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("gone, round 1") && errors.contains("it ended by itself"), "{errors}");
    assert!(errors.contains("liar, round 1") && errors.contains("value length is wrong"), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("| good |") && text.contains("FAILED: liar"), "{text}");
    assert_eq!(lines_of(&directory.path().join("results.jsonl")).len(), 1);
}

#[test]
fn an_interrupted_comparison_ends_what_it_started() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let start = format!("epoll={} --addr 127.0.0.1:{{port}}", env!("CARGO_BIN_EXE_epoll-echo"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_corral-bench"))
        .args(["compare", "--start", &start, "--port", &port, "--warm", "0", "--seconds", "600", "--out"])
        .arg(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the generator can be started");
    let addr = format!("127.0.0.1:{port}");
    let until = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(&addr).is_err() {
        assert!(Instant::now() < until, "the echo is not started");
        thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    let mut errors = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut errors).unwrap();
    assert!(!child.wait().unwrap().success() && errors.contains("interrupted"), "{errors}");
    assert!(TcpStream::connect(&addr).is_err(), "the echo still runs");
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["results.jsonl"]);
}

#[test]
fn a_program_beside_is_found_and_an_absent_server_is_given_up_soon() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_epoll-echo"), directory.path().join("bin/echo")).unwrap();
    let (port, absent) = (free_port(), free_port());
    let absent = format!("gone=127.0.0.1:{absent}");
    let quick = ["--rounds", "1", "--seconds", "0.2", "--warm", "0", "--cell-warm", "0", "--cells", "get:2x2"];
    let servers = ["--start", "near=bin/echo --addr 127.0.0.1:{port}", "--server", &absent, "--port", &port];
    let begun = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_corral-bench"))
        .arg("compare")
        .args([&quick[..], &servers, &["--out", "report"]].concat())
        .current_dir(directory.path())
        .output()
        .expect("the generator can be started");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("| near |"), "{text}\n{errors}");
    assert!(errors.contains("gone, round 1") && errors.contains("within 5 s"), "{errors}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    #[track_caller]
    fn fails(flags: &[&str], part: &str) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().display().to_string();
        let output = compare(&[&["--out", &out], flags].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{flags:?} says {error:?}, not {part:?}");
    }
    let server = ["--server", "a=127.0.0.1:1"];
    fails(&[], "name 1 to 32 servers");
    fails(&["--start", "a=serve"], "no {port}");
    fails(&[&server[..], &server].concat(), "two servers are called a");
    fails(&[&server[..], &["--against", "b"]].concat(), "no server b");
    fails(&[&server[..], &["--rounds", "0"]].concat(), "0 is not in 1..=100");
    fails(&[&server[..], &["--cells", "get:1"]].concat(), "--cells");
    fails(&[&server[..], &["--cells", "mix200:1x1"]].concat(), "200 is not in 0..=100");
    fails(&[&server[..], &["--cells", "get:1x1@NaN"]].concat(), "--rate NaN");
    fails(&[&server[..], &["--seconds", "inf"]].concat(), "--seconds inf");
    fails(&[&server[..], &["--warm-of", "b=1"]].concat(), "no server b");
}
