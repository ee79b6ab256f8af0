//! One direction of the network between two servers.

use bytes::Bytes;
use corral_peer::Frame;

#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Names the connection among all of this world.
    pub(crate) number: u64,
    pub(crate) up: bool,
    /// The connection that the receiver takes for standing.
    pub(crate) accepted: Option<u64>,
    pub(crate) incarnation: u64,
    /// Nothing gets through for the time being.
    pub(crate) cut: bool,
    /// A dial is planned for that life of the sender.
    pub(crate) dials: Option<u32>,
    /// Since when the other does not let it in.
    pub(crate) refused: Option<u64>,
    pub(crate) waiting: Vec<Frame>,
    /// The last forward, for [`Bug::ForwardTwice`](crate::options::Bug::ForwardTwice).
    pub(crate) forward: Option<Bytes>,
    /// .. of a connection that broke.
    pub(crate) lost_forward: Option<Bytes>,
}
