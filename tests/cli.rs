//! Black-box tests of the command line: the real binary, its output and its exit codes.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs the binary to its end in a directory.
fn corral(dir: &Path, arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_corral");
    let run = Command::new(binary).args(arguments).current_dir(dir).stdin(Stdio::null()).output();
    run.expect("the binary can be run")
}

/// Runs the binary and checks exit code and parts of what it prints on either stream.
#[track_caller]
fn check(dir: &Path, arguments: &[&str], code: i32, parts: &[&str]) -> String {
    let output = corral(dir, arguments);
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {shown}");
    for part in parts {
        assert!(shown.contains(part), "{arguments:?} lacks {part:?}: {shown}");
    }
    shown
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

#[test]
fn help_teaches() {
    let dir = dir();
    let parts = ["corral serve", "zkCli.sh -server", "Exit codes:", "--data-dir", "   3  The configuration is wrong"];
    check(dir.path(), &["--help"], 0, &parts);
    check(dir.path(), &[], 2, &parts);
    check(dir.path(), &["serve", "--help"], 0, &["--config", "--data-dir", "--client-addr", "--shards", "--log-level"]);
    for command in
        ["serve", "check-config", "rescue", "snapshot inspect", "log dump", "protocol", "bench", "bench idle"]
    {
        let words: Vec<&str> = ["help"].into_iter().chain(command.split(' ')).collect();
        check(dir.path(), &words, 0, &["Usage:", "Examples", &format!("corral {command}")]);
    }
    check(dir.path(), &["snapshot"], 2, &["inspect"]);
    check(dir.path(), &["version"], 0, &["corral 0.", "ZooKeeper 3.9"]);
    check(dir.path(), &["--version"], 0, &["corral 0."]);
}

#[test]
fn completions_and_man_pages_have_all_sub_commands() {
    let dir = dir();
    for shell in ["bash", "zsh", "fish"] {
        check(dir.path(), &["completions", shell], 0, &["inspect", "skip-unreadable"]);
    }
    check(dir.path(), &["man"], 0, &[".TH corral 1", "corral\\-export(1)", "EXIT STATUS"]);
    check(dir.path(), &["man", "--out", "new/man1"], 0, &["new/man1: ", " man pages"]);
    let page = fs::read_to_string(dir.path().join("new/man1/corral-export-json.1")).expect("it is written");
    for part in ["corral export jsonl /app", "skip\\-unreadable", "EXIT STATUS", "The command line is not understood"] {
        assert!(page.contains(part), "no {part:?}: {page}");
    }
    check(dir.path(), &["man", "--out", "new/man1/corral.1"], 7, &["new/man1/corral.1: man pages cannot be written"]);
}

/// Before the data directory is opened: a start that has to be repeated changes nothing.
#[test]
fn files_of_an_ensemble_are_checked_first() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = dir();
    let secret = dir.path().join("secret");
    fs::write(&secret, "x".repeat(44)).expect("it is writable");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let servers: String = (1..4).map(|id| format!("server.{id}=127.0.0.1:{}:3888\n", 20_000 + id)).collect();
    let text = format!("dataDir=data\nclientPort=0\nclientPortAddress=127.0.0.1\n{servers}");
    fs::write(dir.path().join("zoo.cfg"), text).expect("it is writable");
    let common = ["--config", "zoo.cfg", "--set", "server.server_id=1", "--set"];
    let tls = ["ensemble.tls_cert=no.pem", "--set", "ensemble.tls_key=no.pem", "--set", "ensemble.tls_ca=no.pem"];
    for command in ["check-config", "serve"] {
        let secret = [&[command], &common[..], &["ensemble.secret_file=secret"]].concat();
        check(dir.path(), &secret, 3, &["ensemble.secret_file: secret: others than its owner may use it (mode 0644)"]);
        check(dir.path(), &[&[command], &common[..], &tls].concat(), 3, &["[ensemble] TLS: no.pem cannot be read"]);
        assert!(!dir.path().join("data").exists(), "{command} opened the data");
    }
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is ours");
    check(
        dir.path(),
        &[&["check-config"], &common[..], &["ensemble.secret_file=secret"]].concat(),
        0,
        &["secret_file"],
    );
}

