//! Questions to a running server by HTTP, at its admin address.
//!
//! The main thread, with a runtime of tokio for the connections.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::DATE;
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::cli::output::{plain, runtime};
use crate::exit::{ExitCode, Fault};
use crate::net::tls::outgoing;

/// Of an answer.
const BODY_BYTES_MAX: usize = 64 << 10;
const PORT: u16 = 8080;
/// The admin address of this host.
pub(super) const LOCAL: &str = "127.0.0.1:8080";
/// Begins the reason if the server does not listen.
pub(super) const NOT_REACHED: &str = "not reached: ";
/// A large answer may have to be prepared.
const PREPARED_WITHIN: Duration = Duration::from_secs(600);

/// Status and text.
pub(super) type Answer = (u16, String);

/// An answer with the times of both clocks.
pub(super) struct TimedAnswer {
    pub(super) answer: Answer,
    /// The header `Date`, empty without one.
    pub(super) date: String,
    /// This host's clock before the request.
    pub(super) sent: SystemTime,
    /// This host's clock when the headers had come.
    pub(super) received: SystemTime,
}

/// The server that is asked.
#[derive(Args)]
pub(super) struct Server {
    /// The server's admin address: HOST, HOST:PORT, or https://HOST:PORT
    #[arg(default_value = LOCAL)]
    server: String,
    #[command(flatten)]
    connect: Connect,
}

/// How servers are asked.
#[derive(Args)]
pub(super) struct Connect {
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

impl Server {
    /// As [`Connect::ask`], without the times.
    ///
    /// # Errors
    /// A `Config` fault if the arguments cannot be used.
    pub(super) fn ask(&self, paths: &[&str]) -> Result<(String, Result<Vec<Answer>, String>), Fault> {
        let (target, answers) = self.connect.ask(&self.server, paths)?;
        Ok((target, answers.map(|answers| answers.into_iter().map(|timed| timed.answer).collect())))
    }

    /// Sends a GET with an `Authorization` header, and gives the answer to `take`: its headers, and then each part of its body. Another
    /// status than 200 is an error, with the text of the body.
    ///
    /// # Errors
    /// If the arguments cannot be used, the server does not answer, or sends nothing for the time-out, or `take` fails.
    pub(super) fn fetch(&self, path: &str, authorization: &str, take: &mut Take<'_>) -> Result<(), Fault> {
        let (target, tls) = self.connect.target(&self.server)?;
        let (runtime, limit) = (runtime()?, Duration::from_secs(self.connect.timeout));
        let fetched = runtime.block_on(fetch(&target, tls, (path, authorization), limit, take));
        runtime.shutdown_background();
        fetched
    }
}

impl Connect {
    /// The server as HOST:PORT, and its answers to GETs of these paths, one after the other; or the reason why it does not answer.
    ///
    /// # Errors
    /// A `Config` fault if the arguments cannot be used.
    pub(super) fn ask(
        &self,
        server: &str,
        paths: &[&str],
    ) -> Result<(String, Result<Vec<TimedAnswer>, String>), Fault> {
        let (target, tls) = self.target(server)?;
        let (runtime, seconds) = (runtime()?, self.timeout);
        let all = async {
            let mut answers = Vec::new();
            for path in paths {
                answers.push(ask(&target, tls.clone(), path).await?);
            }
            Ok(answers)
        };
        let answers = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(seconds), all).await });
        // The system's resolver may still wait.
        runtime.shutdown_background();
        Ok((target.shown(), answers.unwrap_or_else(|_| Err(format!("no answer within {seconds} s")))))
    }

    fn target(&self, server: &str) -> Result<(Target, Option<Arc<rustls::ClientConfig>>), Fault> {
        let usage = |sentence: String| Fault::new(ExitCode::Config, sentence);
        let target = Target::parse(server).map_err(usage)?;
        let tls = if target.is_https {
            let remedy = || "https needs --ca FILE, the authorities of the server's certificate".to_owned();
            let ca = self.ca.as_deref().ok_or_else(remedy).map_err(usage)?;
            Some(Arc::new(outgoing(ca, self.cert.as_deref()).map_err(usage)?))
        } else if self.ca.is_some() {
            return Err(usage(format!("--ca is for https; give https://{server}")));
        } else {
            None
        };
        Ok((target, tls))
    }
}

