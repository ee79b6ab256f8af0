//! Frames on their way into the kernel: headers and small payloads side by side, large payloads where they are.
//!
//! Lives on a sender's thread, one a connection. It numbers the frames; it does not know the socket.

use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;
use corral_peer::{FrameKey, Header, Kind};

use crate::net::peers::limits::{BATCH_BYTES_MAX, BATCH_FRAMES_MAX, COPIED_BYTES_MAX, PIECES_MAX};

/// Frames that are written to one connection together.
#[derive(Default)]
pub(crate) struct Batch {
    /// Number of the next frame of the connection.
    sequence: u64,
    scratch: Vec<u8>,
    pieces: Vec<Piece>,
    frames: usize,
    bytes: usize,
    /// Of them the payloads'.
    payload_bytes: usize,
    /// Of frames with tags.
    key: Option<FrameKey>,
    /// The first piece that is not wholly written, and the bytes written of it.
    piece: usize,
    offset: usize,
}

enum Piece {
    Scratch(Range<usize>),
    Payload(Bytes),
}

impl Batch {
    /// For a connection with frames under this key, if there is one.
    pub(crate) fn new(key: Option<FrameKey>) -> Batch {
        Batch { key, ..Batch::default() }
    }

    /// Whether another frame may be added before what is there is written.
    pub(crate) fn has_room(&self) -> bool {
        self.frames < BATCH_FRAMES_MAX && self.bytes < BATCH_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Frames added since the last `clear`.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of their payloads.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Bytes of them, headers included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the connection's next frame; not between `written` and `clear`.
    pub(crate) fn push(&mut self, kind: Kind, payload: Bytes) {
        debug_assert!((self.piece, self.offset) == (0, 0), "a batch that is written does not grow");
        let begin = self.scratch.len();
        let copied = self.key.is_some() || payload.len() <= COPIED_BYTES_MAX;
        match &self.key {
            Some(key) => key.seal(kind, self.sequence, &payload, &mut self.scratch),
            None => {
                self.scratch.extend_from_slice(&Header::encode(kind, self.sequence, &payload));
                self.scratch.extend_from_slice(if copied { &payload } else { &[] });
            }
        }
        self.sequence += 1;
        self.frames += 1;
        self.bytes += self.scratch.len() - begin + if copied { 0 } else { payload.len() };
        self.payload_bytes += payload.len();
        match self.pieces.last_mut() {
            Some(Piece::Scratch(range)) => range.end = self.scratch.len(),
            _ => self.pieces.push(Piece::Scratch(begin..self.scratch.len())),
        }
        if !copied {
            self.pieces.push(Piece::Payload(payload));
        }
    }

    /// The pieces that are not written yet, as many as one call takes; empty when all are.
    pub(crate) fn slices<'a>(&'a self, room: &mut [IoSlice<'a>; PIECES_MAX]) -> usize {
        let mut count = 0;
        for (slot, piece) in room.iter_mut().zip(&self.pieces[self.piece..]) {
            let bytes: &[u8] = match piece {
                Piece::Scratch(range) => &self.scratch[range.clone()],
                Piece::Payload(payload) => payload,
            };
            *slot = IoSlice::new(if count == 0 { &bytes[self.offset..] } else { bytes });
            count += 1;
        }
        count
    }

    /// So many bytes of the pieces of `slices` are written.
    pub(crate) fn written(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let length = match &self.pieces[self.piece] {
                Piece::Scratch(range) => range.len(),
                Piece::Payload(payload) => payload.len(),
            };
            let part = bytes.min(length - self.offset);
            bytes -= part;
            self.offset += part;
            if self.offset == length {
                (self.piece, self.offset) = (self.piece + 1, 0);
            }
        }
    }

    /// Forgets what is written, but not the number of the next frame.
    pub(crate) fn clear(&mut self) {
        self.scratch.clear();
        self.scratch.shrink_to(2 * BATCH_BYTES_MAX);
        self.pieces.clear();
        (self.frames, self.bytes, self.payload_bytes, self.piece, self.offset) = (0, 0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_peer::Decoder;

    #[test]
    fn what_is_written_in_any_steps_decodes_to_what_was_pushed() {
        for step in [13, 1000, 30_000, usize::MAX] {
            let (mut batch, mut decoder) = (Batch::default(), Decoder::new());
            for _ in 0..2 {
                let lengths = [0, 3, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 5, 100_000, 0];
                let payloads = lengths.map(|length| Bytes::from(vec![7; length]));
                for payload in &payloads {
                    batch.push(Kind::Forward, payload.clone());
                }
                let mut found = Vec::new();
                loop {
                    let mut room = [IoSlice::new(&[]); PIECES_MAX];
                    let count = batch.slices(&mut room);
                    let bytes = room[..count].iter().flat_map(|slice| slice.iter().copied());
                    let part: Vec<u8> = bytes.take(step).collect();
                    if part.is_empty() {
                        break;
                    }
                    decoder.feed(&part, |frame| found.push(frame.payload)).expect("the frames are good");
                    batch.written(part.len());
                }
                assert_eq!(found, payloads);
                batch.clear();
            }
        }
    }

    #[test]
    fn a_batch_ends_by_bytes_or_frames() {
        let mut batch = Batch::default();
        while batch.has_room() {
            batch.push(Kind::Heartbeat, Bytes::new());
        }
        assert_eq!(batch.frames(), BATCH_FRAMES_MAX);
        batch.clear();
        batch.push(Kind::Raft, Bytes::from(vec![0; BATCH_BYTES_MAX]));
        assert!(!batch.has_room() && !batch.is_empty());
    }
}