/// It was a date written into the source.
#[test]
fn the_build_date_is_that_of_the_source() {
    let shown = check(dir().path(), &["version"], 0, &["built on ", " UTC"]);
    if option_env!("SOURCE_DATE_EPOCH").is_some() {
        return;
    }
    let here = env!("CARGO_MANIFEST_DIR");
    let arguments = ["-C", here, "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d %H:%M UTC"];
    let committed = Command::new("git").args(arguments).env("TZ", "UTC").output();
    let date = match committed {
        Ok(output) if output.status.success() && Path::new(here).join(".git").exists() => {
            String::from_utf8(output.stdout).expect("a date")
        }
        _ => String::from("2"),
    };
    assert!(shown.contains(&format!("built on {}", date.trim())), "{shown} for a source of {date}");
}

#[test]
fn usage_errors_have_their_code() {
    let dir = dir();
    check(dir.path(), &["sever"], 2, &["'serve'", "try 'corral --help'"]);
    check(dir.path(), &["help", "export", "jsn"], 2, &["'json'", "try 'corral export --help'"]);
    check(dir.path(), &["export", "json", "--ou", "x"], 2, &["'--out'", "try 'corral export json --help'"]);
    check(dir.path(), &["completions", "bsh"], 2, &["'bash'", "try 'corral completions --help'"]);
    check(dir.path(), &["serve", "--nonsense"], 2, &["--nonsense"]);
    check(dir.path(), &["serve", "--shards", "many"], 2, &["--shards"]);
    check(dir.path(), &["check-config", "--set", "nothing"], 2, &["give KEY=VALUE"]);
}

#[test]
fn check_config_prints_values_sources_and_plan() {
    let dir = dir();
    let parts = ["client_addr = \"127.0.0.1:2181\"", "# default", "# derived: 2 x server.tick_time_ms", "shard-0"];
    check(dir.path(), &["check-config"], 0, &parts);
    fs::write(dir.path().join("zoo.cfg"), "tickTime=2000\ndataDir=/z\nclientPort=2199\ninitLimit=5\n")
        .expect("writable");
    let parts = ["client_addr = \"[::]:2199\"", "# zoo.cfg:3", "# note: zoo.cfg keys without a meaning", "initLimit"];
    check(dir.path(), &["check-config", "--config", "zoo.cfg"], 0, &parts);
    let shown =
        check(dir.path(), &["check-config", "--shards", "4", "--set", "server.tick_time_ms=100"], 0, &["# --shards"]);
    assert!(shown.contains("shard-3"), "{shown}");
    check(dir.path(), &["check-config", "--reference"], 0, &["# Configuration reference", "| `frame_bytes_max` |"]);
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1, "check-config leaves no file behind");
}

#[test]
fn configuration_errors_have_their_code_and_place() {
    let dir = dir();
    fs::write(dir.path().join("c.toml"), "[server]\ntick_tme_ms = 5\n[limits]\nsessions_max = \"x\"\n")
        .expect("writable");
    for command in ["check-config", "serve"] {
        let parts =
            ["corral: c.toml:2: server.tick_tme_ms: the key", "did you mean", "corral: c.toml:4: limits.sessions_max"];
        check(dir.path(), &[command, "--config", "c.toml"], 3, &parts);
        check(dir.path(), &[command, "--config", "missing.toml"], 3, &["missing.toml cannot be read"]);
        check(dir.path(), &[command, "--client-addr", "nowhere"], 3, &["--client-addr: server.client_addr"]);
    }
    for (name, text) in
        [("passwd", "root:x:0:0:root:/root:/bin/bash\nbin:x:2:2::/:/bin/sh\n"), ("a.cfg", "# nothing\n")]
    {
        fs::write(dir.path().join(name), text).expect("writable");
        for command in ["check-config", "serve"] {
            let flags = [command, "--config", name, "--data-dir", "d", "--client-addr", "127.0.0.1:0"];
            check(
                dir.path(),
                &flags,
                3,
                &[&format!("{name}: no line has a key that ZooKeeper"), "it is no configuration"],
            );
        }
    }
    fs::write(dir.path().join("z.cfg"), "tickTime=2000\nourOwn.key=5\n").expect("writable");
    let flags = ["check-config", "--config", "z.cfg", "--data-dir", "d", "--client-addr", "127.0.0.1:0"];
    check(dir.path(), &flags, 0, &["this server knows are ignored: ourOwn.key"]);
    fs::write(dir.path().join("c.toml"), "[[core]]\ncpu = 8000\nrole = \"shard\"\n").expect("writable");
    check(dir.path(), &["serve", "--config", "c.toml"], 3, &["cpu = 8000 is not among the CPUs"]);
}

