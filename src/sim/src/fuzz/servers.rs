//! Target: what a client sends to change the membership, and the text of that list.
//!
//! The resulting list is written and read as the same, is legal, and keeps its bounds.

use corral_core::limits::ENSEMBLE_SERVERS_MAX;
use corral_core::servers::Servers;
use corral_core::servers::reconfig::Reconfig;
use corral_core::shared::Text;

use super::tally::Tally;
use crate::rng::Stream;
use crate::violation::Violation;
use crate::violation::require;

const BEFORE: &str =
    "server.1=a:1:2:participant;h:3\nserver.2=b:1:2:participant\nserver.3=[0:0:0:0:0:0:0:1]:1:2:observer\n";

/// The first byte says which texts the rest is, cut at its newlines (NULs within a list of members).
pub(super) fn change(input: &[u8]) -> Result<Tally, Violation> {
    let Some((first, rest)) = input.split_first() else { return Ok(Tally::default()) };
    let Ok(rest) = core::str::from_utf8(rest) else { return Ok(Tally { refused: 1, ..Tally::default() }) };
    let mut texts = rest.splitn(2, '\0').map(|text| Some(Text::from(text)));
    let mut next = |bit: u8| if first & bit == 0 { None } else { texts.next().flatten() };
    let request = Reconfig { members: next(1), joining: next(2), leaving: next(4), from: -1 };
    let before = Servers::parse(BEFORE).map_or_else(|| Servers::parse(rest), Some);
    let Some((before, _)) = before else { return Ok(Tally::default()) };
    let _ = Servers::parse(rest);
    let voters_min = usize::from(first & 8 == 0) + 1;
    let Ok(after) = request.apply(&before, voters_min) else { return Ok(Tally { refused: 1, ..Tally::default() }) };
    let bounded = after.voters() >= voters_min && after.0.len() <= ENSEMBLE_SERVERS_MAX;
    require(bounded, "servers", || format!("{after:?} has too few voters, or too many servers"))?;
    let text = after.text(7);
    let again = Servers::parse(&text);
    require(again == Some((after, 7)), "servers", || format!("{text:?} is read as {again:?}"))?;
    Ok(Tally { accepted: 1, ..Tally::default() })
}

pub(super) fn generate(stream: &mut Stream, out: &mut Vec<u8>) {
    out.push(stream.pick(&[1, 2, 4, 6, 9, 10]));
    for _ in 0..=stream.below(3) {
        out.extend_from_slice(line(stream).as_bytes());
        out.push(stream.pick(b",,\n\0"));
    }
}

/// A request, well formed for the most part.
pub(super) fn request(stream: &mut Stream) -> Reconfig {
    let line = Some(Text::from(&*line(stream)));
    match stream.below(3) {
        0 => Reconfig { joining: line, ..Reconfig::default() },
        1 => Reconfig { leaving: Some(Text::from("1,2")), from: 7, ..Reconfig::default() },
        _ => Reconfig { members: line, ..Reconfig::default() },
    }
}

fn line(stream: &mut Stream) -> String {
    let host = stream.pick(&["a", "10.0.0.1", "[::1]", "", "localhost", "[fe80::1%eth0]", "x y"]);
    let role = stream.pick(&["", ":observer", ":participant", ":OBSERVER", ":boss", ":"]);
    let client = stream.pick(&[";3", ";h:3", "", ";", ";[::]:3", ";99999", ";x"]);
    let id = stream.pick(&["1", "2", "4", "254", "255", "0", "-1", "x", "04"]);
    let key = stream.pick(&["server.", "server.", "", "x."]);
    let port = stream.pick(&["1", "2", "65535", "65536", "-1", "q"]);
    format!("{key}{id}={host}:{port}:7{role}{client}")
}
