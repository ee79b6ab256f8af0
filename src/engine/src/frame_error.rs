//! Why a frame of another server is invalid.

use corral_consensus::{PeerError, ServerId};

/// A frame that no server sends. Its connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// A Raft message cannot be decoded, or has an impossible value.
    #[error(transparent)]
    Raft(#[from] PeerError),
    /// A Raft message names another sender than the server of the connection.
    #[error("server {peer} sent a message of server {sender}")]
    ForeignSender {
        /// The server that dialled the connection.
        peer: ServerId,
        /// The sender in the message.
        sender: ServerId,
    },
    /// Another message cannot be decoded, or has an impossible value.
    #[error(transparent)]
    Message(Box<dyn std::error::Error>),
}

impl FrameError {
    /// An invalid message of another kind than Raft's.
    pub(crate) fn other(error: impl std::error::Error + 'static) -> FrameError {
        FrameError::Message(Box::new(error))
    }
}