#[test]
fn an_ensemble_is_checked_and_shown() {
    let dir = dir();
    let servers = "server.1=127.0.0.1:23401:3888\nserver.2=127.0.0.1:23402:3888\nserver.3=127.0.0.1:23403:3888\n";
    fs::write(dir.path().join("zoo.cfg"), format!("dataDir=d\nclientPort=23400\ninitLimit=5\nsyncLimit=2\n{servers}"))
        .expect("writable");
    for command in ["check-config", "serve"] {
        let parts = ["corral: d/myid: cannot be read", "echo 1 > d/myid"];
        check(dir.path(), &[command, "--config", "zoo.cfg"], 3, &parts);
    }
    fs::create_dir(dir.path().join("d")).expect("writable");
    fs::write(dir.path().join("d/myid"), "3\n").expect("writable");
    let parts = ["servers = [\"1=127.0.0.1:23401:3888:participant\", ", "server_id = 3 ", "# d/myid"];
    check(dir.path(), &["check-config", "--config", "zoo.cfg"], 0, &parts);
    let taken = TcpListener::bind("127.0.0.1:23403").expect("the port is free");
    let parts = ["127.0.0.1:23403, where the other servers reach this one, is in use by another program"];
    check(dir.path(), &["serve", "--config", "zoo.cfg"], 9, &parts);
    drop(taken);
}

#[test]
fn a_busy_port_has_its_code() {
    let dir = dir();
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    check(dir.path(), &["serve", "--client-addr", &address], 9, &["is in use by another program", &address]);
}

#[test]
fn directories_that_are_not_ours_have_their_code() {
    let dir = dir();
    fs::create_dir_all(dir.path().join("zk/version-2")).expect("writable");
    check(dir.path(), &["serve", "--data-dir", "zk"], 5, &["holds data of ZooKeeper", "--data-dir"]);
    check(dir.path(), &["log", "dump", "zk"], 5, &["not a corral data directory"]);
    check(dir.path(), &["log", "dump", "nowhere"], 7, &["nowhere"]);
    check(dir.path(), &["snapshot", "inspect", "nowhere"], 7, &["nowhere: is no file"]);
}

/// Starts the server in a directory, tells it to stop as soon as this is true of its process id, and gives its exit
/// code and its log.
fn stopped_when(dir: &Path, begun: impl Fn(u32) -> bool) -> (Option<i32>, String) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_corral"))
        .args(["serve", "--shards", "1", "--client-addr", "127.0.0.1:0", "--data-dir", "data"])
        .current_dir(dir)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be run");
    let limit = Instant::now() + Duration::from_secs(60);
    while !begun(server.id()) {
        assert!(Instant::now() < limit, "the server does not begin within 60 s");
        thread::yield_now();
    }
    let told = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().expect("kill can be run");
    assert!(told.success());
    let mut log = String::new();
    server.stderr.take().expect("it is piped").read_to_string(&mut log).expect("the log is text");
    (server.wait().expect("it is a child of this process").code(), log)
}

/// Whether a process has a handler for SIGTERM.
fn hears_sigterm(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> 14 & 1 == 1)
}

#[test]
fn a_server_that_is_stopped_while_it_starts_ends_in_good_order() {
    let dir = dir();
    let data = dir.path().join("data");
    let begins: [&dyn Fn(u32) -> bool; 3] = [&|_| data.exists(), &hears_sigterm, &hears_sigterm];
    for (start, begun) in begins.into_iter().enumerate() {
        let (code, log) = stopped_when(dir.path(), begun);
        assert_eq!(code, Some(0), "start {start}: {log}");
        assert!(log.contains("stopped"), "start {start}: {log}");
    }
    check(dir.path(), &["log", "dump", "data"], 0, &["payloads that do not check: 0"]);
}

