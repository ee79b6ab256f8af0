//! Frames: length, kind, sequence number, checksum, payload; made by [`Header`], read by [`Decoder`].
//!
//! Pure, on any thread. A header is 17 bytes: payload length (u32), kind (u8), sequence number of the connection from 0
//! (u64), and a CRC32C (u32). The CRC32C covers the fields before it and the payload. Where both servers hold a secret,
//! AES-128-GCM encrypts the payload under the connection's key. The nonce is the sequence number, the additional data
//! are the other fields, and a tag of 16 bytes takes the place of the CRC32C. It does not know what a payload means.

use std::fmt;

use bytes::Bytes;
use ring::aead;

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 17;
/// Bytes of a tag, which replaces the checksum in frames that have a key.
pub const TAG_BYTES: usize = 16;
/// Bytes before the payload of a frame with a tag.
pub const KEYED_HEADER_BYTES: usize = CHECKED_BYTES + TAG_BYTES;
/// Longest payload. Holds the largest log entry consensus may be configured for (64 MiB) with everything around it.
pub const PAYLOAD_BYTES_MAX: u32 = 65 << 20;
/// Room is made for a payload in steps of at least this many bytes.
const STEP_BYTES_MIN: usize = 64 << 10;
/// Bytes of the header that the checksum covers.
const CHECKED_BYTES: usize = 13;

/// The kind of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message of Raft.
    Raft = 1,
    /// Commands of one server's clients for the leader.
    Forward = 2,
    /// The sessions a server has heard from.
    SessionReport = 3,
    /// The leader's clock.
    Heartbeat = 4,
    /// A request for a piece of a snapshot.
    SnapshotAsk = 5,
    /// A piece of a snapshot.
    SnapshotPart = 6,
    /// The sender is uninitialised: it has no data and is not a member of an ensemble.
    Uninitialised = 7,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::Raft,
        Kind::Forward,
        Kind::SessionReport,
        Kind::Heartbeat,
        Kind::SnapshotAsk,
        Kind::SnapshotPart,
        Kind::Uninitialised,
    ];

    /// Whether a frame of this kind may be dropped without harm to the frames behind it.
    ///
    /// Raft repeats lost messages, each heartbeat replaces the one before, and the receiver of a snapshot repeats its
    /// request. An uninitialised server repeats its message.
    #[must_use]
    pub fn is_droppable(self) -> bool {
        matches!(self, Kind::Raft | Kind::Heartbeat | Kind::SnapshotAsk | Kind::SnapshotPart | Kind::Uninitialised)
    }

    fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One frame that was received whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of the payload.
    pub kind: Kind,
    /// The payload, in memory of its own.
    pub payload: Bytes,
}

/// Why a stream cannot be read any further. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The payload is longer than [`PAYLOAD_BYTES_MAX`]: its bytes.
    #[error("invalid frame length: {0} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    Length(u32),
    /// This version does not know the kind: its number.
    #[error("unknown kind of frame: {0}")]
    Kind(u8),
    /// Frames are missing, doubled or out of order.
    #[error("frame {expected} was expected, and frame {found} was received")]
    Sequence {
        /// Number of the frame that is due.
        expected: u64,
        /// Number of the frame that was received.
        found: u64,
    },
    /// The bytes were changed on the way: number of the frame.
    #[error("the checksum of frame {0} is wrong")]
    Checksum(u64),
    /// The peer that proved itself did not send these bytes, or not at this place: number of the frame.
    #[error("the tag of frame {0} is wrong")]
    Tag(u64),
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub length: u32,
    /// The kind of the payload.
    pub kind: Kind,
    /// Number of the frame on its connection, from 0.
    pub sequence: u64,
    check: Check,
}

/// Proves that a received frame equals the sent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// As stated in the header, and of the bytes read so far.
    Checksum {
        stated: u32,
        found: u32,
    },
    Tag([u8; TAG_BYTES]),
}

