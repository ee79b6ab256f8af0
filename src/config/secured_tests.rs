//! The keys of a secured ZooKeeper, from its file to a checked configuration.

use std::fs;

use super::value::{ClientAuth, DigestAlgorithm, OnClientAddr};
use super::*;

fn load_zoo(text: &str, overrides: &[Override]) -> Result<Loaded, String> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("zoo.cfg");
    fs::write(&path, text).expect("the directory is writable");
    load(Some(&path), overrides).map_err(|fault| fault.sentence)
}

/// The keys of a secured ZooKeeper have the same meaning here.
#[test]
fn zoo_keys_of_tls() {
    let zoo = |text: &str| load_zoo(text, &[]);
    let stores = "ssl.keyStore.location=/k.jks\nssl.keyStore.password=hidden-word\nssl.trustStore.location=/t.p12\n\
                  ssl.trustStore.passwordPath=/pw\nssl.keyStore.type=JKS";
    let loaded = zoo(&format!(
        "dataDir=/z\nclientPort=2182\nsecureClientPort=2281\nsecureClientPortAddress=127.0.0.1\n{stores}\n\
                               ssl.clientAuth=WANT\nssl.enabledProtocols=TLSv1.1,TLSv1.2\nclient.portUnification=true\n\
                               client.certReload=true\nssl.handshakeDetectionTimeoutMillis=700\n\
                               ssl.ciphersuites=TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256\n\
                               netty.server.outstandingHandshake.limit=-1"
    ));
    let Loaded { config, warnings, .. } = loaded.expect("all values are good");
    let tls = &config.tls;
    assert_eq!(tls.client_addr, "127.0.0.1:2281".parse().ok());
    assert_eq!((tls.client_auth, tls.on_client_addr, tls.watch), (ClientAuth::Want, OnClientAddr::Also, true));
    assert_eq!(
        (&*tls.protocols.0, &*tls.cipher_suites.0),
        (&["TLSv1.2".to_owned()][..], &["TLS_AES_128_GCM_SHA256".to_owned()][..])
    );
    assert_eq!((tls.detection_ms, tls.handshakes_max, tls.key_store_password.0.as_str()), (700, 1000, "hidden-word"));
    assert!(
        config.security.x509_acls && warnings.iter().any(|warning| warning.contains("TLS_RSA_WITH_AES_128_CBC_SHA"))
    );
    // Without a plain port the secure one is the port for clients.
    let alone = zoo(&format!("dataDir=/z\nsecureClientPort=2281\n{stores}")).expect("all values are good").config;
    assert_eq!((alone.server.client_addr.port(), alone.tls.client_addr), (2281, None));
    assert_eq!(alone.tls.on_client_addr, OnClientAddr::Only);
    // Without a port for TLS its keys mean nothing, there as here.
    assert!(!tls::is_served(&zoo(&format!("dataDir=/z\nclientPort=1\n{stores}")).expect("it is ignored").config));
    for (line, part) in [
        ("ssl.keyStore.type=BCFKS", "keytool -importkeystore"),
        ("ssl.crl=true", "--set tls.crl_file=FILE"),
        ("ssl.ocsp=true", "is not offered"),
        ("ssl.clientAuth=maybe", "give one of"),
        ("ssl.ciphersuites=TLS_RSA_WITH_AES_128_CBC_SHA", "none of the cipher suites is served"),
        ("ssl.enabledProtocols=TLSv1", "names no protocol that is served"),
        ("ssl.trustStore.locaton=/t", "the key is not known; write ssl.trustStore.location"),
    ] {
        let text = format!("dataDir=/z\nclientPort=2182\nsecureClientPort=2281\n{stores}\n{line}");
        let refused = zoo(&text).expect_err(line);
        assert!(refused.contains(part) && !refused.contains("hidden-word"), "{refused}");
    }
    let bare = zoo("dataDir=/z\nclientPort=2182\nsecureClientPort=2281").expect_err("there is no key");
    assert!(bare.contains("tls.key_store: TLS is served") && bare.contains("tls.trust_store: clients"), "{bare}");
}

