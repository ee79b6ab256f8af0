//! Mutual TLS: admitted servers, refused servers, and the logs of both sides.

use super::*;
use crate::net::peers::tls::{Files, Tls};
use crate::net::tls::certificates::Certificates as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

/// Signs certificates for a test.
pub(in crate::net::peers) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are legal");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("there is randomness");
        Authority { issuer: CertifiedIssuer::self_signed(params, key).expect("it can be signed") }
    }

    /// PEM of a certificate for these names, and of its key.
    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are legal");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("there is randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// PEM of a good certificate for these names, of its key and of this authority.
    pub(crate) fn pem(&self, names: &[&str]) -> (String, String, String) {
        let (cert, key) = self.sign(names, |_| ());
        (cert, key, self.issuer.pem())
    }

    /// The configuration of a server with a good certificate for these names, which trusts this authority.
    pub(super) fn tls(&self, names: &[&str]) -> Tls {
        self.load(self, names, |_| ())
    }

    /// The same with any certificate of this authority, where another one is trusted.
    fn load(&self, trusted: &Authority, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Tls {
        let (cert, key) = self.sign(names, change);
        loaded(&cert, &key, &trusted.issuer.pem()).expect("the files are good")
    }
}

fn loaded(cert: &str, key: &str, ca: &str) -> Result<Tls, String> {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("the directory is writable");
        path
    };
    Tls::load(Files::pem(&path("cert.pem", cert), &path("key.pem", key), &path("ca.pem", ca)))
        .map_err(|sentence| sentence.replace(&format!("{}/", dir.path().display()), ""))
}

/// Servers 1 and 2, each with its own part of TLS; they need not connect.
fn with(first_tls: Option<Tls>, second_tls: Option<Tls>) -> (Server, Server) {
    let (first, second) = (listener(), listener());
    let peers = vec![address(1, port(&first)), address(2, port(&second))];
    let first = Server::start(1, 11, first, peers.clone(), |settings| settings.tls = first_tls);
    let second = Server::start(2, 22, second, peers, |settings| settings.tls = second_tls);
    (first, second)
}

/// Checks the log of the first about its dials, then about the servers that dial it.
#[track_caller]
fn check_refused((first, second): (Server, Server), out: &str, inward: &str) {
    logged(&["is not reached", &format!("127.0.0.1:{}", second.port), out]);
    until("the second is refused", || second.connections.stats()[0].dials_failed > 0);
    // The address of the dialling server is any; the words are those of this case.
    logged(&["to the port for servers is refused", inward]);
    assert!(first.events.is_empty() && second.events.is_empty());
}

#[test]
fn both_prove_who_they_are_by_host_or_id() {
    let authority = Authority::new("good");
    for names in [["127.0.0.1", "one.example"], ["server-1", "server-2"]] {
        let (first, second) = with(Some(authority.tls(&names)), Some(authority.tls(&names)));
        for (server, incarnation) in [(&first, 22), (&second, 11)] {
            assert_eq!(server.both_up(), incarnation);
        }
        let payload = vec![5; 3 << 20];
        first.send(2, Kind::Forward, &payload).expect("there is room");
        second.send(1, Kind::Heartbeat, b"heartbeat").expect("there is room");
        assert_eq!(second.frames(1)[0].1, payload);
        assert_eq!(first.frames(1)[0].1, "heartbeat");
        assert!(first.connections.stop());
        let downs = [second.down_any(), second.down_any()];
        assert_eq!(downs, [Reason::Closed, Reason::Closed]);
    }
    logged(&["connected to the peer", "tls=true"]);
}

#[test]
fn a_foreign_authority() {
    let (good, bad) = (Authority::new("good"), Authority::new("bad"));
    let pair = with(Some(good.tls(&["127.0.0.1"])), Some(bad.tls(&["127.0.0.1"])));
    let words = "not signed by an authority this server trusts; name the authority";
    check_refused(pair, words, "");
    // Only one side trusts.
    let pair = with(Some(good.tls(&["127.0.0.1"])), Some(good.load(&bad, &["127.0.0.1"], |_| ())));
    check_refused(
        pair,
        "it does not trust the authority that signed this server's certificate",
        "does not trust the authority",
    );
}