impl Header {
    /// Encodes the header of a frame without a key: the bytes before the payload.
    ///
    /// It reads the whole payload for the checksum.
    ///
    /// # Panics
    /// If the payload is longer than [`PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub fn encode(kind: Kind, sequence: u64, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        assert!(length <= PAYLOAD_BYTES_MAX, "payloads are checked before they are queued");
        let mut bytes = [0; HEADER_BYTES];
        bytes[..CHECKED_BYTES].copy_from_slice(&fields(length, kind, sequence));
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKED_BYTES]), payload);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header of the frame that is due; `check` is what follows its fields.
    fn decode(fields: &[u8; CHECKED_BYTES], check: &[u8], due: u64) -> Result<Header, FrameError> {
        let [l0, l1, l2, l3, kind, s0, s1, s2, s3, s4, s5, s6, s7] = *fields;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length > PAYLOAD_BYTES_MAX {
            return Err(FrameError::Length(length));
        }
        let kind = Kind::of(kind).ok_or(FrameError::Kind(kind))?;
        let sequence = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        if sequence != due {
            return Err(FrameError::Sequence { expected: due, found: sequence });
        }
        let check = match <[u8; TAG_BYTES]>::try_from(check) {
            Ok(tag) => Check::Tag(tag),
            Err(_) => {
                let stated = u32::from_le_bytes(check.try_into().expect("a checksum has four bytes"));
                Check::Checksum { stated, found: crc32c::crc32c(fields) }
            }
        };
        Ok(Header { length, kind, sequence, check })
    }
}

fn fields(length: u32, kind: Kind, sequence: u64) -> [u8; CHECKED_BYTES] {
    let mut bytes = [0; CHECKED_BYTES];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4] = kind as u8;
    bytes[5..].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

/// The key of one connection's frames. They go in one direction, so that no sequence number is used twice with the key.
pub struct FrameKey(aead::LessSafeKey);

impl fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameKey")
    }
}

impl FrameKey {
    pub(crate) fn new(key: aead::LessSafeKey) -> FrameKey {
        FrameKey(key)
    }

    /// Encrypts a payload and appends the whole frame to `out`.
    ///
    /// # Panics
    /// As [`Header::encode`].
    pub fn seal(&self, kind: Kind, sequence: u64, payload: &[u8], out: &mut Vec<u8>) {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        assert!(length <= PAYLOAD_BYTES_MAX, "payloads are checked before they are queued");
        let (begin, fields) = (out.len(), fields(length, kind, sequence));
        out.reserve(KEYED_HEADER_BYTES + payload.len());
        out.extend_from_slice(&fields);
        out.extend_from_slice(&[0; TAG_BYTES]);
        out.extend_from_slice(payload);
        let (header, text) = out[begin..].split_at_mut(KEYED_HEADER_BYTES);
        let tag = self.0.seal_in_place_separate_tag(nonce(sequence), aead::Aad::from(fields), text);
        header[CHECKED_BYTES..].copy_from_slice(tag.expect("frames are shorter than AES-GCM can encrypt").as_ref());
    }

    /// Decrypts in place; false if the bytes differ from the frame that was sent.
    fn open(&self, header: &Header, tag: [u8; TAG_BYTES], payload: &mut [u8]) -> bool {
        let fields = fields(header.length, header.kind, header.sequence);
        let (nonce, fields) = (nonce(header.sequence), aead::Aad::from(fields));
        self.0.open_in_place_separate_tag(nonce, fields, aead::Tag::from(tag), payload, 0..).is_ok()
    }
}

fn nonce(sequence: u64) -> aead::Nonce {
    let mut bytes = [0; aead::NONCE_LEN];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    aead::Nonce::assume_unique_for_key(bytes)
}

/// Assembles frames from the received bytes of a connection, in pieces of any size.
///
/// Holds at most one frame, and at most twice the bytes of it that arrived, or one step of 64 KiB.
#[derive(Debug)]
pub struct Decoder {
    /// Number of the frame that is due.
    due: u64,
    /// Of frames with tags.
    key: Option<FrameKey>,
    header: [u8; KEYED_HEADER_BYTES],
    /// Bytes of the header that are there.
    header_have: usize,
    /// The frame with an awaited payload.
    open: Option<Open>,
    failed: Option<FrameError>,
}

