//! Tests of ensembles in both formats: the own server, and refusals.

use std::fs;
use std::path::Path;

use super::{ExitCode, Loaded, Override, Source, load};
use tempfile::TempDir;

const THREE: &str =
    "server.1=127.0.0.1:2888:3888\nserver.2=127.0.0.1:2889:3889\nserver.3=127.0.0.1:2890:3890:observer\n";

/// Loads a file beside others, DIR in all of them being their directory.
fn load_in(files: &[(&str, &str)], overrides: &[Override]) -> (TempDir, Result<Loaded, String>) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let name = dir.path().display().to_string();
    for (file, text) in files {
        fs::write(dir.path().join(file), text.replace("DIR", &name)).expect("the directory is writable");
    }
    let loaded = load(Some(&dir.path().join(files[0].0)), overrides).map_err(|fault| {
        assert_eq!(fault.code, ExitCode::Config);
        fault.sentence.replace(&format!("{name}/"), "")
    });
    (dir, loaded)
}

/// A zoo.cfg with `dataDir` and `clientPort`, beside a `myid` of 2. The lines of the caller begin at line 3.
fn zoo(lines: &str, more: &[(&str, &str)]) -> Result<Loaded, String> {
    let text = format!("dataDir=DIR\nclientPort=2182\n{lines}");
    let mut files = vec![("zoo.cfg", text.as_str()), ("myid", "2\n")];
    files.extend(more);
    load_in(&files, &[]).1
}

#[track_caller]
fn bad(found: Result<Loaded, String>, expect: &[&str]) {
    let sentence = found.expect_err(expect[0]);
    let lines: Vec<&str> = sentence.lines().collect();
    assert_eq!(lines.len(), expect.len(), "{sentence}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect), "{line:?} does not begin with {expect:?}");
        assert!(line.contains("; "), "{line:?} does not say what to do");
    }
}

#[test]
fn files_of_zookeeper_are_taken_as_they_are() {
    let lines = format!("tickTime=2000\ninitLimit=10\nsyncLimit=5\nelectionAlg=3\npeerType=participant\n{THREE}");
    let loaded = zoo(&lines, &[]).expect("ZooKeeper takes it");
    let config = &loaded.config;
    assert_eq!(config.server.server_id, 2);
    assert!(matches!(&loaded.sources["server.server_id"], Source::Elsewhere(place) if place.ends_with("/myid")));
    let own = config.own_member().expect("it is listed");
    assert_eq!((own.host.as_str(), own.port, own.election_port), ("127.0.0.1", 2889, Some(3889)));
    assert_eq!(config.ensemble.servers.voters(), 2);
    assert_eq!(config.ensemble.peer_addr, None);
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert!(loaded.warnings.iter().any(|warning| warning.starts_with("ensemble.secret_file is not set")));
    assert!(loaded.warnings.iter().any(|warning| warning.starts_with("of two participants none may fail")));
    assert!(loaded.notes.iter().any(|note| note.ends_with("are ignored: initLimit, syncLimit")));
}

#[test]
fn a_dynamic_file_lists_the_servers() {
    let lines = "dynamicConfigFile=DIR/dynamic\n";
    let servers = "server.1=127.0.0.1:1:2;3\nserver.2=127.0.0.1:4:5:participant;127.0.0.1:2182\nversion=100000000\n";
    let loaded = zoo(lines, &[("dynamic", servers)]).expect("ZooKeeper takes it");
    assert_eq!(loaded.config.ensemble.servers.0.len(), 2);
    assert_eq!(loaded.config.server.client_addr.to_string(), "127.0.0.1:2182");
    assert!(matches!(&loaded.sources["server.client_addr"], Source::Elsewhere(place) if place.ends_with("dynamic:2")));
    // The port for clients need not be said twice, and must not be said in two ways.
    let text = "dataDir=DIR\ndynamicConfigFile=DIR/dynamic\n";
    let files = [("zoo.cfg", text), ("myid", "1"), ("dynamic", servers)];
    let loaded = load_in(&files, &[]).1.expect("the line has it");
    assert_eq!(loaded.config.server.client_addr.to_string(), "[::]:3");
    let files = [("zoo.cfg", "dataDir=DIR\nclientPort=7\ndynamicConfigFile=DIR/dynamic\n"), ("myid", "1"), files[2]];
    bad(load_in(&files, &[]).1, &["dynamic:1: server.1: its address for clients, [::]:3, is not that of clientPort"]);
    let both = "dynamicConfigFile=DIR/dynamic\nserver.9=a:1:2\n";
    bad(zoo(both, &[("dynamic", servers)]), &["zoo.cfg:4: server.9: with a dynamicConfigFile the servers are listed"]);
    let other = "server.1=127.0.0.1:1:2\ntickTime=5\n";
    bad(zoo(lines, &[("dynamic", other)]), &["dynamic:2: tickTime: only server.N, group.N, weight.N and version"]);
}

