//! The messages of a snapshot transfer between two servers: requests for pieces, and pieces.
//!
//! Pure, on any thread. The receiver requests each piece. So it sets the pace, and continues on another connection where the
//! transfer was interrupted. Little-endian. It does not know what a snapshot is.

use bytes::Bytes;

use crate::fixed::word;

/// Bytes of the largest piece. Raft's messages wait behind one.
pub const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a part before its piece: index, zxid, total, offset.
const HEAD_BYTES: usize = 4 * 8;

/// A request of the receiver: for the next piece, or to end the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Index of the last log entry that the snapshot contains.
    pub index: u64,
    /// Offset of the piece in bytes; `None` ends the transfer.
    pub offset: Option<u64>,
}

/// The features of log entries that the sender knows, as bits. Sent first on a new connection.
///
/// A leader uses a feature only if all members know it. The message shares the frame kind and the encoding of an [`Ask`]: it
/// refuses a snapshot at an index that no log reaches. Builds without this message ignore such a refusal. An unknown frame kind
/// would close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knows {
    /// The bits.
    pub features: u32,
}

/// The sender's reply to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Some bytes of the snapshot.
    Piece {
        /// Index of the last log entry that the snapshot contains.
        index: u64,
        /// Last zxid in the snapshot.
        zxid: u64,
        /// Bytes of the whole snapshot.
        total: u64,
        /// Offset of the first byte of the piece.
        offset: u64,
        /// The piece; never empty.
        bytes: Bytes,
    },
    /// The sender does not have the snapshot any more.
    Gone {
        /// Index of the last log entry that the snapshot contained.
        index: u64,
    },
}

/// Why bytes are not a message of a snapshot transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message about a snapshot is malformed: {0}")]
pub struct SnapshotError(&'static str);

impl Ask {
    /// The bytes of the message, for the payload of a frame.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        words(&[self.index, self.offset.unwrap_or(u64::MAX)]).into()
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If the bytes are not exactly such a message.
    pub fn decode(bytes: &[u8]) -> Result<Ask, SnapshotError> {
        let (head, rest) = bytes.split_first_chunk::<16>().ok_or(SnapshotError("too short"))?;
        if !rest.is_empty() {
            return Err(SnapshotError("bytes after the end"));
        }
        let (index, offset) = (word(head, 0), word(head, 8));
        Ok(Ask { index, offset: (offset != u64::MAX).then_some(offset) })
    }
}

impl Knows {
    /// Set in the index. The bits between this one and the features are for later versions, and are ignored.
    const MARK: u64 = 1 << 63;

    /// The bytes of the message, for the payload of a frame of [`Kind::SnapshotAsk`](crate::Kind::SnapshotAsk).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        Ask { index: Self::MARK | u64::from(self.features), offset: None }.encode()
    }

    /// The message, if a refusal stands for one.
    #[must_use]
    pub fn of(ask: &Ask) -> Option<Knows> {
        let features = u32::try_from(ask.index & u64::from(u32::MAX)).ok()?;
        (ask.index & Self::MARK != 0 && ask.offset.is_none()).then_some(Knows { features })
    }
}

impl Part {
    /// The bytes of the message, for the payload of a frame.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Part::Gone { index } => words(&[*index, 0, 0, 0]).into(),
            Part::Piece { index, zxid, total, offset, bytes } => {
                let mut out = words(&[*index, *zxid, *total, *offset]);
                out.extend_from_slice(bytes);
                out.into()
            }
        }
    }

    /// Decodes the message. The piece shares the memory of `bytes`.
    ///
    /// # Errors
    /// If the bytes are not such a message, or the piece does not lie within the snapshot.
    pub fn decode(bytes: &Bytes) -> Result<Part, SnapshotError> {
        let (head, piece) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(SnapshotError("too short"))?;
        let [index, zxid, total, offset] = [0, 8, 16, 24].map(|at| word(head, at));
        match (total, piece.len()) {
            (0, 0) => Ok(Part::Gone { index }),
            (_, 0) => Err(SnapshotError("the piece is empty")),
            (_, length) if length > PIECE_BYTES_MAX => Err(SnapshotError("the piece is too long")),
            (_, length) => match offset.checked_add(length as u64) {
                Some(end) if end <= total => {
                    Ok(Part::Piece { index, zxid, total, offset, bytes: bytes.slice(HEAD_BYTES..) })
                }
                _ => Err(SnapshotError("the piece lies beyond the end")),
            },
        }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back() {
        for ask in [Ask { index: 7, offset: Some(0) }, Ask { index: u64::MAX, offset: None }] {
            assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        }
        let piece =
            Part::Piece { index: 7, zxid: 1 << 32, total: 4096, offset: 4000, bytes: Bytes::from_static(&[1; 96]) };
        for part in [piece, Part::Gone { index: 9 }] {
            assert_eq!(Part::decode(&part.encode()), Ok(part));
        }
    }

    #[test]
    fn known_features_are_a_refusal_at_an_index_that_no_log_reaches() {
        for features in [0, 1, 16_383, u32::MAX] {
            let ask = Ask::decode(&Knows { features }.encode()).expect("builds without the message read a refusal");
            assert_eq!((ask.index >= 1 << 63, ask.offset), (true, None));
            assert_eq!(Knows::of(&ask), Some(Knows { features }));
        }
        let later = Ask { index: 1 << 63 | 1 << 40 | 7, offset: None };
        assert_eq!(Knows::of(&later), Some(Knows { features: 7 }));
        for ask in
            [Ask { index: 9, offset: None }, Ask { index: 0, offset: None }, Ask { index: 1 << 63, offset: Some(0) }]
        {
            assert_eq!(Knows::of(&ask), None);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Ask::decode(&[0; 15]), Err(SnapshotError("too short")));
        assert_eq!(Ask::decode(&[0; 17]), Err(SnapshotError("bytes after the end")));
        let part = |total: u64, offset: u64, length: usize| {
            let mut bytes = words(&[1, 2, total, offset]);
            bytes.resize(HEAD_BYTES + length, 7);
            Part::decode(&bytes.into())
        };
        assert_eq!(Part::decode(&Bytes::from_static(&[0; 31])), Err(SnapshotError("too short")));
        assert_eq!(part(10, 0, 0), Err(SnapshotError("the piece is empty")));
        assert_eq!(part(10, 5, 6), Err(SnapshotError("the piece lies beyond the end")));
        assert_eq!(part(u64::MAX, u64::MAX, 1), Err(SnapshotError("the piece lies beyond the end")));
        assert_eq!(part(u64::MAX, 0, PIECE_BYTES_MAX + 1), Err(SnapshotError("the piece is too long")));
        assert!(part(10, 5, 5).is_ok());
    }
}