/// A frame of which the header is there.
#[derive(Debug)]
struct Open {
    header: Header,
    payload: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder for frames without a key, at the begin of a connection's frames.
    #[must_use]
    pub fn new() -> Decoder {
        Decoder { due: 0, key: None, header: [0; KEYED_HEADER_BYTES], header_have: 0, open: None, failed: None }
    }

    /// A decoder for frames with this key, at the begin of a connection's frames.
    #[must_use]
    pub fn keyed(key: FrameKey) -> Decoder {
        Decoder { key: Some(key), ..Decoder::new() }
    }

    /// Reads the bytes that were received next, and calls `take` with each frame that is whole now, in order.
    ///
    /// # Errors
    /// The fault of the stream. `take` was called for the frames before it. Every later call fails with the same error.
    pub fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(Frame)) -> Result<(), FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        loop {
            match self.advance(&mut bytes) {
                Ok(Some(frame)) => take(frame),
                Ok(None) => return Ok(()),
                Err(error) => {
                    (self.open, self.failed) = (None, Some(error));
                    return Err(error);
                }
            }
        }
    }

    /// Bytes of memory held for the frame that is not whole yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.payload.capacity())
    }

    /// The next whole frame; `None` when the bytes are used up.
    fn advance(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        if self.open.is_none() {
            let whole = if self.key.is_some() { KEYED_HEADER_BYTES } else { HEADER_BYTES };
            let wanted = whole - self.header_have;
            let part = take(bytes, wanted);
            self.header[self.header_have..][..part.len()].copy_from_slice(part);
            self.header_have += part.len();
            if self.header_have < whole {
                return Ok(None);
            }
            let (fields, check) = self.header[..whole].split_first_chunk().expect("a header is longer than its fields");
            let header = Header::decode(fields, check, self.due)?;
            self.header_have = 0;
            self.open = Some(Open { header, payload: Vec::new() });
        }
        if !self.open.as_mut().is_some_and(|open| open.take(bytes)) {
            return Ok(None);
        }
        self.due += 1;
        self.open.take().map(|open| open.close(self.key.as_ref())).transpose()
    }
}

impl Open {
    /// Takes what belongs to the payload; true when it is whole.
    fn take(&mut self, bytes: &mut &[u8]) -> bool {
        let length = self.header.length as usize;
        let part = take(bytes, length - self.payload.len());
        let have = self.payload.len() + part.len();
        if have > self.payload.capacity() {
            let room = if have == length { length } else { length.min(STEP_BYTES_MIN.max(2 * have)) };
            self.payload.reserve_exact(room - self.payload.len());
        }
        self.payload.extend_from_slice(part);
        if let Check::Checksum { found, .. } = &mut self.header.check {
            *found = crc32c::crc32c_append(*found, part);
        }
        have == length
    }

    fn close(mut self, key: Option<&FrameKey>) -> Result<Frame, FrameError> {
        let Header { sequence, check, .. } = self.header;
        match check {
            Check::Checksum { stated, found } if stated != found => return Err(FrameError::Checksum(sequence)),
            Check::Tag(tag) if !key.is_some_and(|key| key.open(&self.header, tag, &mut self.payload)) => {
                return Err(FrameError::Tag(sequence));
            }
            _ => {}
        }
        Ok(Frame { kind: self.header.kind, payload: Bytes::from(self.payload) })
    }
}