#[test]
fn an_expired_certificate() {
    let authority = Authority::new("good");
    let expired = authority.load(&authority, &["127.0.0.1"], |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    let pair = with(Some(authority.tls(&["127.0.0.1"])), Some(expired));
    check_refused(pair, "its certificate has expired", "certificate has expired");
    let early = authority.load(&authority, &["127.0.0.1"], |params| params.not_before = date_time_ymd(2090, 1, 1));
    let pair = with(Some(authority.tls(&["127.0.0.1"])), Some(early));
    check_refused(pair, "its certificate is not valid yet", "certificate is not valid yet");
}

#[test]
fn a_certificate_for_somebody_else() {
    let authority = Authority::new("good");
    let pair = with(Some(authority.tls(&["127.0.0.1"])), Some(authority.tls(&["10.0.0.9", "server-1", "other"])));
    check_refused(
        pair,
        "its certificate is neither for \"127.0.0.1\", the host that server 2 is configured with, nor for \"server-2\"",
        "its certificate is neither for \"127.0.0.1\", the host that server 2 is configured with",
    );
}

#[test]
fn a_certificate_for_servers_alone() {
    let authority = Authority::new("good");
    let one_way = authority.load(&authority, &["127.0.0.1"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let (first, _second) = with(Some(authority.tls(&["127.0.0.1"])), Some(one_way));
    // It may be dialled, and may not dial.
    first.up(Direction::Out);
    logged(&["to the port for servers is refused", "its certificate is not for this use"]);
}

#[test]
fn no_client_certificate() {
    let authority = Authority::new("good");
    let server = Server::start(1, 11, listener(), vec![address(2, 1)], |settings| {
        settings.tls = Some(authority.tls(&["127.0.0.1"]));
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).expect("it is an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has it")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("an address");
    let tls = rustls::ClientConnection::new(Arc::new(config), name).expect("it can begin");
    let mut stream = rustls::StreamOwned::new(tls, connected(server.port));
    let from = stream.sock.local_addr().expect("it has one").to_string();
    let handshake = handshake();
    let _ = stream.write_all(&handshake.encode());
    assert!(stream.read(&mut [0; 1]).is_err());
    logged(&[&from, "a certificate is demanded of both sides"]);
    assert!(server.events.is_empty());
}

#[test]
fn plaintext_to_tls_and_the_reverse() {
    let authority = Authority::new("good");
    let pair = with(None, Some(authority.tls(&["127.0.0.1"])));
    check_refused(
        pair,
        "it closed the connection instead of answering: it has just ended, or its log says why",
        "it speaks TLS, and this server does not",
    );
    let pair = with(Some(authority.tls(&["127.0.0.1"])), None);
    check_refused(
        pair,
        "it closed the connection instead of speaking TLS: it has just ended, or its log says why",
        "it is a server that does not speak TLS, and this one does",
    );
}

#[test]
fn a_server_that_moved_is_known_by_its_new_host() {
    let authority = Authority::new("good");
    let dir = tempfile::tempdir().expect("a directory can be made");
    let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.path().join(name));
    let write = |name: &str| {
        let (cert_text, key_text, ca_text) = authority.pem(&[name]);
        for (path, text) in [(&cert, cert_text), (&key, key_text), (&ca, ca_text)] {
            std::fs::write(path, text).expect("the directory is writable");
        }
    };
    let at = |host: &str| PeerAddress { host: host.to_owned(), ..address(1, 1) };
    write("old.example");
    let tls = Tls::load(Files::pem(&cert, &key, &ca))
        .and_then(|tls| tls.of_server(at("old.example")))
        .expect("it is for that host");
    let given = tls.clone();
    let server = Server::start(1, 11, listener(), vec![address(2, 1)], |settings| settings.tls = Some(given));
    write("new.example");
    let refused = tls.reload().expect_err("the server is known by its old host");
    assert!(
        refused.contains("the other servers would refuse this one") && refused.contains("old.example"),
        "{refused}"
    );
    server.connections.configure(vec![at("new.example"), address(2, 1)]).expect("threads can be started");
    tls.reload().expect("it is for the host of the list");
    write("old.example");
    assert!(tls.reload().is_err());
}

#[test]
fn noise_in_place_of_a_handshake() {
    let authority = Authority::new("good");
    let server = Server::start(1, 11, listener(), vec![address(2, 1)], |settings| {
        settings.tls = Some(authority.tls(&["127.0.0.1"]));
    });
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff], &[0x16, 3, 3, 0, 4, 1, 0, 0, 0], &[0; 500]]
    {
        let mut socket = connected(server.port);
        socket.write_all(bytes).expect("somebody listens");
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.len() < 100);
    }
    assert!(server.events.is_empty());
}

