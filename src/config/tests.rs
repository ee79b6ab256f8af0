//! Tests of the whole way from files and flags to a checked configuration.

use super::cores::CorePlan;
use super::file::{FILE_BYTES_MAX, FileError};
use super::*;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A directory with files in it, removed at the end.
fn dir(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    for (name, text) in files {
        fs::write(dir.path().join(name), text).expect("the directory is writable");
    }
    dir
}

/// Loads the only file of a name in a directory of its own.
fn load_file(name: &str, text: &str, overrides: &[Override]) -> Result<Loaded, String> {
    let dir = dir(&[(name, text)]);
    let path = dir.path().join(name);
    let prefix = format!("{}/", dir.path().display());
    load(Some(&path), overrides).map_err(|fault| {
        assert_eq!(fault.code, ExitCode::Config);
        fault.sentence.replace(&prefix, "")
    })
}

/// The effective value of a key as TOML, and its source.
#[track_caller]
fn shown(loaded: &Loaded, path: &str) -> (String, Source) {
    let key = keys::key(path).expect("the key is in the table");
    ((key.show)(&loaded.config), loaded.sources.get(path).cloned().unwrap_or(Source::Default))
}

#[track_caller]
fn check_bad(name: &str, text: &str, expect: &[&str]) {
    let sentence = load_file(name, text, &[]).expect_err(text);
    let lines: Vec<&str> = sentence.lines().collect();
    assert_eq!(lines.len(), expect.len(), "{sentence}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect), "{line:?} does not begin with {expect:?}");
        assert!(line.contains("; "), "{line:?} does not say what to do");
    }
}

const ZOO_MIN: &str = "dataDir=/z\nclientPort=2182\n";

/// The least `zoo.cfg` and more lines, which begin at line 3.
fn zoo(lines: &str) -> String {
    format!("{ZOO_MIN}{lines}\n")
}

#[track_caller]
fn check_zoo(lines: &str, path: &str, expect: (&str, Source)) {
    let loaded = load_file("zoo.cfg", &zoo(lines), &[]).expect(lines);
    assert_eq!(shown(&loaded, path), (expect.0.to_owned(), expect.1), "{lines}");
}

#[track_caller]
fn check_zoo_bad(lines: &str, expect: &[&str]) {
    check_bad("zoo.cfg", &zoo(lines), expect);
}

#[track_caller]
fn check_zoo_warning(lines: &str, expect: &[&str]) {
    let loaded = load_file("zoo.cfg", &zoo(lines), &[]).expect(lines);
    assert_eq!(loaded.warnings.len(), expect.len(), "{:?}", loaded.warnings);
    for (warning, expect) in loaded.warnings.iter().zip(expect) {
        assert!(warning.ends_with(expect), "{warning:?} does not end with {expect:?}");
    }
}

#[test]
fn without_a_file_the_defaults_hold() {
    let loaded = load(None, &[]).expect("the defaults are good");
    assert_eq!(shown(&loaded, "server.client_addr"), ("\"127.0.0.1:2181\"".to_owned(), Source::Default));
    assert_eq!(shown(&loaded, "server.data_dir"), ("\"./data\"".to_owned(), Source::Default));
    assert_eq!(shown(&loaded, "server.log_dir"), ("\"./data\"".to_owned(), Source::Derived("server.data_dir")));
    assert_eq!((loaded.config.sessions.timeout_min_ms, loaded.config.sessions.timeout_max_ms), (4000, 40_000));
    assert!(loaded.config.features.extended_types && loaded.warnings.is_empty());
    assert!(loaded.config.commands.four_letter_whitelist.allows(b"srvr"));
    assert!(!loaded.config.commands.four_letter_whitelist.allows(b"ruok"));
}

