//! Targets: what a server of an ensemble receives from whoever dials it.
//!
//! Frames are the same in pieces of any size, hold no more memory than arrived, and come back when encoded; a handshake
//! or an answer that decodes is its own snapshot, and so is each message of a proof; frames with a tag are the same in
//! pieces of any size, and one that was not sent under the key is never handed on.

use corral_peer::foreign::ForeignProtocol;
use corral_peer::frame::HEADER_BYTES;
use corral_peer::handshake::{ANSWER_BYTES, HANDSHAKE_BYTES};
use corral_peer::secret::{CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES, SEAL_BYTES, SECRET_BYTES_MAX, TOKEN_BYTES};
use corral_peer::{
    Admission, Answer, Challenge, ClusterName, Decoder, Frame, FrameError, FrameKey, Generation, Handshake, Header,
    Kind, Proof, Secret, Secrets, Transcript,
};

use super::Tally;
use crate::rng::Stream;
use crate::violation::{Violation, require};

/// The first byte says in what pieces the rest is received.
pub(super) fn frames(input: &[u8]) -> Result<Tally, Violation> {
    let Some((first, bytes)) = input.split_first() else { return Ok(Tally::default()) };
    let piece = usize::from(*first) + 1;
    let (found, ended) = fed(Decoder::new(), bytes, piece)?;
    let (whole, ended_whole) = fed(Decoder::new(), bytes, bytes.len().max(1))?;
    require(found == whole && ended == ended_whole, "pieces", || {
        format!("{} frames and {ended:?} in pieces, {} and {ended_whole:?} at once", found.len(), whole.len())
    })?;
    let mut again = Vec::with_capacity(bytes.len());
    for (sequence, frame) in (0..).zip(&found) {
        again.extend_from_slice(&Header::encode(frame.kind, sequence, &frame.payload));
        again.extend_from_slice(&frame.payload);
    }
    require(bytes.starts_with(&again), "codec", || "the frames encode to other bytes".to_owned())?;
    Ok(Tally { accepted: found.len() as u64, refused: u64::from(ended.is_err()), ..Tally::default() })
}

fn fed(mut decoder: Decoder, bytes: &[u8], piece: usize) -> Result<(Vec<Frame>, Result<(), FrameError>), Violation> {
    let (mut found, mut fed) = (Vec::new(), 0);
    for part in bytes.chunks(piece) {
        fed += part.len();
        let done = decoder.feed(part, |frame| found.push(frame));
        require(decoder.held() <= (2 * fed).max(64 << 10), "memory", || format!("{} held of {fed}", decoder.held()))?;
        if done.is_err() {
            return Ok((found, done));
        }
    }
    Ok((found, Ok(())))
}

/// Bytes as a handshake, as an answer, and as those of another protocol.
pub(super) fn handshake(input: &[u8]) -> Result<Tally, Violation> {
    let mut tally = Tally::default();
    let mut count = |good: bool| if good { tally.accepted += 1 } else { tally.refused += 1 };
    let _ = ForeignProtocol::guess(input);
    if let Some(bytes) = input.first_chunk::<HANDSHAKE_BYTES>() {
        let decoded = Handshake::decode(bytes);
        count(decoded.is_ok());
        let same = decoded.as_ref().map_or(true, |handshake| handshake.encode() == *bytes);
        require(same, "codec", || format!("{decoded:?} encodes to other bytes"))?;
        require(decoded.is_err() || Handshake::may_begin_with(&input[..4]), "magic", || {
            "a handshake without one".to_owned()
        })?;
    }
    if let Some(bytes) = input.first_chunk::<ANSWER_BYTES>() {
        let decoded = Answer::decode(bytes);
        count(decoded.is_ok());
        let same = decoded.map_or(true, |answer| answer.encode() == *bytes);
        require(same, "codec", || format!("{decoded:?} encodes to other bytes"))?;
    }
    if let Some(bytes) = input.first_chunk::<CHALLENGE_BYTES>() {
        let decoded = Challenge::decode(bytes);
        count(decoded.is_ok());
        require(decoded.map_or(true, |one| one.encode() == *bytes), "codec", || format!("{decoded:?} is another"))?;
    }
    if let Some(bytes) = input.first_chunk::<PROOF_BYTES>() {
        let decoded = Proof::decode(bytes);
        count(decoded.is_ok());
        require(decoded.map_or(true, |one| one.encode() == *bytes), "codec", || format!("{decoded:?} is another"))?;
        let (secrets, said) = (Secrets::of_text(&[b'x'; SEAL_BYTES]), said(input));
        let believed =
            secrets.is_ok_and(|secrets| decoded.is_ok_and(|one| secrets.proven(&said, &one.proof).is_some()));
        require(!believed, "proof", || "a proof without the secret".to_owned())?;
    }
    let text = &input[..input.len().min(SECRET_BYTES_MAX)];
    let _ = Secrets::of_text(text);
    Ok(tally)
}

