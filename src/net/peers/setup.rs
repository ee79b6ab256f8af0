//! From the configuration to the settings of the connections: the port is taken, the certificates are read.
//!
//! At start, on the main thread. It starts nothing.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use corral_consensus::ServerId;
use corral_peer::Secrets;

use crate::config::file::read_private;
use crate::config::members::Member;
use crate::config::value::{Secret, resolve};
use crate::config::{Config, LogSettings, Refused};
use crate::exit::{ExitCode, Fault};
use crate::net::listen::listen;
use crate::net::peers::dial::{EXPOSED, exposes};
use crate::net::peers::limits::BACKLOG;
use crate::net::peers::tls::{Files, Tls};
use crate::net::peers::{PeerAddress, Settings};
use crate::net::tls::stores::Store;

/// The address to listen on for the other servers; `None` for a server that runs alone.
///
/// # Errors
/// A `Config` fault when the host of this server does not resolve.
pub(crate) fn own_address(config: &Config) -> Result<Option<SocketAddr>, Refused> {
    let Some(own) = config.own_member() else { return Ok(None) };
    if config.ensemble.peer_addr.is_some() {
        return Ok(config.ensemble.peer_addr);
    }
    resolve(&own.host, own.port).map(Some).map_err(|rejection| {
        let sentence =
            format!("ensemble.servers: {}; {}, or set ensemble.peer_addr", rejection.reason, rejection.remedy);
        let unresolved = rejection.unresolved.into_iter().collect();
        Refused {
            fault: Fault::new(ExitCode::Config, sentence),
            unresolved,
            logging: Box::new(LogSettings::of(config)),
        }
    })
}

/// The settings of this server's connections, which listen at `address`; its `incarnation` was drawn for this process.
///
/// # Errors
/// A `Config` fault when this server is not in the list, or a file of TLS is bad. A `ListenFailed` fault when the port
/// cannot be had.
pub(crate) fn settings(config: &Config, address: SocketAddr, incarnation: u64) -> Result<Settings, Fault> {
    let own = config.own_member().ok_or_else(|| {
        let sentence = format!("ensemble.servers: there is no server {} in it", config.server.server_id);
        Fault::new(ExitCode::Config, sentence)
    })?;
    let ensemble = &config.ensemble;
    let (tls, secrets) = files(config, own)?;
    let plaintext = ensemble.allow_plaintext && secrets.is_some();
    if exposes(tls.as_ref(), plaintext, address.ip()) {
        // The configuration was checked, but the resolver gives the addresses of a name.
        let sentence = format!("the other servers reach this one at {address}, beyond the loopback: {EXPOSED}");
        return Err(Fault::new(ExitCode::Config, sentence));
    }
    let listener = listen(address, BACKLOG).map_err(|error| listen_fault(address, &error))?;
    let peers = addresses(ensemble.servers.0.iter());
    let (id, cluster) = (config.own_id(), ensemble.cluster.clone());
    let settings = Settings::new(id, incarnation, cluster, listener, peers, tls);
    Ok(Settings { plaintext, secrets, ..settings })
}

/// Whether [`settings`] can use the files that the configuration names: the secret and those of TLS. For a look before
/// anything is opened; a server that runs alone needs none of them. Returns the TLS between servers.
///
/// # Errors
/// A `Config` fault that names the first file that cannot be used, and why.
pub(crate) fn check_files(config: &Config) -> Result<Option<Tls>, Fault> {
    config.own_member().map_or(Ok(None), |own| files(config, own).map(|(tls, _)| tls))
}

fn files(config: &Config, own: &Member) -> Result<(Option<Tls>, Option<Arc<Secrets>>), Fault> {
    let ensemble = &config.ensemble;
    let store = |path: &Path, password: &Secret, file: &Path| Store::new(path, &password.0, file);
    let key = store(&ensemble.tls_key, &ensemble.tls_key_password, &ensemble.tls_key_password_file);
    let ca = store(&ensemble.tls_ca, &ensemble.tls_ca_password, &ensemble.tls_ca_password_file);
    let tls = tls(own, Files { cert: ensemble.tls_cert.clone(), key, ca })?;
    Ok((tls, secrets(&ensemble.secret_file)?))
}