#[test]
fn flags_override_the_file_and_the_file_the_default() {
    let text = "[server]\ntick_time_ms = 500\ndata_dir = \"/a\"\n[runtime]\nshards = 3\n";
    let overrides = [
        Override::text("--data-dir", "server.data_dir", "/b"),
        Override::number("--shards", "runtime.shards", 4),
        Override::parse("limits.sessions_max = 9").expect("there is a ="),
        Override::parse("server.log_level=debug").expect("there is a ="),
    ];
    let loaded = load_file("c.toml", text, &overrides).expect("all values are good");
    assert_eq!(shown(&loaded, "server.tick_time_ms"), ("500".to_owned(), Source::Line(2)));
    assert_eq!(shown(&loaded, "server.data_dir"), ("\"/b\"".to_owned(), Source::Flag("--data-dir")));
    assert_eq!(shown(&loaded, "server.log_dir"), ("\"/b\"".to_owned(), Source::Derived("server.data_dir")));
    assert_eq!(shown(&loaded, "runtime.shards"), ("4".to_owned(), Source::Flag("--shards")));
    assert_eq!(shown(&loaded, "limits.sessions_max"), ("9".to_owned(), Source::Flag("--set")));
    assert_eq!(shown(&loaded, "server.log_level"), ("\"debug\"".to_owned(), Source::Flag("--set")));
    assert_eq!(shown(&loaded, "sessions.timeout_max_ms").0, "10000");
}

#[test]
fn bad_flags() {
    let check = |item: Override, expect: &str| {
        let fault = load(None, &[item]).expect_err(expect);
        assert!(fault.sentence.starts_with(expect), "{fault}");
    };
    check(
        Override::text("--client-addr", "server.client_addr", "x"),
        "--client-addr: server.client_addr: \"x\" is not an",
    );
    check(Override::number("--shards", "runtime.shards", 9999), "--shards: runtime.shards: 9999 is too large");
    check(Override::parse("a.b=1").expect("there is a ="), "--set: a.b: the key `a.b` is not known");
    check(Override::parse("server.data_dir=").expect("there is a ="), "--set: server.data_dir: the path is empty");
    assert!(Override::parse("server.data_dir").is_err());
}

#[test]
fn contradictions() {
    check_bad("c.toml", "[sessions]\ntimeout_min_ms = 50000", &["c.toml:2: sessions.timeout_min_ms: 50000 is above"]);
    check_bad(
        "c.toml",
        "[sessions]\ntimeout_max_ms = 3000",
        &["derived: 2 x server.tick_time_ms: sessions.timeout_min_ms: 4000 is above"],
    );
    check_bad(
        "c.toml",
        "[limits]\nframe_bytes_max = 67108864\n[log]\nsegment_bytes = 67108864",
        &["c.toml:4: log.segment_bytes: 67108864 is less than four"],
    );
    check_bad(
        "c.toml",
        "[limits]\nreply_buffer_bytes_hard_max = 65536",
        &["default: limits.reply_buffer_bytes_soft_max"],
    );
    check_bad("c.toml", "[runtime]\nheartbeat_idle_ms = 4", &["c.toml:2: runtime.heartbeat_idle_ms: 4 is below"]);
    check_bad("c.toml", "[runtime]\nwatchdog_exit_ms = 250", &["c.toml:2: runtime.watchdog_exit_ms: 250 is not above"]);
    let rare = "[runtime]\nheartbeat_idle_ms = 51\n";
    check_bad("c.toml", rare, &["default: runtime.watchdog_frozen_ms: 250 is less than 5 times"]);
    let never = "[runtime]\nheartbeat_idle_ms = 1000\nwatchdog_frozen_ms = 300\nwatchdog_exit_ms = 500\n";
    check_bad("c.toml", never, &["c.toml:3: runtime.watchdog_frozen_ms: 300 is less than 5 times"]);
    load_file("c.toml", "[runtime]\nheartbeat_idle_ms = 51\nwatchdog_frozen_ms = 255\n", &[]).expect("five heartbeats");
    let both = "[limits]\ninflight_bytes_per_shard_max = 1048576\nframe_bytes_max = 2000000\n";
    check_bad("c.toml", both, &["c.toml:2: limits.inflight_bytes_per_shard_max: 1048576 is less than one frame"]);
}

