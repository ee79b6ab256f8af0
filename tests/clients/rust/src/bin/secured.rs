//! Lists the root of a secured server. Arguments: HOST:PORT, the milliseconds after which there is no session, then the files of the
//! authority, the certificate and the key, then user and password. `-` stands for none. The answer: served, or refused.

use std::env;
use std::error::Error;
use std::fs::read_to_string;
use std::time::Duration;

use zookeeper_client::{Client, SaslOptions, TlsOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, limit, authority, certificate, key, user, password] = &arguments[..] else {
        return Err("wants seven arguments".into());
    };
    let mut connector = Client::connector();
    if user != "-" {
        connector = connector.with_sasl(SaslOptions::digest_md5(user.clone(), password.clone()));
    }
    let is_tls = authority != "-";
    if is_tls {
        let mut options = TlsOptions::new().with_pem_ca(&read_to_string(authority)?)?;
        if certificate != "-" {
            options = options.with_pem_identity(&read_to_string(certificate)?, &read_to_string(key)?)?;
        }
        connector = connector.with_tls(options);
    }
    let list = async {
        let client = if is_tls { connector.secure_connect(address).await? } else { connector.connect(address).await? };
        client.list_children("/").await
    };
    let outcome = tokio::time::timeout(Duration::from_millis(limit.parse()?), list).await;
    eprintln!("{outcome:?}");
    println!("{}", if matches!(outcome, Ok(Ok(_))) { "served" } else { "refused" });
    Ok(())
}