#[test]
fn who_this_server_is() {
    let check = |myid: Option<&str>, expect: &str| {
        let text = format!("dataDir=DIR\nclientPort=1\n{THREE}");
        let mut files = vec![("zoo.cfg", text.as_str())];
        files.extend(myid.map(|myid| ("myid", myid)));
        bad(load_in(&files, &[]).1, &[expect]);
    };
    check(None, "myid: cannot be read: No such file");
    check(Some(""), "myid: \"\" is no id of a server");
    check(Some("two"), "myid: \"two\" is no id of a server");
    check(Some("255\n"), "myid: 255 is no id of a server: it becomes the highest byte");
    check(Some("0"), "myid: 0 is no id of a server");
    check(Some("4"), "myid: server.server_id: there is no server 4 among 1, 2, 3");
    let text = format!("dataDir=DIR\nclientPort=1\n{THREE}");
    let flag = [Override::parse("server.server_id=3").expect("there is a =")];
    let loaded = load_in(&[("zoo.cfg", &text)], &flag).1.expect("the flag says it");
    assert_eq!(loaded.config.own_member().map(|own| own.id), Some(3));
}

#[test]
fn lines_that_are_wrong() {
    let three = |line: &str| zoo(&format!("{THREE}{line}\n"), &[]);
    bad(three("server.4=a"), &["zoo.cfg:6: server.4: \"a\" does not have the form of a server; give HOST:PORT:PORT"]);
    bad(three("server.x=a:1:2"), &["zoo.cfg:6: server.x: \"x\" is no id of a server"]);
    bad(three("server.300=a:1:2"), &["zoo.cfg:6: server.300: 300 is no id of a server"]);
    bad(three("server.4=127.0.0.1:2888:1"), &["zoo.cfg:6: server.4: servers 1 and 4 have one address"]);
    bad(three("server.04=127.0.0.1:1:1\nserver.4=127.0.0.1:2:2"), &["zoo.cfg:7: server.4: there are two servers 4"]);
    bad(
        three("group.1=1:2:3\nweight.1=1\nweight.2=0"),
        &["zoo.cfg:6: group.N: quorums of groups and weights are not offered"],
    );
    bad(three("electionAlg=1"), &["zoo.cfg:6: electionAlg: \"1\" is refused"]);
    bad(three("peerType=leader"), &["zoo.cfg:6: peerType: \"leader\" is no role"]);
    bad(three("quorumListenOnAllIPs=perhaps"), &["zoo.cfg:6: quorumListenOnAllIPs: \"perhaps\" is neither"]);
    bad(three("portUnification=true"), &["zoo.cfg:6: portUnification: \"true\" is refused"]);
    bad(three("quorum.auth.enableSasl=true"), &["zoo.cfg:6: quorum.auth.enableSasl: \"true\" is refused"]);
    bad(three("ssl.quorum.hostnameVerification=false"), &["zoo.cfg:6: ssl.quorum.hostnameVerification: \"false\" is"]);
    let observers = "server.1=127.0.0.1:1:2:observer\nserver.2=127.0.0.1:2:2:observer\n";
    bad(zoo(observers, &[]), &["zoo.cfg: server.N: all servers are observers"]);
    let one = "server.1=127.0.0.1:1:2\nserver.2=127.0.0.1:2:2:observer\n";
    bad(zoo(one, &[]), &["zoo.cfg: server.N: there are observers, and only one participant"]);
}

#[test]
fn what_is_warned_of() {
    let check = |lines: &str, expect: &str| {
        let loaded = zoo(lines, &[]).expect(lines);
        assert!(loaded.warnings.iter().any(|warning| warning.ends_with(expect)), "{:?}", loaded.warnings);
    };
    check(
        &format!("{THREE}peerType=observer\n"),
        "zoo.cfg:6: peerType is observer, server.2 is participant; that counts",
    );
    check(
        "server.1=127.0.0.1:1:2\nserver.2=127.0.0.1:2:2|127.0.0.2:2:2\n",
        "zoo.cfg:4: server 2 has several addresses; only 127.0.0.1:2:2 is used",
    );
    let (_dir, alone) = load_in(&[("zoo.cfg", "dataDir=DIR\nserver.1=127.0.0.1:2888:3888;127.0.0.1:2191")], &[]);
    let alone = alone.expect("its line has an address for clients");
    assert_eq!(alone.config.server.client_addr.to_string(), "127.0.0.1:2191");
    assert!(
        alone.warnings[0].ends_with("server.1 is ignored, but for its address for clients"),
        "{:?}",
        alone.warnings
    );
    check("server.1=a:2888:3888", "only one server is listed: it runs alone, and server.1 is ignored");
    check(
        "server.1=a:2888:3888\nsslQuorum=true\ngroup.1=1",
        "zoo.cfg keys that a standalone server ignores, as ZooKeeper's does: sslQuorum",
    );
    let four = (1..5).map(|id| format!("server.{id}=127.0.0.1:{id}:1\n")).collect::<String>();
    check(&four, "4 participants tolerate no more failures than 3; choose an odd number");
}