/// ZooKeeper's demands on clients are demanded here; a demand that no client can meet ends the start.
#[test]
fn zoo_keys_of_authentication() {
    let security = |lines: &str| {
        let flag = Override::text("--set", "security.sasl_jaas_file", "/jaas.conf");
        load_zoo(&format!("dataDir=/z\nclientPort=2182\n{lines}\n"), &[flag]).map(|loaded| loaded.config.security)
    };
    let both = "enforce.auth.enabled=true\nenforce.auth.schemes=digest, sasl\nsuperUser=admin\nsuperUser.2=root\n\
                letAnySaslUserDoX=all\nallowSaslFailedClients=true\nSASLAuthenticationProvider.superPassword=pw\nsasl.serverconfig=ZK";
    let found = security(both).expect("all values are good");
    assert_eq!(found.enforce_schemes.0, ["digest", "sasl"]);
    assert_eq!(found.sasl_super_users.0, ["admin", "root"]);
    assert!(found.allow_sasl_failed_clients && found.sasl_acls);
    assert_eq!((&*found.sasl_super_password.0, &*found.sasl_jaas_section.0), ("pw", "ZK"));
    assert_eq!(found.sasl_any_user.0, "all");
    assert_eq!(security("sessionRequireClientSASLAuth=true").expect("it is good").enforce_schemes.0, ["sasl"]);
    assert!(security("enforce.auth.schemes=sasl").expect("it is not enabled").enforce_schemes.0.is_empty());
    for (name, hash) in
        [("SHA", DigestAlgorithm::Sha1), ("sha256", DigestAlgorithm::Sha256), ("SHA3-512", DigestAlgorithm::Sha3_512)]
    {
        let found = security(&format!("DigestAuthenticationProvider.digestAlg={name}")).expect("it is a hash");
        assert_eq!(found.digest_algorithm, hash);
    }
    assert!(security("DigestAuthenticationProvider.digestAlg=MD5").is_err());
    let refused = security("letAnySaslUserDoX=super").expect_err("every user would pass every ACL");
    assert!(refused.contains("security.sasl_any_user"), "{refused}");
    for (line, part) in [
        ("enforce.auth.schemes=x509", "no client is asked for a certificate"),
        ("enforce.auth.schemes=kerberos", "not a scheme"),
        ("enforce.auth.schemes=digest\nDigestAuthenticationProvider.enabled=false", "there is no digest scheme"),
    ] {
        let refused = security(&format!("enforce.auth.enabled=true\n{line}")).expect_err(line);
        assert!(refused.contains(part), "{refused}");
    }
}

/// The port for administration listens on the loopback unless the file says otherwise.
#[test]
fn zoo_keys_of_admin() {
    let zoo = |lines: &str| load_zoo(&format!("dataDir=/z\nclientPort=2182\n{lines}\n"), &[]);
    let admin = |lines: &str| zoo(lines).expect(lines).config.admin;
    let address = |lines: &str| admin(lines).http_addr.to_string();
    assert_eq!(address(""), "127.0.0.1:8080");
    assert_eq!(address("admin.serverPort=9090"), "127.0.0.1:9090");
    assert_eq!(address("admin.serverAddress=10.0.0.1"), "10.0.0.1:8080");
    assert_eq!(address("admin.serverAddress=::1\nadmin.serverPort=1"), "[::1]:1");
    assert!(!admin("admin.enableServer=false").enabled);
    let all = admin("admin.commandURL=/zk\nadmin.idleTimeout=5000\nadmin.httpVersion=11");
    assert_eq!((all.command_url.0.as_str(), all.idle_timeout_ms), ("/zk", 5000));
    let flag = |name: &str, value: &str| Override::text("--set", name, value);
    let stores = [flag("tls.key_store", "/k.pem"), flag("tls.trust_store", "/t.pem")];
    for (line, tls) in [("admin.portUnification", OnClientAddr::Also), ("admin.forceHttps", OnClientAddr::Only)] {
        let text = format!("dataDir=/z\nclientPort=2182\n{line}=true\nadmin.needClientAuth=true\n");
        let loaded = load_zoo(&text, &stores).expect(line);
        assert_eq!((loaded.config.admin.tls, loaded.config.admin.client_auth), (tls, ClientAuth::Need));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
    for (line, part) in [
        ("admin.serverPort=x", "zoo.cfg:3: admin.serverPort"),
        ("admin.commandURL=commands", "is no path of a URL"),
        ("admin.commandURL=/metrics", "is no path of a URL"),
        ("admin.commandURL=/{a}", "is no path of a URL"),
        ("admin.portUnification=true", "tls.key_store"),
        ("admin.needClientAuth=true", "the port serves no TLS"),
        ("admin.serverAddress=::\nadmin.serverPort=2182", "[::]:2182 is the address of server.client_addr, too"),
    ] {
        let refused = zoo(line).expect_err(line);
        assert!(refused.contains(part), "{refused}");
    }
    let changes = load_zoo(
        "dataDir=/z\nclientPort=2182\n",
        &[Override { value: Raw::Boolean(true), ..flag("admin.allow_changes", "") }],
    );
    assert!(changes.is_err_and(|refused| refused.contains("admin.token_file")));
}
