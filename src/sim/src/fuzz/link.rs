//! Targets: what a server of an ensemble receives from whoever dials it.
//!
//! Frames are the same in pieces of any size, hold no more memory than arrived, and come back when encoded; a hello or an
//! answer that decodes is its own image.

use corral_link::frame::HEADER_BYTES;
use corral_link::hello::{ANSWER_BYTES, HELLO_BYTES};
use corral_link::stranger::Stranger;
use corral_link::{Answer, ClusterName, Decoder, Frame, FrameError, Generation, Header, Hello, Kind, Verdict};

use super::Tally;
use crate::rng::Stream;
use crate::violation::{Violation, require};

/// The first byte says in what pieces the rest is received.
pub(super) fn frames(input: &[u8]) -> Result<Tally, Violation> {
    let Some((first, bytes)) = input.split_first() else { return Ok(Tally::default()) };
    let piece = usize::from(*first) + 1;
    let (found, ended) = fed(bytes, piece)?;
    let (whole, ended_whole) = fed(bytes, bytes.len().max(1))?;
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

fn fed(bytes: &[u8], piece: usize) -> Result<(Vec<Frame>, Result<(), FrameError>), Violation> {
    let (mut decoder, mut found, mut fed) = (Decoder::new(), Vec::new(), 0);
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

/// Bytes as a hello, as an answer, and as those of a stranger.
pub(super) fn hello(input: &[u8]) -> Result<Tally, Violation> {
    let mut tally = Tally::default();
    let mut count = |good: bool| if good { tally.accepted += 1 } else { tally.refused += 1 };
    let _ = Stranger::of(input);
    if let Some(bytes) = input.first_chunk::<HELLO_BYTES>() {
        let decoded = Hello::decode(bytes);
        count(decoded.is_ok());
        let same = decoded.as_ref().map_or(true, |hello| hello.encode() == *bytes);
        require(same, "codec", || format!("{decoded:?} encodes to other bytes"))?;
        require(decoded.is_err() || Hello::may_begin_with(&input[..4]), "magic", || "a hello without one".to_owned())?;
    }
    if let Some(bytes) = input.first_chunk::<ANSWER_BYTES>() {
        let decoded = Answer::decode(bytes);
        count(decoded.is_ok());
        let same = decoded.map_or(true, |answer| answer.encode() == *bytes);
        require(same, "codec", || format!("{decoded:?} encodes to other bytes"))?;
    }
    Ok(tally)
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

pub(super) fn generate_hello(stream: &mut Stream, out: &mut Vec<u8>) {
    let cluster = ClusterName::new(stream.pick(&["corral", "x", "blue-1.a_b"])).expect("a name");
    let (from, to) = (stream.pick(&[1, 2, 255]), stream.pick(&[1, 3]));
    let (generation, incarnation) = (Generation(stream.pick(&[0, 1, u64::MAX])), stream.word());
    if stream.per_mille(500) {
        out.extend_from_slice(&Hello { cluster, from, to, generation, incarnation }.encode());
    } else {
        let verdict = stream.pick(&Verdict::ALL);
        out.extend_from_slice(&Answer { verdict, id: from, generation, incarnation }.encode());
    }
    if stream.per_mille(300) {
        let at = stream.index(out.len());
        out[at] ^= stream.pick(&[1, 0x80, 0xff]);
    }
}