/// Consent to unencrypted messages, with a secret.
fn consent() -> Vec<Override> {
    let parse = |text| Override::parse(text).expect("there is a =");
    vec![parse("ensemble.allow_plaintext=true"), parse("ensemble.secret_file=/s")]
}

#[test]
fn without_a_secret_there_is_one_warning() {
    let warned = |more: &[Override]| {
        let text = format!("dataDir=DIR\nclientPort=2182\n{THREE}");
        let loaded = load_in(&[("zoo.cfg", &text), ("myid", "2")], more).1.expect("it is all on this host");
        loaded.warnings.iter().filter(|warning| warning.contains("ensemble.secret_file is not set")).count()
    };
    assert_eq!((warned(&[]), warned(&consent())), (1, 0));
}

#[test]
fn an_id_that_differs_from_myid_is_refused() {
    let text = format!("dataDir=DIR\nclientPort=2182\n{THREE}");
    let with = |id: &str| {
        let id = [Override::parse(&format!("server.server_id={id}")).expect("there is a =")];
        load_in(&[("zoo.cfg", &text), ("myid", "2")], &id).1
    };
    assert!(with("2").is_ok());
    let refused = with("3").expect_err("the two differ").to_string();
    assert!(
        refused.contains("this server is 3 by server.server_id, and 2 by ") && refused.contains(" and 2 by myid;"),
        "{refused}"
    );
}

#[test]
fn where_it_listens_for_servers() {
    let all = format!("quorumListenOnAllIPs=true\n{THREE}");
    bad(zoo(&all, &[]), &["default: ensemble.secret_file: the servers are reached over a network (::), and"]);
    let text = format!("dataDir=DIR\nclientPort=2182\n{all}");
    let allowed = consent();
    let loaded = load_in(&[("zoo.cfg", &text), ("myid", "2")], &allowed).1.expect("it is allowed");
    assert_eq!(loaded.config.ensemble.peer_addr.map(|address| address.to_string()), Some("[::]:2889".to_owned()));
    assert_eq!(loaded.sources["ensemble.peer_addr"], Source::Line(3));
    let loaded = zoo(&format!("quorumListenOnAllIPs=false\n{THREE}"), &[]).expect("ZooKeeper takes it");
    assert_eq!(loaded.config.ensemble.peer_addr, None);
}

#[test]
fn between_hosts_there_is_tls_or_a_secret_and_a_word_of_consent() {
    let hosts = "server.1=one.example:1:2\nserver.2=10.0.0.2:1:2\nserver.3=127.0.0.1:1:2\n";
    bad(
        zoo(hosts, &[]),
        &["default: ensemble.secret_file: the servers are reached over a network (one.example, 10.0.0.2)"],
    );
    let text = format!("dataDir=DIR\nclientPort=2182\n{hosts}");
    let half = |at: usize| vec![consent().swap_remove(at)];
    for (at, part) in
        [(0, "--set ensemble.secret_file=secret --set ensemble.allow_plaintext=true"), (1, "there is no TLS")]
    {
        let refused = load_in(&[("zoo.cfg", &text), ("myid", "2")], &half(at)).1.expect_err("half of it is not enough");
        assert!(refused.to_string().contains(part), "{refused}");
    }
    let loaded = load_in(&[("zoo.cfg", &text), ("myid", "2")], &consent()).1.expect("it is allowed");
    assert!(loaded.warnings[0].contains("in the network to one.example, 10.0.0.2"));
    let stores = "sslQuorum=true\nssl.quorum.keyStore.location=/k.pem\nssl.quorum.keyStore.password=\n\
                  ssl.quorum.trustStore.location=/t.store\nssl.quorum.trustStore.type=PEM\n";
    let ensemble = zoo(&format!("{stores}{hosts}"), &[]).expect("it is encrypted").config.ensemble;
    assert_eq!((ensemble.tls_cert.as_path(), ensemble.tls_key.as_path()), (Path::new("/k.pem"), Path::new("/k.pem")));
    assert_eq!(ensemble.tls_ca, Path::new("/t.store"));
    bad(
        zoo(&format!("sslQuorum=true\nssl.quorum.keyStore.location=/k.jks\n{hosts}"), &[]),
        &[
            "zoo.cfg:3: ssl.quorum.trustStore.location: sslQuorum is true, and ssl.quorum.trustStore.location is missing",
        ],
    );
    let stores = "sslQuorum=true\nssl.quorum.keyStore.location=/k.jks\nssl.quorum.keyStore.password=pw\n\
                  ssl.quorum.keyStore.type=BCFKS\nssl.quorum.trustStore.location=/t.p12\n";
    bad(
        zoo(&format!("{stores}{hosts}"), &[]),
        &["zoo.cfg:6: ssl.quorum.keyStore.type: stores of type \"BCFKS\" are not read"],
    );
}