/// Runs the binary below a shell that first lowers a limit.
fn limited(dir: &Path, limit: &str) -> Output {
    let script = format!("ulimit {limit} && exec \"$0\" serve --shards 1 --client-addr 127.0.0.1:0");
    let run = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_corral")]).current_dir(dir).output();
    run.expect("sh can be run")
}

#[test]
fn low_limits_have_their_codes() {
    let dir = dir();
    let check = |limit: &str, code: i32, part: &str| {
        let output = limited(dir.path(), limit);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{shown}");
        assert!(shown.contains(part), "{shown}");
    };
    check("-l 64", 11, "limited to 64 KiB, but io_uring needs at least 512 KiB");
    check("-n 40", 12, "open files (RLIMIT_NOFILE) are limited to 40");
    assert!(!dir.path().join("data").exists(), "a refused start leaves no data directory");
}

mod storage {
    use super::{check, dir};
    use corral_storage::{Log, LogConfig, MmapDisk, SnapshotHead, SnapshotWriter, SyncRecipe, snapshot_name};
    use corral_types::{EntryKind, Index, Record, StoredEntry, Term};
    use std::fs;
    use std::path::Path;

    fn write_log(path: &Path) {
        let disk = MmapDisk::open(path, SyncRecipe::default()).expect("the directory is new");
        let config = LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() };
        let (mut log, _) = Log::open(disk, config, &mut |_| {}).expect("the log is new");
        let entry = StoredEntry {
            term: Term(3),
            index: Index(1),
            kind: EntryKind::Normal,
            first_zxid: 0x5_0000_0001,
            payload: &[7; 100],
        };
        log.append(&[Record::Entry(entry)]).expect("there is space");
        log.sync().expect("the disk syncs");
    }

    #[test]
    fn log_dump_prints_every_record() {
        let dir = dir();
        let path = dir.path().join("data");
        write_log(&path);
        let mut parts = vec![
            "segment 1048576 bytes",
            "Start: ",
            "Entry: term 3, index 1, zxid 0x500000001",
            "segments: 1, records: 2",
        ];
        check(dir.path(), &["log", "dump", "--records", "data"], 0, &parts);
        parts.push("\n    not a batch of the format that this version reads");
        check(dir.path(), &["log", "dump", "data"], 0, &parts);
    }

    #[test]
    fn snapshot_inspect_checks_every_section() {
        let dir = dir();
        let path = dir.path().join("data");
        let disk = MmapDisk::open(&path, SyncRecipe::default()).expect("the directory is new");
        let head = SnapshotHead { zxid: 0x5_0000_0007, term: 5, index: 9, seed: 1 };
        let mut writer = SnapshotWriter::begin(&disk, head, None).expect("there is space");
        writer.section(1, &[1; 1000]).expect("there is space");
        writer.section(2, &[2; 1000]).expect("there is space");
        writer.finish().expect("the disk syncs");
        let file = path.join(snapshot_name(head.zxid, head.index));
        let name = file.to_str().expect("the name is ASCII");
        let parts = ["zxid 0x500000007, term 5, index 9, 2 sections", "section    1 kind   2", "checksum ok"];
        check(dir.path(), &["snapshot", "inspect", "data"], 0, &parts);
        check(dir.path(), &["snapshot", "inspect", name], 0, &parts);
        let mut bytes = fs::read(&file).expect("the file is readable");
        let at = bytes.windows(9).position(|window| window == [2; 9]).expect("section 1 is in the file");
        bytes[at] ^= 1;
        fs::write(&file, bytes).expect("the file is writable");
        check(
            dir.path(),
            &["snapshot", "inspect", "data"],
            6,
            &["section 1 damaged", "DAMAGED: the checksum", "checksum ok"],
        );
    }

    #[test]
    fn an_empty_data_directory_has_no_snapshot() {
        let dir = dir();
        write_log(&dir.path().join("data"));
        let parts = ["data: no snapshot yet", "SIGUSR1", "until then everything is in the log"];
        check(dir.path(), &["snapshot", "inspect", "data"], 0, &parts);
    }
}
