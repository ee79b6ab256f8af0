//! `corral health`: asks the probes of a server by HTTP, and prints its health in one line.
//!
//! The main thread, with a runtime of tokio for the one connection.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio_rustls::TlsConnector;

use crate::cli::output;
use crate::exit::{ExitCode, Fault};
use crate::net::tls::outgoing;

/// Of an answer.
const BODY_BYTES_MAX: usize = 64 << 10;
const PORT: u16 = 8080;
/// Characters of the line behind the server.
const TEXT_MAX: usize = 2000;

/// Arguments of `corral health`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's admin address: HOST, HOST:PORT, or https://HOST:PORT
    #[arg(default_value = "127.0.0.1:8080")]
    server: String,
    /// Seconds until a server that does not answer is unreachable
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// File of the authorities of the server's certificate, for https
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// File with a certificate and its key, if the server asks for one
    #[arg(long, value_name = "FILE", requires = "ca")]
    cert: Option<PathBuf>,
}

/// Health, by the codes of plugins for Nagios: 0, 1, 2 and 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Ok,
    /// It serves, and needs an operator.
    Warning,
    /// It accepts no sessions or no writes.
    Critical,
    /// It did not answer.
    Unknown,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Ok => "OK",
            Health::Warning => "WARNING",
            Health::Critical => "CRITICAL",
            Health::Unknown => "UNKNOWN",
        })
    }
}

/// Prints one line. Gives the exit code.
///
/// # Errors
/// If the arguments cannot be used.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    // Its number is that of UNKNOWN.
    let usage = |sentence: String| Fault::new(ExitCode::Config, sentence);
    let target = Target::parse(&arguments.server).map_err(usage)?;
    let tls = if target.is_https {
        let remedy = || "https needs --ca FILE, the authorities of the server's certificate".to_owned();
        let ca = arguments.ca.as_deref().ok_or_else(remedy).map_err(usage)?;
        Some(Arc::new(outgoing(ca, arguments.cert.as_deref()).map_err(usage)?))
    } else if arguments.ca.is_some() {
        return Err(usage(format!("--ca is for https; give https://{}", arguments.server)));
    } else {
        None
    };
    let failed = |error: std::io::Error| Fault::new(ExitCode::Internal, format!("tokio cannot start: {error}"));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let seconds = arguments.timeout;
    let asked = async {
        let ready = ask(&target, tls.clone(), "/readyz?verbose").await?;
        Ok((ready, ask(&target, tls, "/healthz?verbose").await?))
    };
    let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(seconds), asked).await });
    // The system's resolver may still wait.
    runtime.shutdown_background();
    let (health, text) = match answer {
        Ok(Ok((ready, healthy))) => judge(&ready, &healthy),
        Ok(Err(reason)) => (Health::Unknown, reason),
        Err(_) => (Health::Unknown, format!("no answer within {seconds} s")),
    };
    // The server is not trusted with the terminal.
    let shown = |one: char| if one.is_ascii_graphic() || one == ' ' || one.is_alphanumeric() { one } else { '?' };
    let text: String = text.chars().map(shown).take(TEXT_MAX).collect();
    output::print(&format!("{health} {}: {text}\n", target.shown()))?;
    Ok(health as u8)
}

/// An answer: whether it is 200, and its text.
type Answer = (u16, String);

/// Judges the answers of `/readyz?verbose` and `/healthz?verbose`.
fn judge(ready: &Answer, healthy: &Answer) -> (Health, String) {
    let (ready, healthy) = match (Probe::of(ready, "readyz"), Probe::of(healthy, "healthz")) {
        (Ok(ready), Ok(healthy)) => (ready, healthy),
        (Err(reason), _) | (_, Err(reason)) => return (Health::Unknown, reason),
    };
    match (ready.faults.is_empty(), healthy.faults.is_empty()) {
        (true, true) => (Health::Ok, format!("{} are well", healthy.passed.join(", "))),
        (true, false) => (Health::Warning, healthy.faults.join(" | ")),
        (false, _) => (Health::Critical, ready.faults.join(" | ")),
    }
}

/// The checks of a probe.
struct Probe<'a> {
    passed: Vec<&'a str>,
    faults: Vec<&'a str>,
}

