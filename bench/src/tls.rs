//! TLS of the load generator: the files of its flags, and the record layer of one socket.
//!
//! One certificate for all sessions. Nothing blocks: the socket says when it can be read and written.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The flags of TLS.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Speak TLS, and trust the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// PEM file of the client's certificate
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of the client's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The only cipher suite to offer, by rustls's name, as TLS13_AES_128_GCM_SHA256
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_cipher: Option<String>,
}

impl TlsArgs {
    /// The configuration of all sessions; `None` without TLS.
    ///
    /// # Errors
    /// When a file cannot be used, or the cipher suite is not known.
    pub(crate) fn config(&self) -> Result<Option<Arc<ClientConfig>>> {
        let Some(ca) = &self.tls_ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_file_iter(ca).with_context(|| format!("--tls-ca {}", ca.display()))? {
            roots.add(authority.with_context(|| format!("--tls-ca {}", ca.display()))?)?;
        }
        let mut provider = default_provider();
        if let Some(name) = &self.tls_cipher {
            provider.cipher_suites.retain(|suite| format!("{:?}", suite.suite()) == *name);
            ensure!(!provider.cipher_suites.is_empty(), "--tls-cipher {name} is not known");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_file_iter(cert).and_then(|found| found.collect()).map_err(anyhow::Error::from);
                let chain = chain.with_context(|| format!("--tls-cert {}", cert.display()))?;
                let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("--tls-key {}", key.display()))?;
                builder.with_client_auth_cert(chain, key)?
            }
            _ => builder.with_no_client_auth(),
        };
        // Each session has a whole handshake.
        config.resumption = Resumption::disabled();
        Ok(Some(Arc::new(config)))
    }
}

/// A socket, with TLS or without.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, server: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let connection = |config: &Arc<ClientConfig>| {
            let mut connection = ClientConnection::new(Arc::clone(config), server.ip().into())?;
            connection.set_buffer_limit(None);
            anyhow::Ok(Box::new(connection))
        };
        Ok(Self { stream, tls: tls.map(connection).transpose()? })
    }
}

impl Write for Socket {
    /// With TLS all bytes are taken, and are sent as far as the socket takes them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.write(bytes) };
        let count = tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends encrypted bytes that wait. `WouldBlock` if the socket takes no more.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.stream)?;
            }
        }
        Ok(())
    }
}

impl Read for Socket {
    /// With TLS it reads the socket until there are decrypted bytes, or `WouldBlock`.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.stream.read(buffer);
        }
        let mut count = 0;
        while let Some(tls) = &mut self.tls {
            match tls.read_tls(&mut self.stream) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && count > 0 => break,
                Err(error) => return Err(error),
            }
            tls.process_new_packets().map_err(io::Error::other)?;
            match tls.reader().read(&mut buffer[count..]) {
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.flush() {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            // Room for two more records, whatever they hold.
            if count + (32 << 10) > buffer.len() {
                break;
            }
        }
        Ok(count)
    }
}
