//! Targets: the frame decoder, the decoder of every request (connect too) and, as clients read them, of every reply.
//!
//! What decodes must come back whole: encoded it has the length of what was read, and is its own snapshot when decoded
//! again. Nothing is allocated while decoding.

use corral_wire::frame::next_frame;
use corral_wire::{OpCode, Reader};

use super::records::{self, CONNECT, CONNECTED, EVENT, Step};
use super::{Tally, memory};
use crate::rng::Stream;
use crate::violation::{Violation, require};

const FRAME_MAX: usize = 1000;

/// Any bytes as what a connection received, cut where its first byte says.
pub(super) fn frame(input: &[u8]) -> Result<Tally, Violation> {
    let mut tally = Tally::default();
    let mut rest = input;
    while let Ok(found) = next_frame(rest, FRAME_MAX) {
        let Some((body, used)) = found else {
            let told = rest.first_chunk::<4>().map_or(0, |word| u32::from_be_bytes(*word));
            let whole = rest.len() >= 4 && u64::from(told) <= (rest.len() - 4) as u64;
            require(!whole, "frame", || "a whole frame is not found".to_owned())?;
            return Ok(tally);
        };
        let told = rest.first_chunk::<4>().map_or(-1, |word| i32::from_be_bytes(*word));
        let fits = usize::try_from(told).is_ok_and(|told| told == body.len() && told + 4 == used && used <= rest.len());
        require(fits && body.len() <= FRAME_MAX, "frame", || format!("length word {told}, body {}", body.len()))?;
        tally.accepted += 1;
        rest = &rest[used..];
    }
    let told = rest.first_chunk::<4>().map_or(0, |word| i32::from_be_bytes(*word));
    let legal = usize::try_from(told).is_ok_and(|told| told <= FRAME_MAX);
    require(!legal, "frame", || format!("a frame of {told} bytes is refused"))?;
    tally.refused += 1;
    Ok(tally)
}

/// The first byte says which operation the rest is a request of.
pub(super) fn request(input: &[u8]) -> Result<Tally, Violation> {
    let Some((first, record)) = input.split_first() else { return Ok(Tally::default()) };
    let step = chosen(*first).map_or(CONNECT, records::request_step);
    there_and_back(step, record)
}

/// The first byte says which operation the rest is a reply to.
pub(super) fn reply(input: &[u8]) -> Result<Tally, Violation> {
    let Some((first, record)) = input.split_first() else { return Ok(Tally::default()) };
    let step = match chosen(*first) {
        None => CONNECTED,
        Some(OpCode::Notification) => EVENT,
        Some(op) => records::response_step(op),
    };
    there_and_back(step, record)
}

fn chosen(byte: u8) -> Option<OpCode> {
    OpCode::ALL.get(usize::from(byte) % (OpCode::ALL.len() + 1)).copied()
}

fn there_and_back(step: Step, bytes: &[u8]) -> Result<Tally, Violation> {
    let mut reader = Reader::new(bytes);
    let mut once = Vec::with_capacity(bytes.len());
    let (decoded, held) = memory::peak(|| step(&mut reader, &mut once));
    require(held == 0, "memory", || format!("decoding holds {held} bytes"))?;
    if decoded.is_err() {
        return Ok(Tally { refused: 1, ..Tally::default() });
    }
    let read = bytes.len() - reader.remaining();
    require(once.len() == read, "codec", || format!("{read} bytes become {}", once.len()))?;
    let mut reader = Reader::new(&once);
    let mut twice = Vec::with_capacity(once.len());
    let again = step(&mut reader, &mut twice);
    require(again.is_ok() && once == twice, "codec", || format!("{once:x?} decodes to {twice:x?}, {again:?}"))?;
    Ok(Tally { accepted: 1, ..Tally::default() })
}

pub(super) fn generate_frames(stream: &mut Stream, out: &mut Vec<u8>) {
    for _ in 0..=stream.below(4) {
        let length = stream.pick(&[0, 1, 8, 40, 999, 1000]);
        let told = if stream.per_mille(150) { stream.pick(&[-1, 1001, i32::MAX, i32::MIN]) } else { length };
        out.extend_from_slice(&told.to_be_bytes());
        let kept = if stream.per_mille(100) { stream.below(length.unsigned_abs().into()) } else { u64::MAX };
        out.extend((0..u64::from(length.unsigned_abs()).min(kept)).map(|at| at.to_le_bytes()[0]));
    }
}

pub(super) fn generate_request(stream: &mut Stream, out: &mut Vec<u8>) {
    let place = stream.index(OpCode::ALL.len() + 1);
    out.push(u8::try_from(place).unwrap_or(u8::MAX));
    match OpCode::ALL.get(place) {
        Some(op) => records::body(stream, *op, out),
        None => {
            for _ in 0..6 {
                records::word(stream, out, &[0, 0, 1, 4000]);
            }
            records::word(stream, out, &[0, 16, -1]);
            out.extend_from_slice(&stream.bytes::<16>());
            out.extend((0..stream.below(2)).map(|_| 0));
        }
    }
}

pub(super) fn generate_reply(stream: &mut Stream, out: &mut Vec<u8>) {
    let place = stream.index(OpCode::ALL.len() + 1);
    out.push(u8::try_from(place).unwrap_or(u8::MAX));
    for _ in 0..stream.below(6) {
        match stream.below(4) {
            0 => {
                let path = records::some_path(stream);
                out.extend_from_slice(&u32::try_from(path.len()).unwrap_or(0).to_be_bytes());
                out.extend_from_slice(&path);
            }
            1 => out.extend_from_slice(&stream.bytes::<68>()),
            2 => records::word(stream, out, &[0, 1, 2, 3, 4, 13, 15, -1]),
            // The header of a multi's result.
            _ => {
                records::word(stream, out, &[1, 2, 5, 13, 15, -1, 4, 8]);
                out.push(u8::from(stream.per_mille(300)));
                records::word(stream, out, &[0, -101, -2, -1]);
            }
        }
    }
}