/// The `Authorization` header with the first token of a file.
///
/// # Errors
/// If the file cannot be read, or has none.
pub(super) fn bearer(file: &Path) -> Result<String, Fault> {
    let token = fs::read_to_string(file)
        .map_err(|error| Fault::new(ExitCode::Config, format!("{}: cannot be read: {error}", file.display())))?;
    let token = token.lines().map(str::trim).find(|line| !line.is_empty());
    let missing = || Fault::new(ExitCode::Config, format!("{}: it has no token", file.display()));
    token.map(|token| format!("Bearer {token}")).ok_or_else(missing)
}

/// A part of an answer.
pub(super) enum Part<'a> {
    Headers(&'a HeaderMap),
    Body(&'a [u8]),
}

/// Is given the parts of an answer.
pub(super) type Take<'t> = dyn FnMut(Part<'_>) -> Result<(), Fault> + 't;

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

async fn ask(target: &Target, tls: Option<Arc<rustls::ClientConfig>>, path: &str) -> Result<TimedAnswer, String> {
    let sent = SystemTime::now();
    let response = respond(target, tls, (path, "")).await?;
    let received = SystemTime::now();
    let (status, date) = (response.status().as_u16(), response.headers().get(DATE));
    let date = date.and_then(|date| date.to_str().ok()).unwrap_or_default().to_owned();
    Ok(TimedAnswer { answer: (status, text(response.into_body()).await?), date, sent, received })
}

async fn text(body: Incoming) -> Result<String, String> {
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("the answer is not whole: {error}"))?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

async fn fetch(
    target: &Target,
    tls: Option<Arc<rustls::ClientConfig>>,
    request: (&str, &str),
    limit: Duration,
    take: &mut Take<'_>,
) -> Result<(), Fault> {
    let failed = |reason: String| Fault::new(ExitCode::Internal, format!("{}: {reason}", target.shown()));
    let late = |_| failed(format!("no answer within {} s", PREPARED_WITHIN.as_secs()));
    let response = timeout(PREPARED_WITHIN, respond(target, tls, request)).await.map_err(late)?.map_err(failed)?;
    let silent = |_| failed(format!("nothing came for {} s", limit.as_secs()));
    let status = response.status().as_u16();
    if status != 200 {
        let text = timeout(limit, text(response.into_body())).await.map_err(silent)?.map_err(failed)?;
        return Err(failed(format!("status {status}: {}", plain(&refusal(status, &text)))));
    }
    take(Part::Headers(response.headers()))?;
    let mut body = response.into_body();
    while let Some(frame) = timeout(limit, body.frame()).await.map_err(silent)? {
        let frame = frame.map_err(|error| failed(format!("the answer is not whole: {error}")))?;
        frame.data_ref().map_or(Ok(()), |bytes| take(Part::Body(bytes)))?;
    }
    Ok(())
}

/// The reason in the answer of a command.
fn refusal(status: u16, answer: &str) -> String {
    let fields: Option<serde_json::Value> = serde_json::from_str(answer).ok();
    let error = fields.as_ref().and_then(|fields| fields.get("error")?.as_str()).unwrap_or(answer.trim());
    match status {
        401 | 403 if !error.contains("admin.") => {
            format!("{error}; give a file with a token of the server's admin.token_file")
        }
        _ => error.to_owned(),
    }
}

/// Path and `Authorization` header of a request, its answer's head.
async fn respond(
    target: &Target,
    tls: Option<Arc<rustls::ClientConfig>>,
    wanted: (&str, &str),
) -> Result<Response<Incoming>, String> {
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|error| format!("{NOT_REACHED}{error}; start the server, or give its admin.http_addr"))?;
    let Some(config) = tls else { return request(stream, target, wanted).await };
    let name =
        ServerName::try_from(target.host.clone()).map_err(|_| "the host is no name of a certificate".to_owned())?;
    let failed = |error: std::io::Error| format!("TLS failed: {error}; check --ca, --cert and the server's admin.tls");
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(failed)?;
    request(stream, target, wanted).await
}

async fn request(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    target: &Target,
    (path, authorization): (&str, &str),
) -> Result<Response<Incoming>, String> {
    let failed = |error: hyper::Error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("no answer by HTTP: {cause}; check the address, https, and --cert if the server asks for certificates")
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    let mut request = Request::get(path).header("host", target.shown());
    if !authorization.is_empty() {
        request = request.header("authorization", authorization);
    }
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(|error| format!("the request cannot be made: {error}"))?;
    sender.send_request(request).await.map_err(failed)
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
}