/// What was said where nothing of it comes from the input but the nonce.
fn said(input: &[u8]) -> Transcript {
    let mut nonce = [0; NONCE_BYTES];
    nonce.iter_mut().zip(input).for_each(|(nonce, byte)| *nonce = *byte);
    Transcript { handshake: [0; HANDSHAKE_BYTES], challenge: [0; CHALLENGE_BYTES], nonce }
}

fn frame_key() -> FrameKey {
    key_of(b'x')
}

fn key_of(byte: u8) -> FrameKey {
    let secret = Secret::new(&[byte; SEAL_BYTES]).expect("it is long enough");
    secret.frame_key(&said(&[]), &[0; ANSWER_BYTES])
}

/// The bytes as frames with tags: the first says in what pieces they come, the second how many good ones are before
/// them.
pub(super) fn keyed(input: &[u8]) -> Result<Tally, Violation> {
    let [first, count, bytes @ ..] = input else { return Ok(Tally::default()) };
    let (piece, good) = (usize::from(*first) + 1, u64::from(*count % 4));
    let mut stream = Vec::new();
    for sequence in 0..good {
        frame_key().seal(Kind::Raft, sequence, b"good", &mut stream);
    }
    stream.extend_from_slice(bytes);
    let (found, ended) = fed(Decoder::keyed(frame_key()), &stream, piece)?;
    let (whole, ended_whole) = fed(Decoder::keyed(frame_key()), &stream, stream.len().max(1))?;
    require(found == whole && ended == ended_whole, "pieces", || {
        format!("{ended:?} in pieces, {ended_whole:?} at once")
    })?;
    require(found.len() as u64 == good, "tag", || format!("{} frames of {good} that were sent", found.len()))?;
    Ok(Tally { accepted: good, refused: u64::from(ended.is_err()), ..Tally::default() })
}

pub(super) fn generate_keyed(stream: &mut Stream, out: &mut Vec<u8>) {
    let [piece, good] = stream.bytes::<2>();
    out.extend_from_slice(&[piece, good]);
    // Frames of another key: a mutation could put one of the right key to its place.
    for _ in 0..=stream.below(3) {
        let at = out.len();
        let sequence = u64::from(good % 4) + 1 + stream.below(3);
        key_of(b'y').seal(stream.pick(&Kind::ALL), sequence, b"x", out);
        if stream.per_mille(700) {
            // In its place, and with another tag.
            out[at + 5..][..8].copy_from_slice(&u64::from(good % 4).to_le_bytes());
        }
    }
}

pub(super) fn generate_frames(stream: &mut Stream, out: &mut Vec<u8>) {
    out.push(stream.bytes::<1>()[0]);
    let mut sequence = 0;
    for _ in 0..=stream.below(5) {
        let kind = stream.pick(&Kind::ALL);
        let length = stream.pick(&[0_usize, 1, 16, 17, 18, 200, 900]);
        let payload: Vec<u8> = (0..length).map(|at| at.to_le_bytes()[0]).collect();
        let mut header = Header::encode(kind, sequence, &payload);
        if stream.per_mille(150) {
            let at = stream.index(HEADER_BYTES);
            header[at] = stream.pick(&[0, 1, 5, 0x7f, 0xff]);
        }
        out.extend_from_slice(&header);
        out.extend_from_slice(&payload);
        sequence += u64::from(!stream.per_mille(50));
    }
}

pub(super) fn generate_handshake(stream: &mut Stream, out: &mut Vec<u8>) {
    let cluster = ClusterName::new(stream.pick(&["corral", "x", "blue-1.a_b"])).expect("a name");
    let (from, to) = (stream.pick(&[1, 2, 255]), stream.pick(&[1, 3]));
    let (generation, incarnation) = (Generation(stream.pick(&[0, 1, u64::MAX])), stream.word());
    let token = stream.bytes::<TOKEN_BYTES>();
    match stream.below(4) {
        0 => out.extend_from_slice(&Handshake { cluster, from, to, generation, incarnation, token }.encode()),
        1 => {
            let verdict = stream.pick(&Admission::ALL);
            out.extend_from_slice(&Answer { verdict, id: from, generation }.encode());
        }
        2 => out.extend_from_slice(&Challenge { nonce: stream.bytes::<NONCE_BYTES>() }.encode()),
        _ => {
            let (nonce, proof) = (stream.bytes::<NONCE_BYTES>(), stream.bytes::<SEAL_BYTES>());
            out.extend_from_slice(&Proof { nonce, proof }.encode());
        }
    }
    if stream.per_mille(300) {
        let at = stream.index(out.len());
        out[at] ^= stream.pick(&[1, 0x80, 0xff]);
    }
}