#[test]
fn all_problems_are_listed_in_the_order_of_their_lines() {
    let text = "[server]\nserver_id = 0\nx = 1\n[limits]\nsessions_max = 0\n[nonsense]\n";
    check_bad("c.toml", text, &["c.toml:2: ", "c.toml:3: ", "c.toml:5: ", "c.toml:6: "]);
    let many = (0..60).fold("[server]\n".to_owned(), |text, index| text + &format!("x{index} = 1\n"));
    let sentence = load_file("c.toml", &many, &[]).expect_err("no key is known");
    assert_eq!(sentence.lines().count(), 51);
    assert_eq!(sentence.lines().last(), Some("and 10 more"));
}

#[test]
fn unreadable_files() {
    let check = |path: &Path, part: &str| {
        let fault = load(Some(path), &[]).expect_err(part);
        assert!(fault.sentence.contains(part), "{fault}");
        assert_eq!(fault.code, ExitCode::Config);
    };
    let dir = dir(&[("big.toml", &"#".repeat(2 << 20))]);
    check(&dir.path().join("missing.toml"), "missing.toml cannot be read: No such file");
    check(dir.path(), "cannot be read: Is a directory");
    check(&dir.path().join("big.toml"), "is larger than 1048576 bytes");
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    for name in ["noise.toml", "noise.cfg", "noise"] {
        fs::write(dir.path().join(name), &bytes).expect("the directory is writable");
        check(&dir.path().join(name), "noise");
    }
}

