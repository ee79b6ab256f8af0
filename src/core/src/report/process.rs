//! The answers made of facts of the process alone: `conf`, `dirs`, `envi`, `hash`.

use super::facts::{Configured, ServerFacts};
use crate::servers::Role;
use alloc::string::String;
use core::fmt::Write;

/// `hash`: zxid and digest, a line each.
pub(super) fn digests(facts: &ServerFacts) -> String {
    let mut text = String::new();
    for (zxid, digest) in &facts.digests {
        let _ = writeln!(text, "{:x}: {digest}", zxid.0);
    }
    text
}

pub(super) fn configuration(conf: &Configured) -> String {
    let mut text = String::new();
    let mut put = |key: &str, value: &dyn core::fmt::Display| {
        let _ = writeln!(text, "{key}={value}");
    };
    put("clientPort", &conf.client_port);
    put("secureClientPort", &conf.secure_client_port.map_or(-1, i32::from));
    put("dataDir", &conf.data_dir);
    put("dataDirSize", &conf.data_dir_bytes);
    put("dataLogDir", &conf.log_dir);
    put("dataLogSize", &conf.log_dir_bytes);
    put("tickTime", &conf.tick_ms);
    put("maxClientCnxns", &conf.connections_per_ip_max);
    put("minSessionTimeout", &conf.session_timeout_min_ms);
    put("maxSessionTimeout", &conf.session_timeout_max_ms);
    put("clientPortListenBacklog", &conf.backlog);
    put("serverId", &conf.server_id);
    let Some((servers, version)) = &conf.members else { return text };
    if let Some(own) = servers.0.get(&conf.server_id) {
        put("electionPort", &own.election_port);
        put("quorumPort", &own.peer_port);
        put("peerType", &u8::from(own.role == Role::Observer));
    }
    // As ZooKeeper ends it, without a line break.
    text + "membership: \n" + &servers.text(*version)
}

pub(super) fn directories(conf: &Configured) -> String {
    alloc::format!("datadir_size: {}\nlogdir_size: {}\n", conf.data_dir_bytes, conf.log_dir_bytes)
}

/// Values are the host's and may hold anything; a line is a line.
pub(super) fn environment(facts: &ServerFacts) -> String {
    let mut text = String::from("Environment:\n");
    for (key, value) in &facts.environment {
        let _ = writeln!(text, "{key}={}", value.replace(['\n', '\r'], " "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ServerId;
    use crate::servers::Servers;

    #[test]
    fn keys_in_zookeepers_order() {
        let conf = Configured {
            client_port: 2181,
            secure_client_port: None,
            data_dir: String::from("/data"),
            data_dir_bytes: 478,
            log_dir: String::from("/log"),
            log_dir_bytes: 67_109_358,
            tick_ms: 2000,
            connections_per_ip_max: 60,
            session_timeout_min_ms: 4000,
            session_timeout_max_ms: 40_000,
            backlog: 4096,
            server_id: ServerId(1),
            members: None,
        };
        let expect = "clientPort=2181\nsecureClientPort=-1\ndataDir=/data\ndataDirSize=478\ndataLogDir=/log\n\
                      dataLogSize=67109358\ntickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\n\
                      maxSessionTimeout=40000\nclientPortListenBacklog=4096\nserverId=1\n";
        assert_eq!(configuration(&conf), expect);
        assert_eq!(directories(&conf), "datadir_size: 478\nlogdir_size: 67109358\n");
        let list = "server.1=a:2:3:participant;0.0.0.0:4\nserver.2=b:5:6:observer\nversion=1f";
        let conf = Configured { members: Servers::parse(list), ..conf };
        let more = "electionPort=3\nquorumPort=2\npeerType=0\nmembership: \n";
        assert_eq!(configuration(&conf), alloc::format!("{expect}{more}{list}"));
    }

    #[test]
    fn a_value_cannot_forge_a_line() {
        let environment =
            alloc::vec![("os.name", String::from("Linux")), ("user.dir", String::from("/a\nuser.name=root"))];
        let facts = ServerFacts { environment, ..ServerFacts::default() };
        assert_eq!(super::environment(&facts), "Environment:\nos.name=Linux\nuser.dir=/a user.name=root\n");
    }
}
