//! A connection that has not said hello, or not all of it.
//!
//! Lives on the door's thread; never blocks. It reads no byte beyond the hello.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Instant;

use corral_link::hello::HELLO_BYTES;
use corral_link::stranger::Stranger;
use corral_link::{Hello, HelloError};

use crate::net::peers::channel::Channel;
use crate::net::peers::tls;

/// See the module.
pub(crate) struct Guest {
    pub(crate) channel: Channel,
    pub(crate) from: SocketAddr,
    pub(crate) deadline: Instant,
    bytes: [u8; HELLO_BYTES],
    have: usize,
    looked: bool,
}

/// How far a guest has come.
pub(crate) enum Progress {
    /// More is to come.
    Waits,
    Said(Hello),
    /// Of the wrong version, in words.
    OtherVersion(String),
    /// It is to be closed, for one of a few reasons.
    Gone(&'static str),
    /// It is to be closed, for a reason in the words of TLS.
    Failed(String),
}

impl Guest {
    pub(crate) fn new(channel: Channel, from: SocketAddr, deadline: Instant) -> Guest {
        Guest { channel, from, deadline, bytes: [0; HELLO_BYTES], have: 0, looked: false }
    }

    /// Reads what there is.
    pub(crate) fn listen(&mut self) -> Progress {
        if self.channel.tls().is_some() && !self.looked {
            let mut first = [0; 4];
            match self.channel.socket().peek(&mut first) {
                Ok(1..) if Hello::may_begin_with(&first) => {
                    return Progress::Gone(
                        "it is a server that does not speak TLS, and this one does; set [ensemble] tls_cert, tls_key and \
                         tls_ca on all servers",
                    );
                }
                Ok(_) => self.looked = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(_) => {}
            }
        }
        loop {
            match self.channel.read(&mut self.bytes[self.have..]) {
                Ok(0) if self.have == 0 => return Progress::Gone("it left without a hello"),
                Ok(0) => return Progress::Gone("it left in the middle of its hello"),
                Ok(bytes) => self.have += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return tls::sentence(&error).map_or(Progress::Gone("it left without a hello"), Progress::Failed);
                }
            }
            if !Hello::may_begin_with(&self.bytes[..self.have]) {
                return Progress::Gone(strange(&self.bytes[..self.have]));
            }
            if self.have == HELLO_BYTES {
                return match Hello::decode(&self.bytes) {
                    Ok(hello) => Progress::Said(hello),
                    Err(error @ HelloError::Version(_)) => {
                        Progress::OtherVersion(format!("{error}; run one version of corral on all servers"))
                    }
                    Err(_) => Progress::Gone("its hello is malformed"),
                };
            }
        }
    }
}

fn strange(bytes: &[u8]) -> &'static str {
    match Stranger::of(bytes) {
        Stranger::Tls => {
            "it speaks TLS, and this server does not; set [ensemble] tls_cert, tls_key and tls_ca on all servers"
        }
        Stranger::Http => "it is a web client or a scanner; this port is for servers of the ensemble alone",
        Stranger::ZooKeeperElection | Stranger::ZooKeeperLearner => {
            "it is a server of ZooKeeper; ZooKeeper and corral cannot be of one ensemble"
        }
        Stranger::ZooKeeperClient => "it is a client; clients connect to the client port",
        Stranger::Unknown => "it does not speak the protocol between servers",
    }
}
