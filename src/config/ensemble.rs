//! The place of this server in the ensemble, and its consequences: its id, its addresses, and whether the whole can
//! work.
//!
//! Start-up only, on the main thread, after files and flags; for both formats. It reads the file `myid`. It does not
//! refuse ensembles: the code that starts the server does.

use corral_consensus::limits::TICKS_MAX;

use crate::config::file::{FileError, ReadFile};
use crate::config::keys::Config;
use crate::config::members::{Member, id_of};
use crate::config::problem::{Draft, Source};
use crate::config::value::{Raw, Rejection, every_address, resolve, shortened};

/// Finds out which server this one is, and derives what is its own. Nothing happens without an ensemble.
pub(crate) fn settle(draft: &mut Draft, read_file: ReadFile<'_>) {
    if !draft.config.ensemble.servers.is_ensemble() || !own_id(draft, read_file) {
        return;
    }
    let Some(own) = draft.config.own_member().cloned() else {
        let ids: Vec<String> = draft.config.ensemble.servers.0.iter().map(|member| member.id.to_string()).collect();
        let reason = format!("there is no server {} among {}", draft.config.server.server_id, ids.join(", "));
        let source = draft.source("server.server_id");
        let rejection = Rejection::new(reason, "correct the id of this server, or the list of servers");
        return draft.problem(&source, "server.server_id", rejection);
    };
    if let Some((role, place)) = draft.quorum.role.clone()
        && role != own.role
    {
        let id = own.id;
        draft.warn(format!("{place}: peerType is {}, server.{id} is {}; that counts", role.word(), own.role.word()));
    }
    client_addr(draft, &own);
    if let Some(source) = draft.quorum.listen_on_all.clone()
        && draft.config.ensemble.peer_addr.is_none()
    {
        let all = Raw::Text(every_address(own.port).to_string());
        draft.assign("ensemble.peer_addr", &all, source, "quorumListenOnAllIPs");
    }
}

/// The id as configured, else of the file `myid`; false once a problem was noted.
fn own_id(draft: &mut Draft, read_file: ReadFile<'_>) -> bool {
    let path = draft.config.server.data_dir.join("myid");
    let place = path.display().to_string();
    let source = draft.source("server.server_id");
    if source != Source::Default {
        return is_of_myid(draft, &source, &place, read_file(&path).ok());
    }
    let remedy = format!("write the number of this server into it (echo 1 > {place}), or set server.server_id");
    // The place stands before the cause.
    let unreadable = |error: FileError| Rejection::new(error.cause.to_string(), remedy.clone());
    let id = read_file(&path).map_err(unreadable).and_then(|text| {
        let line = text.lines().next().unwrap_or_default().trim();
        id_of(line).map_err(|rejection| Rejection::new(rejection.reason, remedy.clone()))
    });
    match id {
        Ok(id) => {
            let source = Source::Elsewhere(place);
            draft.assign("server.server_id", &Raw::Integer(id.into()), source, "myid");
            true
        }
        Err(rejection) => {
            draft.problem_at(place, "", rejection);
            false
        }
    }
}

/// Whether a configured id is that of the file `myid`, if that file has an id. Data of another server must not be taken
/// for this one's.
fn is_of_myid(draft: &mut Draft, source: &Source, place: &str, text: Option<String>) -> bool {
    let configured = draft.config.server.server_id;
    let found = text.and_then(|text| id_of(text.lines().next().unwrap_or_default().trim()).ok());
    let Some(other) = found.filter(|found| *found != configured) else { return true };
    let reason = format!("this server is {configured} by server.server_id, and {other} by {place}");
    let remedy = "correct the wrong value: the data directory belongs to the server that `myid` names";
    draft.problem(source, "server.server_id", Rejection::new(reason, remedy));
    false
}

/// The address for clients that stands in the list counts where nothing else is said, and must not contradict a zoo.cfg.
pub(crate) fn client_addr(draft: &mut Draft, own: &Member) {
    let Some((host, port)) = &own.client else { return };
    let place = draft.quorum.places.get(&own.id).cloned().unwrap_or_else(|| "ensemble.servers".to_owned());
    let key = format!("server.{}", own.id);
    let said = draft.source("server.client_addr");
    if matches!(said, Source::Flag(_)) || (matches!(said, Source::Line(_)) && draft.quorum.places.is_empty()) {
        return;
    }
    let listed = host.as_ref().map_or_else(|| Ok(every_address(*port)), |host| resolve(host, *port));
    let listed = match listed {
        Ok(listed) => listed,
        Err(rejection) => return draft.problem_at(place, &key, rejection),
    };
    if let Source::Line(_) = said {
        let configured = draft.config.server.client_addr;
        let fits = if configured.ip().is_unspecified() { configured.port() == *port } else { configured == listed };
        if !fits {
            let reason = format!("its address for clients, {listed}, is not that of clientPort, {configured}");
            return draft.problem_at(place, &key, Rejection::new(reason, "drop clientPort, or correct one of them"));
        }
        if host.is_none() {
            return;
        }
    }
    draft.assign("server.client_addr", &Raw::Text(listed.to_string()), Source::Elsewhere(place), &key);
}