/// Cuts up to `most` bytes off the front.
fn take<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pair = (Kind, Vec<u8>);

    fn encoded(frames: &[Pair]) -> Vec<u8> {
        let mut out = Vec::new();
        for (sequence, (kind, payload)) in (0..).zip(frames) {
            out.extend_from_slice(&Header::encode(*kind, sequence, payload));
            out.extend_from_slice(payload);
        }
        out
    }

    /// Feeds in pieces of the given size; checks what is held after each.
    fn decoded(bytes: &[u8], piece: usize) -> (Vec<Pair>, Result<(), FrameError>) {
        let (mut decoder, mut frames, mut fed) = (Decoder::new(), Vec::new(), 0);
        for part in bytes.chunks(piece) {
            fed += part.len();
            let done = decoder.feed(part, |frame| frames.push((frame.kind, frame.payload.to_vec())));
            assert!(decoder.held() <= (2 * fed).max(STEP_BYTES_MIN));
            if done.is_err() {
                assert_eq!(decoder.feed(&[], |_| panic!("nothing follows an error")), done);
                return (frames, done);
            }
        }
        (frames, Ok(()))
    }

    fn three() -> Vec<Pair> {
        vec![(Kind::Raft, vec![7; 300]), (Kind::Heartbeat, Vec::new()), (Kind::Forward, (0..=255).collect())]
    }

    #[test]
    fn pieces_of_any_size_give_the_same_frames() {
        let bytes = encoded(&three());
        for piece in 1..=bytes.len() {
            assert_eq!(decoded(&bytes, piece), (three(), Ok(())), "pieces of {piece}");
        }
    }

    #[test]
    fn every_cut_gives_the_whole_frames_before_it() {
        let bytes = encoded(&three());
        for end in 0..bytes.len() {
            let (frames, done) = decoded(&bytes[..end], 64);
            assert_eq!((done, &three()[..frames.len()]), (Ok(()), &frames[..]));
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let bytes = encoded(&three());
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (frames, done) = decoded(&bad, bad.len());
            // A longer length waits for bytes that do not come.
            assert!(done.is_err() || frames.len() < 3, "bit {bit}");
            assert_eq!(&three()[..frames.len()], &frames[..], "bit {bit}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let check = |at: usize, new: &[u8], expect: FrameError| {
            let mut bytes = encoded(&three());
            bytes[at..][..new.len()].copy_from_slice(new);
            assert_eq!(decoded(&bytes, 1000).1, Err(expect));
        };
        check(0, &(PAYLOAD_BYTES_MAX + 1).to_le_bytes(), FrameError::Length(PAYLOAD_BYTES_MAX + 1));
        check(4, &[9], FrameError::Kind(9));
        check(5, &[1], FrameError::Sequence { expected: 0, found: 1 });
        check(13, &[0; 4], FrameError::Checksum(0));
        check(17, &[8], FrameError::Checksum(0));
    }

    #[test]
    fn a_claimed_length_holds_no_memory_before_the_bytes_come() {
        let mut header = Header::encode(Kind::Raft, 0, &[]);
        header[..4].copy_from_slice(&PAYLOAD_BYTES_MAX.to_le_bytes());
        let mut decoder = Decoder::new();
        decoder.feed(&header, |_| panic!("no frame")).expect("the header is good");
        assert_eq!(decoder.held(), 0);
        decoder.feed(&[0], |_| panic!("no frame")).expect("the payload is awaited");
        assert_eq!(decoder.held(), STEP_BYTES_MIN);
        for _ in 0..100 {
            decoder.feed(&[0; 10_000], |_| panic!("no frame")).expect("the payload is awaited");
        }
        assert!(decoder.held() <= 2_000_004, "{}", decoder.held());
    }

    #[test]
    fn the_largest_frame_passes() {
        let payload = vec![5; PAYLOAD_BYTES_MAX as usize];
        let bytes = encoded(&[(Kind::Raft, payload)]);
        let (frames, done) = decoded(&bytes, 256 << 10);
        assert_eq!((frames.len(), done), (1, Ok(())));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1_usize..40) {
            let (whole, pieces) = (decoded(&bytes, bytes.len().max(1)), decoded(&bytes, piece));
            prop_assert_eq!(whole.0, pieces.0);
            prop_assert_eq!(whole.1, pieces.1);
        }

        #[test]
        fn frames_come_back(
            frames in proptest::collection::vec((0_usize..4, proptest::collection::vec(any::<u8>(), 0..500)), 0..10),
            piece in 1_usize..600,
        ) {
            let frames: Vec<_> = frames.into_iter().map(|(kind, payload)| (Kind::ALL[kind], payload)).collect();
            prop_assert_eq!(decoded(&encoded(&frames), piece), (frames, Ok(())));
        }
    }
}