#[test]
fn the_same_in_toml() {
    let load = |text: &str| load_in(&[("c.toml", text), ("myid", "3")], &[]).1;
    let three = "[server]\ndata_dir = \"DIR\"\n[ensemble]\nservers = [\n  \"1=127.0.0.1:1\",\n  \"2=127.0.0.1:2;9\",\n  \
                 \"3=[::1]:3:observer;[::1]:2183\",\n]\n";
    let loaded = load(three).expect("all values are good");
    let own = loaded.config.own_member().expect("it is listed");
    assert_eq!(own.to_string(), "[::1]:3:observer;[::1]:2183");
    assert_eq!(loaded.config.server.client_addr.to_string(), "[::1]:2183");
    let named = "[server]\nserver_id = 2\nclient_addr = \"127.0.0.1:5\"\n[ensemble]\nservers = [\"1=localhost:1\", \"2=localhost:2;9\"]\n";
    let loaded = load(named).expect("all values are good");
    assert_eq!(loaded.config.server.client_addr.to_string(), "127.0.0.1:5");
    assert_eq!(loaded.config.own_member().map(|own| own.port), Some(2));
    // The shown configuration can be used again.
    let shown = super::effective(&loaded);
    assert!(shown.contains("servers = [\"1=localhost:1:participant\", \"2=localhost:2:participant;9\"]"), "{shown}");
    assert_eq!(load(&shown).expect("the output is good").config.ensemble, loaded.config.ensemble);
    bad(
        load("[ensemble]\nservers = [\"1=a\"]"),
        &["c.toml:2: ensemble.servers: \"1=a\": \"a\" does not have the form"],
    );
    bad(load("[ensemble]\ncluster = \"a b\""), &["c.toml:2: ensemble.cluster: \"a b\" is no name"]);
    bad(load("[ensemble]\npeer_addr = \"x\""), &["c.toml:2: ensemble.peer_addr: \"x\" is not an address"]);
    bad(load("[ensemble]\nheartbeat_ms = 100"), &["default: ensemble.election_ms: 160 is less than twice"]);
    // The Raft node refuses this: a start that got so far took the data for damaged.
    let most = "[ensemble]\nheartbeat_ms = 5\nelection_ms = 50000";
    load(&format!("{most}0")).expect("100000 heartbeats are the most");
    bad(load(&format!("{most}1")), &["c.toml:3: ensemble.election_ms: 500001 is more than 100000 times"]);
    bad(
        load("[ensemble]\ntls_cert = \"/c\"\ntls_ca = \"/a\""),
        &["default: ensemble.tls_key: it is missing where other files of TLS are given"],
    );
    let one = "[ensemble]\nservers = [\"7=far.example:1\"]\n";
    let loaded = load(one).expect("it runs alone");
    assert!(loaded.config.own_member().is_none() && loaded.warnings.is_empty());
    let observers =
        "[server]\nserver_id = 1\n[ensemble]\nservers = [\"1=localhost:1:observer\", \"2=localhost:2:observer\"]\n";
    bad(load(observers), &["c.toml:4: ensemble.servers: all servers are observers"]);
}

#[test]
fn a_misspelled_key_of_protection_ends_the_start() {
    let ensemble = |line: &str| {
        let text = format!("dataDir=DIR\nclientPort=1\n{line}\n{THREE}");
        load_in(&[("zoo.cfg", &text), ("myid", "2")], &[]).1
    };
    for (line, meant) in [
        ("sslQourum=true", "sslQuorum"),
        ("zookeeper.sslQuorum=yes", "sslQuorum"),
        ("quorum.auth.serverRequireSASl=true", "quorum.auth.serverRequireSasl"),
        ("ssl.quorum.oscp=true", "ssl.quorum.ocsp"),
    ] {
        let meant = format!("the key is not known, and taken for {meant}: ");
        let refused = ensemble(line).err().unwrap_or_else(|| panic!("{line}: protection is meant"));
        assert!(refused.contains(&meant), "{line}: {refused}");
    }
    assert!(ensemble("sslQourum=false").is_ok(), "nothing is asked for");
    // Alone, it is ignored as sslQuorum is.
    let alone = load_in(&[("zoo.cfg", "dataDir=DIR\nclientPort=1\nsslQourum=true\n")], &[]).1.expect("it runs alone");
    assert!(alone.warnings.iter().any(|line| line.contains("did you mean sslQuorum?")), "{:?}", alone.warnings);
}
