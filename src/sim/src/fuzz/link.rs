//! Targets: the messages that a server of an ensemble receives from any host that dials it.
//!
//! A handshake or an answer that decodes is its own snapshot, and so is each message of a proof. Frames with a tag are
//! the same in pieces of any size, and hold no more memory than arrived. A frame that was not sent under the key is
//! never handed on. Frames without a tag are the subject of the property tests of `corral-peer`.

use std::fmt::Debug;

use corral_peer::foreign::ForeignProtocol;
use corral_peer::handshake::{ANSWER_BYTES, HANDSHAKE_BYTES, HandshakeError};
use corral_peer::secret::{CHALLENGE_BYTES, NONCE_BYTES, SEAL_BYTES, SECRET_BYTES_MAX, TOKEN_BYTES};
use corral_peer::{
    Admission, Answer, Challenge, ClusterName, Decoder, Frame, FrameError, FrameKey, Generation, Handshake, Kind,
    Proof, Secret, Secrets, Transcript,
};

use super::tally::Tally;
use crate::rng::Stream;
use crate::violation::{Violation, require};

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

/// Bytes as a handshake, as an answer, as the messages of a proof, as a file of secrets, and as those of another protocol.
pub(super) fn handshake(input: &[u8]) -> Result<Tally, Violation> {
    let mut tally = Tally::default();
    let _ = ForeignProtocol::guess(input);
    let handshake = decoded(input, &mut tally, Handshake::decode, Handshake::encode)?;
    let begins = handshake.is_none() || Handshake::may_begin_with(&input[..4]);
    require(begins, "magic", || "a handshake without one".to_owned())?;
    decoded(input, &mut tally, Answer::decode, Answer::encode)?;
    decoded(input, &mut tally, Challenge::decode, Challenge::encode)?;
    if let Some(one) = decoded(input, &mut tally, Proof::decode, Proof::encode)? {
        let (secrets, said) = (Secrets::of_text(&[b'x'; SEAL_BYTES]), said(input));
        let believed = secrets.is_ok_and(|secrets| secrets.proven(&said, &one.proof).is_some());
        require(!believed, "proof", || "a proof without the secret".to_owned())?;
    }
    let _ = Secrets::of_text(&input[..input.len().min(SECRET_BYTES_MAX)]);
    Ok(tally)
}

/// The message that the input begins with. It must be written as it was read.
fn decoded<const N: usize, T: Debug>(
    input: &[u8],
    tally: &mut Tally,
    decode: fn(&[u8; N]) -> Result<T, HandshakeError>,
    encode: fn(&T) -> [u8; N],
) -> Result<Option<T>, Violation> {
    let Some(bytes) = input.first_chunk::<N>() else { return Ok(None) };
    let found = decode(bytes).ok();
    *(if found.is_some() { &mut tally.accepted } else { &mut tally.refused }) += 1;
    let same = found.as_ref().is_none_or(|one| encode(one) == *bytes);
    require(same, "codec", || format!("{found:?} encodes to other bytes"))?;
    Ok(found)
}

/// A transcript with nothing from the input but the nonce.
fn said(input: &[u8]) -> Transcript {
    let mut nonce = [0; NONCE_BYTES];
    nonce.iter_mut().zip(input).for_each(|(nonce, byte)| *nonce = *byte);
    Transcript { handshake: [0; HANDSHAKE_BYTES], challenge: [0; CHALLENGE_BYTES], nonce }
}

fn key_of(byte: u8) -> FrameKey {
    let secret = Secret::new(&[byte; SEAL_BYTES]).expect("it is long enough");
    secret.frame_key(&said(&[]), &[0; ANSWER_BYTES])
}

/// The bytes as frames with tags. The first byte sets the size of the pieces, the second how many good frames are
/// before them.
pub(super) fn keyed(input: &[u8]) -> Result<Tally, Violation> {
    let [first, count, bytes @ ..] = input else { return Ok(Tally::default()) };
    let (piece, good) = (usize::from(*first) + 1, u64::from(*count % 4));
    let mut stream = Vec::new();
    for sequence in 0..good {
        key_of(b'x').seal(Kind::Raft, sequence, b"good", &mut stream);
    }
    stream.extend_from_slice(bytes);
    let (found, ended) = fed(Decoder::keyed(key_of(b'x')), &stream, piece)?;
    let (whole, ended_whole) = fed(Decoder::keyed(key_of(b'x')), &stream, stream.len().max(1))?;
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