#[test]
fn files_that_are_none() {
    let authority = Authority::new("good");
    let (cert, key) = authority.sign(&["a"], |_| ());
    let ca = authority.issuer.pem();
    assert!(loaded(&cert, &key, &ca).is_ok());
    let check = |cert: &str, key: &str, ca: &str, expect: &str| {
        let sentence = loaded(cert, key, ca).err().expect(expect);
        assert!(sentence.starts_with(expect), "{sentence}");
        assert!(sentence.contains("; "), "{sentence}");
    };
    check("", &key, &ca, "cert.pem is empty");
    check(&cert[..cert.len() / 2], &key, &ca, "cert.pem: ");
    check(&cert, "", &ca, "key.pem is empty");
    check(&cert, &cert, &ca, "key.pem: no private key is in it");
    check(&cert, &key, "", "ca.pem is empty");
    let (_, other) = authority.sign(&["a"], |_| ());
    check(&cert, &other, &ca, "cert.pem and key.pem cannot be used");
    let missing =
        Tls::load(Files::pem("/nonexistent/x".as_ref(), "/nonexistent/y".as_ref(), "/nonexistent/z".as_ref()));
    assert!(missing.is_err_and(|sentence| sentence.starts_with("/nonexistent/x cannot be read: No such file")));
}

#[test]
fn the_documented_commands_make_certificates_that_work() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/rotate-certificates.md");
    let page = std::fs::read_to_string(page).expect("the page is in the repository");
    let section = page.split("## TLS between servers").nth(1).expect("the section is on the page");
    let block =
        section.lines().skip_while(|line| !line.starts_with("    ")).take_while(|line| line.starts_with("    "));
    let commands: String = block.map(|line| format!("{}\n", line.trim_start_matches("    "))).collect();
    let dir = tempfile::tempdir().expect("a directory can be made");
    let run = |program: &str, arguments: &[&str]| {
        std::process::Command::new(program).args(arguments).current_dir(dir.path()).output()
    };
    if run("openssl", &["version"]).is_err() {
        return println!("not looked at: openssl is not installed");
    }
    let made = run("sh", &["-ec", &commands]).expect("sh can be run");
    assert!(made.status.success(), "{commands}: {}", String::from_utf8_lossy(&made.stderr));
    let tls = |name: &str| {
        let file = |extension: &str| dir.path().join(format!("{name}.{extension}"));
        Tls::load(Files::pem(&file("pem"), &file("key"), &dir.path().join("ca.pem"))).expect("the files are good")
    };
    let (first, second) = with(Some(tls("server-1")), Some(tls("server-2")));
    assert_eq!(first.both_up(), 22);
    // The third one has another identity than it should.
    let pair = with(Some(tls("server-1")), Some(tls("server-3")));
    check_refused(pair, "its certificate is neither for", "its certificate is neither for");
    assert!(second.connections.stop());
}
