//! What two servers say to each other while one takes over the other's image: asks for pieces, and pieces.
//!
//! Pure, on any thread. Whoever takes the image asks for each piece, so that it sets the pace and can go on, on another
//! connection, where it was. Little-endian. It does not know what an image is.

use bytes::Bytes;

/// Largest piece. Raft's messages wait behind one.
pub const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a part before its piece: index, zxid, total, offset.
const HEAD_BYTES: usize = 4 * 8;

/// From the server that takes an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Place in the log of the last entry that the image contains.
    pub index: u64,
    /// From where on; `None` gives up the whole image.
    pub offset: Option<u64>,
}

/// From the server that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Some bytes of it.
    Piece {
        index: u64,
        /// Last zxid in the image.
        zxid: u64,
        /// Bytes of the whole image.
        total: u64,
        offset: u64,
        /// Never empty.
        bytes: Bytes,
    },
    /// It is not there any more.
    Gone { index: u64 },
}

/// The bytes are no ask, or no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message about an image is malformed: {0}")]
pub struct ImageError(&'static str);

impl Ask {
    pub fn encode(&self) -> Bytes {
        words(&[self.index, self.offset.unwrap_or(u64::MAX)]).into()
    }

    /// # Errors
    /// When the bytes are not exactly an ask.
    pub fn decode(bytes: &[u8]) -> Result<Ask, ImageError> {
        let (head, rest) = bytes.split_first_chunk::<16>().ok_or(ImageError("too short"))?;
        if !rest.is_empty() {
            return Err(ImageError("bytes after the end"));
        }
        let (index, offset) = (word(head, 0), word(head, 1));
        Ok(Ask { index, offset: (offset != u64::MAX).then_some(offset) })
    }
}

impl Part {
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

    /// # Errors
    /// When the bytes are no part, or the piece does not lie within the image.
    pub fn decode(bytes: &Bytes) -> Result<Part, ImageError> {
        let (head, piece) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(ImageError("too short"))?;
        let [index, zxid, total, offset] = [0, 1, 2, 3].map(|at| word(head, at));
        match (total, piece.len()) {
            (0, 0) => Ok(Part::Gone { index }),
            (_, 0) => Err(ImageError("the piece is empty")),
            (_, length) if length > PIECE_BYTES_MAX => Err(ImageError("the piece is too long")),
            (_, length) => match offset.checked_add(length as u64) {
                Some(end) if end <= total => {
                    Ok(Part::Piece { index, zxid, total, offset, bytes: bytes.slice(HEAD_BYTES..) })
                }
                _ => Err(ImageError("the piece lies beyond the end")),
            },
        }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("eight bytes"))
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
    fn nonsense_is_refused() {
        assert_eq!(Ask::decode(&[0; 15]), Err(ImageError("too short")));
        assert_eq!(Ask::decode(&[0; 17]), Err(ImageError("bytes after the end")));
        let part = |total: u64, offset: u64, length: usize| {
            let mut bytes = words(&[1, 2, total, offset]);
            bytes.resize(HEAD_BYTES + length, 7);
            Part::decode(&bytes.into())
        };
        assert_eq!(Part::decode(&Bytes::from_static(&[0; 31])), Err(ImageError("too short")));
        assert_eq!(part(10, 0, 0), Err(ImageError("the piece is empty")));
        assert_eq!(part(10, 5, 6), Err(ImageError("the piece lies beyond the end")));
        assert_eq!(part(u64::MAX, u64::MAX, 1), Err(ImageError("the piece lies beyond the end")));
        assert_eq!(part(u64::MAX, 0, PIECE_BYTES_MAX + 1), Err(ImageError("the piece is too long")));
        assert!(part(10, 5, 5).is_ok());
    }
}