pub(crate) fn addresses<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<PeerAddress> {
    members.map(address).collect()
}

fn address(member: &Member) -> PeerAddress {
    PeerAddress { id: ServerId(member.id), host: member.host.clone(), port: member.port }
}

fn tls(own: &Member, files: Files) -> Result<Option<Tls>, Fault> {
    if files.cert.as_os_str().is_empty() {
        return Ok(None);
    }
    let loaded = Tls::load(files).and_then(|tls| tls.of_server(address(own)));
    loaded.map(Some).map_err(|sentence| Fault::new(ExitCode::Config, format!("[ensemble] TLS: {sentence}")))
}

/// Longest file of secrets that is read.
const SECRET_FILE_BYTES_MAX: u64 = 16 << 10;

/// The secrets of that file; `None` where none is named.
fn secrets(path: &Path) -> Result<Option<Arc<Secrets>>, Fault> {
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let read = secrets_of(path).map(|secrets| Some(Arc::new(secrets)));
    read.map_err(|sentence| {
        Fault::new(ExitCode::Config, format!("ensemble.secret_file: {}: {sentence}", path.display()))
    })
}

fn secrets_of(path: &Path) -> Result<Secrets, String> {
    Secrets::of_text(&read_private(path, SECRET_FILE_BYTES_MAX)?).map_err(|error| error.to_string())
}