/// Checks what concerns the ensemble as a whole.
pub(crate) fn check(draft: &mut Draft) {
    let config = draft.config.clone();
    let ensemble = &config.ensemble;
    if ensemble.heartbeat_ms.saturating_mul(2) > ensemble.election_ms {
        let reason =
            format!("{} is less than twice ensemble.heartbeat_ms = {}", ensemble.election_ms, ensemble.heartbeat_ms);
        problem(draft, "ensemble.election_ms", reason, "raise it, or lower ensemble.heartbeat_ms");
    }
    if ensemble.election_ms.div_ceil(ensemble.heartbeat_ms.max(1)) > TICKS_MAX {
        let reason = format!(
            "{} is more than {TICKS_MAX} times ensemble.heartbeat_ms = {}",
            ensemble.election_ms, ensemble.heartbeat_ms
        );
        problem(draft, "ensemble.election_ms", reason, "lower it, or raise ensemble.heartbeat_ms");
    }
    let files = [
        ("ensemble.tls_cert", &ensemble.tls_cert),
        ("ensemble.tls_key", &ensemble.tls_key),
        ("ensemble.tls_ca", &ensemble.tls_ca),
    ];
    let given = files.iter().filter(|(_, path)| !path.as_os_str().is_empty()).count();
    if (1..files.len()).contains(&given) {
        for (key, _) in files.iter().filter(|(_, path)| path.as_os_str().is_empty()) {
            let reason = "it is missing where other files of TLS are given".to_owned();
            problem(draft, key, reason, "give tls_cert, tls_key and tls_ca, or none of them");
        }
    }
    if !ensemble.servers.is_ensemble() {
        return;
    }
    let voters = ensemble.servers.voters();
    if voters == 0 {
        let reason = "all servers are observers".to_owned();
        problem(draft, "ensemble.servers", reason, "make three of them participants");
    }
    if voters == 2 {
        draft.warn("of two participants none may fail; an ensemble needs three".to_owned());
    } else if voters > 2 && voters.is_multiple_of(2) {
        draft
            .warn(format!("{voters} participants tolerate no more failures than {}; choose an odd number", voters - 1));
    }
    let exposed = exposed(&config);
    let has_secret = !ensemble.secret_file.as_os_str().is_empty();
    if is_encrypted(&config) {
        return;
    }
    let hosts = shortened(&exposed.join(", "));
    match (exposed.is_empty(), has_secret, ensemble.allow_plaintext) {
        (true, true, _) => {}
        (true, false, _) => draft.warn(
            "ensemble.secret_file is not set: any user of this host can take the place of a server of this ensemble that does not \
             run; for more than a try set it (--set ensemble.secret_file=FILE), the same on all servers"
                .to_owned(),
        ),
        (false, true, true) => draft.warn(format!(
            "ensemble.allow_plaintext: the secret alone protects the messages of the servers in the network to {hosts}; set \
             ensemble.tls_cert, tls_key and tls_ca for TLS"
        )),
        (false, has_secret, _) => {
            let path = if has_secret { "ensemble.allow_plaintext" } else { "ensemble.secret_file" };
            let reason = format!(
                "the servers are reached over a network ({hosts}), and {}",
                if has_secret { "there is no TLS" } else { "neither TLS nor a secret protects what they say" }
            );
            problem(draft, path, reason, BETWEEN_HOSTS);
        }
    }
}

/// The settings with which an ensemble of several hosts starts.
const BETWEEN_HOSTS: &str = "set ensemble.tls_cert, tls_key and tls_ca, or use a shared secret without TLS: \
                             (umask 077; head -c 32 /dev/urandom | base64 > secret), copy that file to all hosts, and start each \
                             server with: --set ensemble.secret_file=secret --set ensemble.allow_plaintext=true";

/// Where servers speak to each other by way of a network.
fn exposed(config: &Config) -> Vec<String> {
    let members = config.ensemble.servers.0.iter().filter(|member| !member.is_on_loopback());
    let hosts = members.map(|member| member.host.clone());
    let own = config.ensemble.peer_addr.filter(|address| !address.ip().to_canonical().is_loopback());
    hosts.chain(own.map(|address| address.ip().to_string())).collect()
}

fn is_encrypted(config: &Config) -> bool {
    !config.ensemble.tls_cert.as_os_str().is_empty()
}

fn problem(draft: &mut Draft, path: &str, reason: String, remedy: &str) {
    let source = draft.source(path);
    draft.problem(&source, path, Rejection::new(reason, remedy));
}