/// Text made of the formats' parts, and of any other text.
fn noise() -> impl Strategy<Value = String> {
    let words = vec![
        "[server]\n",
        "[[core]]\n",
        "role = ",
        "\"shard\"\n",
        "tick_time_ms = ",
        "tickTime=",
        "1",
        "-1",
        "99999999999999999999",
        "\\",
        "\n",
        "\\\n",
        "\\u00",
        "dataDir=",
        "server.1=",
        "[",
        "{",
        "\"\"\"",
        "=",
        "clientPort=",
        "4lw.commands.whitelist=",
    ];
    let piece = prop_oneof!["[\\x00-\\x7f]{0,8}", "\\PC{0,4}", proptest::sample::select(words).prop_map(str::to_owned)];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn missing(path: &Path) -> Result<String, FileError> {
    Err(FileError { path: path.to_owned(), cause: std::io::Error::from(std::io::ErrorKind::NotFound).into() })
}

/// Reads a text without a file.
fn read_text_as(format: Format, text: &str) -> Draft {
    let mut draft = Draft::new(None);
    match format {
        Format::Toml => toml_file::read(text, &mut draft),
        Format::ZooCfg => zoo::read(text, &mut draft, &missing),
    }
    draft
}

proptest! {
    #[test]
    fn no_text_panics(text in noise()) {
        for format in [Format::Toml, Format::ZooCfg] {
            let mut draft = read_text_as(format, &text);
            ensemble::settle(&mut draft, &missing);
            derive(&mut draft, format);
            check(&mut draft);
            ensemble::check(&mut draft);
            if let Ok(loaded) = finish(draft) {
                // Every accepted configuration has a plan, or a fault that says why not.
                let _ = loaded.core_plan(&[0, 1]);
            }
        }
    }
}

#[test]
fn hostile_files_are_read_in_bounded_time_and_memory() {
    let check = |format: Format, unit: &str| {
        let bytes_max = usize::try_from(FILE_BYTES_MAX).expect("1 MiB fits");
        let mut text = String::new();
        for index in 0.. {
            text.push_str(&unit.replace('#', &u32::to_string(&index)));
            if text.len() > bytes_max {
                break;
            }
        }
        let begin = std::time::Instant::now();
        let draft = read_text_as(format, &text);
        assert!(draft.problems.len() <= 1000 && draft.warnings.len() <= 100);
        assert!(draft.warnings.iter().all(|warning| warning.len() < 20_000));
        assert!(begin.elapsed().as_secs() < 20, "{unit:?} took {:?}", begin.elapsed());
    };
    for unit in ["[[core]]\n", "[", "a.", "[a#]\n", "[server.a#]\n", "{", "a", "x=[\n", "\"", "server.a# = 1\n"] {
        check(Format::Toml, unit);
    }
    for unit in
        ["a", "a=1\n", "k#=1\n", "\\\n", "\\\\\\\n", "\\", "server.#=a\n", "tickTime=x\n", "\\u0041", "maxCnxns=#\n"]
    {
        check(Format::ZooCfg, unit);
    }
}

#[test]
fn formats_are_told_apart() {
    let check =
        |name: &str, text: &str, expect: Format| assert_eq!(detect(Path::new(name), text), expect, "{name} {text}");
    check("a.toml", "tickTime=1", Format::Toml);
    check("zoo.cfg", "[server]", Format::ZooCfg);
    check("a.properties", "", Format::ZooCfg);
    check("a.conf", "# x\n! y\n\n  tickTime=1", Format::ZooCfg);
    check("a.conf", "# x\n\n  [server]\n", Format::Toml);
    check("a", "", Format::Toml);
}

#[test]
fn zoo_cfg_of_the_distribution() {
    let text = "# The number of milliseconds of each tick\ntickTime=2000\n# limits\ninitLimit=10\nsyncLimit=5\n\
                dataDir=/tmp/zookeeper\nclientPort=2181\n#maxClientCnxns=60\n#autopurge.snapRetainCount=3\n";
    let loaded = load_file("zoo.cfg", text, &[]).expect("ZooKeeper's sample is good");
    assert_eq!(shown(&loaded, "server.tick_time_ms"), ("2000".to_owned(), Source::Line(2)));
    assert_eq!(shown(&loaded, "server.client_addr"), ("\"[::]:2181\"".to_owned(), Source::Line(7)));
    assert_eq!(shown(&loaded, "server.data_dir"), ("\"/tmp/zookeeper\"".to_owned(), Source::Line(6)));
    assert_eq!(shown(&loaded, "features.extended_types"), ("false".to_owned(), Source::ZooKeeperDefault));
    assert_eq!(loaded.notes, ["zoo.cfg keys without a meaning in this server are ignored: initLimit, syncLimit"]);
    assert!(loaded.warnings.is_empty());
}

#[test]
fn zoo_values_are_mapped() {
    let line = Source::Line(3);
    check_zoo("", "server.tick_time_ms", ("3000", Source::ZooKeeperDefault));
    check_zoo("", "sessions.timeout_min_ms", ("6000", Source::Derived("2 x server.tick_time_ms")));
    check_zoo("dataLogDir=/l", "server.log_dir", ("\"/l\"", line.clone()));
    check_zoo("clientPortAddress=::1", "server.client_addr", ("\"[::1]:2182\"", line.clone()));
    check_zoo("clientPortAddress=localhost", "server.client_addr", ("\"127.0.0.1:2182\"", line.clone()));
    check_zoo("minSessionTimeout=-1", "sessions.timeout_min_ms", ("6000", Source::Derived("2 x server.tick_time_ms")));
    check_zoo("maxSessionTimeout=70000", "sessions.timeout_max_ms", ("70000", line.clone()));
    check_zoo("maxClientCnxns=0", "limits.connections_per_ip_max", ("0", line.clone()));
    check_zoo("maxCnxns=500", "limits.connections_max", ("500", line.clone()));
    check_zoo("jute.maxbuffer=0x3fffff", "limits.frame_bytes_max", ("4194303", line.clone()));
    let grown = ("200003584", Source::Derived("4 x limits.frame_bytes_max"));
    check_zoo("jute.maxbuffer=50000000", "log.segment_bytes", grown.clone());
    check_zoo("jute.maxbuffer=50000000\npreAllocSize=65536", "log.segment_bytes", grown);
    check_zoo("jute.maxbuffer=2147483647", "limits.frame_bytes_max", ("67108864", line.clone()));
    check_zoo("globalOutstandingLimit=0", "limits.requests_in_flight_per_connection_max", ("1", line.clone()));
    check_zoo("preAllocSize=65536", "log.segment_bytes", ("67108864", line.clone()));
    check_zoo("preAllocSize=100", "log.segment_bytes", ("4194304", line.clone()));
    check_zoo("snapCount=100000", "snapshot.txns_max", ("100000", line.clone()));
    check_zoo("snapSizeLimitInKb=4194304", "snapshot.log_bytes_max", ("4294967296", line.clone()));
    check_zoo("snapSizeLimitInKb=-1", "snapshot.log_bytes_max", ("0", line.clone()));
    check_zoo("autopurge.snapRetainCount=5", "snapshot.snapshots_retained", ("5", line.clone()));
    check_zoo("autopurge.purgeInterval=24", "snapshot.purge", ("true", line.clone()));
    check_zoo("autopurge.purgeInterval=0", "snapshot.purge", ("false", line.clone()));
    check_zoo(
        "4lw.commands.whitelist = stat, ruok ,",
        "commands.four_letter_whitelist",
        ("[\"ruok\", \"srvr\", \"stat\"]", line.clone()),
    );
    check_zoo("extendedTypesEnabled=TRUE", "features.extended_types", ("true", line.clone()));
    check_zoo("enforceQuota=true", "features.enforce_quota", ("true", line.clone()));
    check_zoo("reconfigEnabled=true", "features.reconfig", ("true", line.clone()));
    check_zoo("standaloneEnabled=false", "features.two_voters", ("false", line.clone()));
    check_zoo("znode.container.checkIntervalMs=50", "containers.check_interval_ms", ("100", line.clone()));
    check_zoo("znode.container.maxPerMinute=7", "containers.deletes_per_minute_max", ("7", line.clone()));
    check_zoo("znode.container.maxNeverUsedIntervalMs=9", "containers.never_used_max_ms", ("9", line.clone()));
    for (class, key) in [("SASL", "security.sasl_acls"), ("X509", "security.x509_acls")] {
        let text = format!("authProvider.1=org.apache.zookeeper.server.auth.{class}AuthenticationProvider");
        check_zoo(&text, key, ("true", line.clone()));
    }
    check_zoo("skipACL=yes", "security.skip_acl", ("true", line.clone()));
    check_zoo(
        "DigestAuthenticationProvider.superDigest=super\\:x=",
        "security.super_digest",
        ("\"(hidden)\"", line.clone()),
    );
    check_zoo("nio.sessionlessCnxnTimeout=5000", "sessions.sessionless_timeout_ms", ("5000", line.clone()));
    check_zoo("fsync.warningthresholdms=20", "log.sync_warning_ms", ("20", line.clone()));
    check_zoo("tickTime=1\\\n  00", "server.tick_time_ms", ("100", line.clone()));
    check_zoo("tickTime=100\ntickTime=200", "server.tick_time_ms", ("200", Source::Line(4)));
    check_zoo("forceSync=yes", "server.tick_time_ms", ("3000", Source::ZooKeeperDefault));
}

#[test]
fn zoo_wrong_values() {
    check_zoo_bad("tickTime=2s", &["zoo.cfg:3: tickTime: \"2s\" is no whole number; give"]);
    check_zoo_bad("tickTime=--2", &["zoo.cfg:3: tickTime: \"--2\" is no whole number"]);
    check_zoo_bad("tickTime=-+2", &["zoo.cfg:3: tickTime: \"-+2\" is no whole number"]);
    check_zoo_bad(
        "tickTime=99999999999999999999",
        &["zoo.cfg:3: tickTime: \"99999999999999999999\" is no whole number"],
    );
    check_zoo_bad("tickTime=0", &["zoo.cfg:3: tickTime: 0 is too small; give a whole number from 10"]);
    check_zoo_bad("tickTime=", &["zoo.cfg:3: tickTime: \"\" is no whole number"]);
    check_zoo_bad("clientPort=70000", &["zoo.cfg:3: clientPort: 70000 is no port"]);
    check_zoo_bad(
        "clientPortAddress=no such host",
        &["zoo.cfg:3: clientPortAddress: the host \"no such host\" does not"],
    );
    check_zoo_bad("maxClientCnxns=many", &["zoo.cfg:3: maxClientCnxns: \"many\" is no whole number"]);
    check_zoo_bad("maxClientCnxns=-5", &["zoo.cfg:3: maxClientCnxns: -5 is too small"]);
    check_zoo_bad("enforceQuota=maybe", &["zoo.cfg:3: enforceQuota: \"maybe\" is neither true nor false"]);
    check_zoo_bad("forceSync=no", &["zoo.cfg:3: forceSync: \"no\" is refused: every acknowledged write is on disk;"]);
    check_zoo_bad("autopurge.purgeInterval=daily", &["zoo.cfg:3: autopurge.purgeInterval: \"daily\" is no whole"]);
    check_zoo_bad("dataLogDir=", &["zoo.cfg:3: dataLogDir: the value is empty"]);
    check_zoo_bad("x=\\u12", &["zoo.cfg:3: a \\u is not followed by four hexadecimal digits"]);
    check_zoo_bad("minSessionTimeout=9\nmaxSessionTimeout=8", &["zoo.cfg:3: sessions.timeout_min_ms: 9 is above"]);
    check_zoo_bad("tickTime=a\nskipACL=b", &["zoo.cfg:3: tickTime", "zoo.cfg:4: skipACL"]);
    check_zoo_bad("dynamicConfigFile=/nonexistent/x", &["zoo.cfg:3: dynamicConfigFile: /nonexistent/x cannot be read"]);
}

#[test]
fn zoo_needs_directory_and_port_unless_flags_give_them() {
    check_bad("zoo.cfg", "clientPort=1", &["zoo.cfg: dataDir: the key is missing; add the line, or give --data-dir"]);
    check_bad("zoo.cfg", "dataDir=/x", &["zoo.cfg: clientPort: the key is missing"]);
    check_bad("zoo.cfg", "dataDir=/x\nclientPort=x", &["zoo.cfg:2: clientPort: \"x\" is no whole"]);
    check_bad("zoo.cfg", "dataDir=/x\nclientPortAddress=::", &["zoo.cfg:2: clientPortAddress: there is no clientPort"]);
    let flags = [
        Override::text("--data-dir", "server.data_dir", "/f"),
        Override::text("--client-addr", "server.client_addr", "127.0.0.1:1"),
    ];
    let loaded = load_file("zoo.cfg", "tickTime=100", &flags).expect("the flags give both");
    assert_eq!(shown(&loaded, "server.data_dir"), ("\"/f\"".to_owned(), Source::Flag("--data-dir")));
}

#[test]
fn zookeepers_provider_of_metrics() {
    const CLASS: &str = "metricsProvider.className=org.apache.zookeeper.metrics";
    let http = |text: &str| load_file("zoo.cfg", text, &[]).expect("it is good").config.metrics.http_addr;
    let served = |address: &str| address.parse().ok();
    let zoo = "dataDir=/z\nclientPort=1\n";
    let prometheus = format!("{zoo}{CLASS}.prometheus.PrometheusMetricsProvider\nmetricsProvider.exportJvmInfo=true\n");
    assert_eq!(http(&prometheus), served("0.0.0.0:7000"));
    let both = "metricsProvider.httpPort=7001\nmetricsProvider.httpHost=127.0.0.1";
    assert_eq!(http(&format!("{prometheus}{both}")), served("127.0.0.1:7001"));
    assert_eq!(http(&format!("{zoo}{CLASS}.impl.DefaultMetricsProvider\n{both}")), None);
    assert_eq!(http(&format!("{zoo}{both}")), None, "ZooKeeper serves nothing then");
    check_zoo_bad(
        &format!("{CLASS}.prometheus.PrometheusMetricsProvider\nmetricsProvider.httpPort=x"),
        &["zoo.cfg:4: metricsProvider.httpPort: "],
    );
    check_zoo_warning("metricsProvider.className=com.Mine", &["are ignored: metricsProvider.className"]);
}

#[test]
fn zoo_warnings_name_the_keys_once() {
    check_zoo_warning(
        "initLimit=5\nfoo=1\nensembleAuthName=\nemulate353TTLNodes=true\nsyncLimit=x\nadmin.snapshot.enabled=false\nfoo.bar=2\ngroup.1=1",
        &[
            "features that this version does not offer are ignored: emulate353TTLNodes, admin.snapshot.enabled",
            "neither ZooKeeper 3.9 nor this server knows are ignored: foo, foo.bar",
        ],
    );
    check_zoo_warning("4lw.commands.whitelist=ruok, what, *", &["zoo.cfg:3: no four-letter commands, ignored: what"]);
    check_zoo_warning(
        "tickTime=1\ntickTime=20",
        &["zoo.cfg:4: tickTime is given again; the value of line 3 is not used"],
    );
    check_zoo_warning(
        "preAllocSize=1",
        &["zoo.cfg:3: preAllocSize: log.segment_bytes = 1024 is out of range; 4194304 is used"],
    );
    check_zoo_warning("jute.maxbuffer=1", &["limits.frame_bytes_max = 1 is out of range; 1024 is used"]);
    check_zoo_warning("autopurge.snapRetainCount=0", &["snapshot.snapshots_retained = 0 is out of range; 1 is used"]);
    check_zoo_warning(&"k\u{1b}[31m=1".replace('1', "2"), &["knows are ignored: k\\u{1b}[32m"]);
}

/// `ensemble.secret_file` in a zoo.cfg was named unknown, and the server ran without a secret.
#[test]
fn keys_of_corral_in_a_zoo_cfg_end_the_start() {
    for (line, key) in [
        ("ensemble.secret_file=secret", "ensemble.secret_file"),
        ("limits.frame_bytes_max=5000000", "limits.frame_bytes_max"),
    ] {
        check_zoo_bad(line, &[&format!("zoo.cfg:3: {key}: a key of corral's own")]);
    }
}

/// They were ignored with a warning, and the server went on without the protection.
#[test]
fn zoo_keys_that_demand_protection_end_the_start() {
    check_zoo_bad(
        "ssl.trustStore.pasword=secret",
        &["zoo.cfg:3: ssl.trustStore.pasword: the key is not known; write ssl.trustStore.password, or drop the line"],
    );
    for (line, key) in [
        ("requireClientAuthScheme=sasl", "requireClientAuthScheme"),
        ("enforce.auth.enabled=true", "enforce.auth.schemes"),
        ("sessionRequireClientSASLAuth=true", "security.enforce_schemes"),
        ("enforce.auth.enabled=maybe", "enforce.auth.enabled"),
        ("secureClientPortAddress=0.0.0.0", "secureClientPortAddress"),
        ("authProvider.1=com.example.Own", "authProvider.1"),
        ("ensembleAuthName=blue", "ensembleAuthName"),
        ("audit.impl.class=com.example.Own", "audit.impl.class"),
        // As a system property would be named, and as a slip of the hand has it.
        ("zookeeper.requireClientAuthScheme=sasl", "zookeeper.requireClientAuthScheme"),
        ("zookeeper.ssl.clientAuth=need", "zookeeper.ssl.clientAuth"),
        ("secureClientprot=2281", "secureClientprot"),
        ("sessionRequireClientSaslAuth=true", "sessionRequireClientSaslAuth"),
    ] {
        check_zoo_bad(line, &[&format!("zoo.cfg:3: {key}: ")]);
    }
    check_zoo_bad(
        "secureClientprot=2281",
        &[
            "zoo.cfg:3: secureClientprot: the key is not known, and taken for secureClientPort: the line asks for protection",
        ],
    );
    for off in [
        "sessionRequireClientSASLAuth=false",
        "client.portUnification=false",
        "audit.enable=FALSE",
        "ensembleAuthName=",
    ] {
        check_zoo_warning(off, &[]);
    }
}

#[test]
fn an_unknown_zoo_key_is_named_with_the_nearest_one() {
    check_zoo_warning(
        "maxClientCnxn=60",
        &["zoo.cfg:3: maxClientCnxn: the key is not known and is ignored; did you mean maxClientCnxns?"],
    );
    check_zoo_warning("ticktime=60", &["did you mean tickTime?"]);
    check_zoo_warning("zookeeper.snapCount=60", &["did you mean snapCount?"]);
    check_bad(
        "c.toml",
        "[server]\ndata_dri = \"x\"\n",
        &["c.toml:2: server.data_dri: the key `server.data_dri` is not known; did you mean `server.data_dir`?"],
    );
}

#[test]
fn the_effective_output_is_a_configuration_that_gives_the_same() {
    let text = "[server]\ntick_time_ms = 500\n[[core]]\ncpu = 0\nrole = \"shard+consensus\"\nring_depth = 2048\n";
    let first = load_file("c.toml", text, &[]).expect("all values are good");
    let again = load_file("d.toml", &effective(&first), &[]).expect("the output is good TOML");
    let without_lines = |mut config: Config| {
        config.cores.iter_mut().for_each(|row| row.line = 0);
        config
    };
    assert_eq!(without_lines(again.config), without_lines(first.config.clone()));
    let shown = effective(&first);
    assert!(shown.lines().any(|line| line.starts_with("tick_time_ms = 500 ") && line.ends_with("c.toml:2")), "{shown}");
}

#[test]
fn a_secret_is_neither_shown_nor_lost_from_sight() {
    let loaded = load_file("c.toml", "[security]\nsuper_digest = \"super:D/In=\"\n", &[]).expect("the value is good");
    let shown = effective(&loaded);
    assert!(shown.contains("# super_digest = \"(hidden)\"") && !shown.contains("D/In"), "{shown}");
    assert!(!format!("{loaded:?}").contains("D/In"));
}

/// The files of configs/.
fn example_files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let entries = fs::read_dir(dir).expect("configs is in the repository");
    let paths = entries.map(|entry| entry.expect("configs is readable").path());
    // Others are for programs beside the server.
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml" || end == "cfg");
    let mut files: Vec<PathBuf> = paths.filter(is_ours).collect();
    files.sort();
    files
}

#[test]
fn every_example_loads_and_has_a_plan() {
    let files = example_files();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let loaded = load(Some(&file), &[]).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{}", file.display());
        let cpus: Vec<u32> = (0..8).collect();
        CorePlan::of(&loaded.config, &cpus).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()));
    }
}

#[test]
fn the_template_is_good_and_gives_the_defaults() {
    let loaded = load_file("c.toml", &template(), &[]).expect("the template is good");
    assert_eq!(loaded.config, load(None, &[]).expect("the defaults are good").config);
    assert!(keys::KEYS.iter().all(|key| loaded.sources.contains_key(key.path)));
}

#[test]
fn the_committed_pages_are_the_generated_ones() {
    let check = |name: &str, generated: String, command: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let committed = fs::read_to_string(path).expect("the page is in the repository");
        assert!(committed == generated, "{name} is stale: corral check-config {command} > {name}");
    };
    check("docs/configuration.md", reference(), "--reference");
    check("configs/default.toml", template(), "--template");
}