fn listen_fault(address: SocketAddr, error: &io::Error) -> Fault {
    let sentence = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "{address}, where the other servers reach this one, is in use by another program; stop it (`ss -ltnp` shows it), \
             or correct ensemble.servers (server.N) on all servers"
        ),
        ErrorKind::AddrNotAvailable => format!(
            "{address}, where the other servers reach this one, is no address of this host; set ensemble.peer_addr \
             (quorumListenOnAllIPs=true) if it is reached by way of another one, or correct ensemble.servers (server.N)"
        ),
        ErrorKind::PermissionDenied => {
            format!("{address}, where the other servers reach this one, needs a privilege; choose a port above 1023")
        }
        _ => format!("{address}, where the other servers reach this one, cannot be listened on: {error}"),
    };
    Fault::new(ExitCode::ListenFailed, sentence)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settings(config: &Config, incarnation: u64) -> Result<Settings, Fault> {
        let address = own_address(config).map_err(|refused| refused.fault)?.expect("it is one of several servers");
        super::settings(config, address, incarnation)
    }

    fn config(own: &str) -> Config {
        let mut config = Config::default();
        config.server.server_id = 2;
        for (id, text) in [(1, "127.0.0.1:1:2"), (2, own), (3, "far.example:5:6:observer")] {
            let (member, _) = Member::of_zookeeper(id, text).expect("the line is good");
            config.ensemble.servers.add(member).expect("there is room");
        }
        config
    }

    fn free_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("it is bound").port()
    }

    #[test]
    fn the_configuration_becomes_settings() {
        let port = free_port();
        let mut config = config(&format!("localhost:{port}:9"));
        let found = settings(&config, 7).expect("the port is free");
        assert_eq!((found.id, found.incarnation, found.cluster.as_str()), (ServerId(2), 7, "corral"));
        assert_eq!(found.listener.local_addr().expect("it is bound").to_string(), format!("127.0.0.1:{port}"));
        let hosts: Vec<(u8, &str, u16)> =
            found.peers.iter().map(|peer| (peer.id.0, peer.host.as_str(), peer.port)).collect();
        assert_eq!(hosts, [(1, "127.0.0.1", 1), (2, "localhost", port), (3, "far.example", 5)]);
        drop(found);
        config.ensemble.peer_addr = Some(SocketAddr::from(([0, 0, 0, 0], port)));
        let fault = settings(&config, 7).err().expect("nothing is encrypted");
        assert!(fault.sentence.contains("beyond the loopback") && fault.code == ExitCode::Config, "{fault}");
        config.ensemble.allow_plaintext = true;
        let fault = settings(&config, 7).err().expect("nobody proves anything");
        assert!(fault.sentence.contains("ensemble.secret_file"), "{fault}");
        let (_dir, path) = secret_file(&format!("{}\n", "x".repeat(32)), 0o600);
        config.ensemble.secret_file = path;
        let found = settings(&config, 7).expect("the port is free");
        assert_eq!(found.listener.local_addr().expect("it is bound").to_string(), format!("0.0.0.0:{port}"));
    }

    fn secret_file(text: &str, mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path().join("secret");
        std::fs::write(&path, text).expect("it is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        (dir, path)
    }

    #[test]
    fn a_secret_is_kept_from_others() {
        let long = "x".repeat(44);
        let check = |text: &str, mode: u32, part: &str| {
            let (_dir, path) = secret_file(text, mode);
            let fault = secrets(&path).expect_err(part);
            let named = fault.sentence.starts_with("ensemble.secret_file: /") && fault.sentence.contains(part);
            assert!(named && fault.code == ExitCode::Config && fault.sentence.contains("; "), "{fault}");
        };
        check(&long, 0o644, "others than its owner may use it (mode 0644); chmod 600 /");
        check(&long, 0o620, "mode 0620");
        check("short\n", 0o600, "secret 1 has 5 bytes");
        check("\n", 0o600, "there is no secret in it");
        check(&"x\n".repeat(10_000), 0o600, "it is larger than");
        let (dir, path) = secret_file(&long, 0o600);
        assert!(secrets(&path).is_ok_and(|secrets| secrets.is_some()));
        assert!(secrets(dir.path()).expect_err("a directory").sentence.contains("no regular file"));
        let missing = secrets(&dir.path().join("missing")).expect_err("nothing is there");
        assert!(missing.sentence.contains("cannot be read"), "{missing}");
        assert!(secrets(Path::new("")).is_ok_and(|secrets| secrets.is_none()));
    }

    #[test]
    fn what_keeps_it_from_starting_is_told() {
        let check = |config: &Config, code: ExitCode, part: &str| {
            let fault = settings(config, 7).err().expect(part);
            assert_eq!(fault.code, code);
            assert!(fault.sentence.contains(part) && fault.sentence.contains("; "), "{fault}");
        };
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = taken.local_addr().expect("it is bound").port();
        check(&config(&format!("127.0.0.1:{port}:9")), ExitCode::ListenFailed, "is in use by another program");
        check(&config("192.0.2.1:2888:9"), ExitCode::Config, "beyond the loopback");
        let mut elsewhere = config("192.0.2.1:2888:9");
        elsewhere.ensemble.allow_plaintext = true;
        let (_dir, path) = secret_file(&"x".repeat(32), 0o400);
        elsewhere.ensemble.secret_file = path;
        check(&elsewhere, ExitCode::ListenFailed, "is no address of this host");
        check(&config("a..b:2888:9"), ExitCode::Config, "does not resolve");
        let unresolved = |host: &str| own_address(&config(&format!("{host}:2888:9"))).expect_err(host).unresolved;
        assert_eq!(unresolved("a..b"), [""; 0], "it never resolves");
        assert_eq!(unresolved("a.invalid"), ["a.invalid"]);
        let mut encrypted = config(&format!("127.0.0.1:{}:9", free_port()));
        encrypted.ensemble.tls_cert = "/nonexistent.pem".into();
        check(&encrypted, ExitCode::Config, "[ensemble] TLS: /nonexistent.pem cannot be read");
    }
}