impl Probe<'_> {
    /// The checks in an answer of the probe of this name.
    fn of<'a>((status, text): &'a Answer, name: &str) -> Result<Probe<'a>, String> {
        let lines = |mark| text.lines().filter_map(move |line: &str| line.strip_prefix(mark));
        let passed: Vec<&str> = lines("[+]").filter_map(|line| line.strip_suffix(" ok")).collect();
        let mut faults: Vec<&str> = lines("[-]").collect();
        let is_whole = |end: &str| text.lines().next_back() == Some(&format!("{name} check {end}"));
        match status {
            503 if text.starts_with("the server stops") => faults = vec!["the server stops"],
            200 if is_whole("passed") && faults.is_empty() && !passed.is_empty() => {}
            503 if is_whole("failed") && !faults.is_empty() => {}
            _ => {
                let first = text.lines().next().unwrap_or("no text");
                return Err(format!(
                    "/{name} answers with status {status}: {first}; is it the admin address of corral?"
                ));
            }
        }
        Ok(Probe { passed, faults })
    }
}

/// Where a server is asked.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    is_https: bool,
    host: String,
    port: u16,
}

impl Target {
    fn parse(text: &str) -> Result<Target, String> {
        let wrong = || format!("{text:?} is no server; give HOST, HOST:PORT or https://HOST:PORT");
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        // An IPv6 address without brackets has no port.
        let with_scheme = match text.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("http://[{address}]"),
            _ => with_scheme,
        };
        let uri: Uri = with_scheme.parse().map_err(|_| wrong())?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let has_port = uri.port_u16().is_some() || authority.len() == uri.host().map_or(0, str::len);
        if host.is_empty() || !is_bare || !has_port || authority.contains('@') {
            return Err(wrong());
        }
        Ok(Target { is_https, host, port: uri.port_u16().unwrap_or(PORT) })
    }

    fn shown(&self) -> String {
        let (left, right) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        format!("{left}{}{right}:{}", self.host, self.port)
    }
}

async fn ask(target: &Target, tls: Option<Arc<rustls::ClientConfig>>, path: &str) -> Result<Answer, String> {
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|error| format!("not reached: {error}; start the server, or give its admin.http_addr"))?;
    let Some(config) = tls else { return request(stream, target, path).await };
    let name =
        ServerName::try_from(target.host.clone()).map_err(|_| "the host is no name of a certificate".to_owned())?;
    let failed = |error: std::io::Error| format!("TLS failed: {error}; check --ca, --cert and the server's admin.tls");
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(failed)?;
    request(stream, target, path).await
}

async fn request(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    target: &Target,
    path: &str,
) -> Result<Answer, String> {
    let failed = |error: hyper::Error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("no answer by HTTP: {cause}; check the address, https, and --cert if the server asks for certificates")
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", target.shown()).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| format!("the request cannot be made: {error}"))?;
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("the answer is not whole: {error}"))?.to_bytes();
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_as_they_are_written() {
        let parse = |text: &str| Target::parse(text).map(|target| (target.is_https, target.shown()));
        let at = |is_https: bool, shown: &str| Ok((is_https, shown.to_owned()));
        assert_eq!(parse("host"), at(false, "host:8080"));
        assert_eq!(parse("10.0.0.1:99"), at(false, "10.0.0.1:99"));
        assert_eq!(parse("::1"), at(false, "[::1]:8080"));
        assert_eq!(parse("[::1]:99"), at(false, "[::1]:99"));
        assert_eq!(parse("https://host:8443/"), at(true, "host:8443"));
        for wrong in ["", "ftp://host", "host:port", "host/path", "user@host", "a b", "http://"] {
            assert!(Target::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn health_follows_from_both_probes() {
        let ready = (200, "[+]leader ok\n[+]serving ok\nreadyz check passed\n".to_owned());
        let well = (200, "[+]leader ok\n[+]serving ok\nhealthz check passed\n".to_owned());
        let needy = (503, "[+]leader ok\n[-]data failed: it differs; look\nhealthz check failed\n".to_owned());
        let down = (503, "[-]leader failed: none leads\n[-]serving failed: none\nreadyz check failed\n".to_owned());
        let stops = (503, "the server stops\n".to_owned());
        assert_eq!(judge(&ready, &well), (Health::Ok, "leader, serving are well".to_owned()));
        assert_eq!(judge(&ready, &needy), (Health::Warning, "data failed: it differs; look".to_owned()));
        let expect = "leader failed: none leads | serving failed: none";
        assert_eq!(judge(&down, &needy), (Health::Critical, expect.to_owned()));
        assert_eq!(judge(&stops, &stops), (Health::Critical, "the server stops".to_owned()));
        let others =
            [(404, ""), (200, ""), (200, "<html>"), (200, "[-]leader failed\nreadyz check passed\n"), (503, "busy")];
        for (status, text) in others {
            let (health, reason) = judge(&(status, text.to_owned()), &well);
            assert_eq!(health, Health::Unknown);
            assert!(reason.starts_with(&format!("/readyz answers with status {status}: ")), "{reason}");
        }
        assert_eq!(judge(&ready, &(404, String::new())).0, Health::Unknown);
    }
}
