//! A segment file of which one piece at a time is in memory: for looking at a log of any size in bounded memory.
//!
//! For dumps and the scrubber. The file is read with system calls, not mapped. A server may write it meanwhile, and a
//! place that the disk cannot read is an error. It knows records and marks, not what follows from them.

use std::io;

use super::mark::find_trace_in;
use super::record::{HEADER_BYTES, RecordHead, Stamp};
use crate::disk::PieceReader;
use crate::field::{is_zero, narrow, wide};
use crate::limits::PIECE_BYTES;

pub(crate) struct Window {
    file: Box<dyn PieceReader>,
    /// Offset of the first byte of `piece`.
    start: usize,
    piece: Vec<u8>,
}

/// Called before each piece is read, with its bytes; may block.
pub(crate) type Pace<'p> = dyn FnMut(usize) + 'p;

impl Window {
    pub(crate) fn of(file: Box<dyn PieceReader>) -> Window {
        Window { file, start: 0, piece: Vec::new() }
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> usize {
        narrow(self.file.length())
    }

    /// The bytes from `offset` on: `wanted` bytes at least, or all up to the end of the file.
    pub(crate) fn at(&mut self, offset: usize, wanted: usize, pace: &mut Pace<'_>) -> io::Result<&[u8]> {
        assert!(wanted <= PIECE_BYTES, "no more is held");
        let end = self.length().min(offset.saturating_add(wanted));
        let held = self.start.saturating_add(self.piece.len());
        if offset < self.start || end > held {
            let bytes = self.length().saturating_sub(offset).min(PIECE_BYTES);
            self.piece.resize(bytes, 0);
            self.start = offset;
            pace(bytes);
            let read = self.file.read(wide(offset), &mut self.piece);
            // After an error nothing is held.
            self.piece.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        Ok(self.piece.get(offset.saturating_sub(self.start)..).unwrap_or_default())
    }

    /// Whether the payload of the record with its header at `offset` matches its checksum.
    pub(crate) fn payload_checks(&mut self, head: &RecordHead, offset: usize, pace: &mut Pace<'_>) -> io::Result<bool> {
        let (mut at, mut left) = (offset.saturating_add(HEADER_BYTES), head.payload_bytes as usize);
        if at.saturating_add(left) > self.length() {
            return Ok(false);
        }
        let mut crc = 0;
        while left > 0 {
            let rest = self.at(at, 1, pace)?;
            let part = rest.get(..left.min(rest.len())).unwrap_or_default();
            if part.is_empty() {
                // Cut off since it was opened.
                return Ok(false);
            }
            crc = crc32c::crc32c_append(crc, part);
            (at, left) = (at.saturating_add(part.len()), left.saturating_sub(part.len()));
        }
        Ok(crc == head.payload_crc)
    }

    /// The first place behind `from` (a multiple of 8) with a valid record header or mark of this stamp, or the end of
    /// the file. The flag is whether there are only zeros before it.
    pub(crate) fn find_trace(&mut self, from: usize, stamp: Stamp, pace: &mut Pace<'_>) -> io::Result<(usize, bool)> {
        let (mut at, mut zero, length) = (from, true, self.length());
        loop {
            let part = self.at(at, PIECE_BYTES, pace)?;
            let bytes = part.len();
            if let Some((found, _)) = find_trace_in(part, at, stamp) {
                let before = part.get(..found.saturating_sub(at)).unwrap_or_default();
                return Ok((found, zero && is_zero(before)));
            }
            if bytes < PIECE_BYTES {
                return Ok((length, zero && is_zero(part)));
            }
            // A record across the end of this part lies whole in the next part.
            let done = bytes.saturating_sub(HEADER_BYTES);
            zero &= is_zero(part.get(..done).unwrap_or_default());
            at = at.saturating_add(done);
        }
    }
}

const _: () = assert!(PIECE_BYTES.is_multiple_of(8) && HEADER_BYTES.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk as _;
    use crate::log::mark::{find_trace, write_mark};
    use crate::log::record::RecordKind;
    use crate::sim_disk::SimDisk;

    const STAMP: Stamp = Stamp { generation: 7, salt: 0xABCD };

    fn window(content: &[u8]) -> Window {
        let disk = SimDisk::new();
        disk.place("log", content.to_vec());
        Window::of(disk.open_pieces("log").expect("it is there"))
    }

    #[test]
    fn a_trace_is_found_wherever_pieces_end() {
        let length = 2 * PIECE_BYTES + 4096;
        for behind in (0..=2 * HEADER_BYTES).step_by(8) {
            for (from, zero) in [(8, true), (8, false), (4096, true)] {
                let at = from + PIECE_BYTES + HEADER_BYTES - behind;
                let mut content = vec![0; length];
                content[from + 5000] = u8::from(!zero);
                write_mark(&mut content, at, STAMP, 1064);
                assert_eq!(find_trace(&content, from, STAMP).map(|(at, _)| at), Some(at));
                let mut most = 0;
                let found = window(&content).find_trace(from, STAMP, &mut |bytes| most = most.max(bytes));
                assert_eq!((found.expect("it reads"), most), ((at, zero), PIECE_BYTES));
            }
        }
        let none = window(&vec![0; length]).find_trace(8, STAMP, &mut |_| {});
        assert_eq!(none.expect("it reads"), (length, true));
    }

    #[test]
    fn a_payload_longer_than_a_piece_is_compared_whole() {
        let mut content: Vec<u8> = (0..3 * PIECE_BYTES).map(|at| (at / 100).to_le_bytes()[0]).collect();
        let payload = content[64 + HEADER_BYTES..content.len() - 7].to_vec();
        let head = RecordHead {
            kind: RecordKind::Entry,
            term: 1,
            index: 1,
            first_zxid: 1,
            watermark: 0,
            payload_bytes: u32::try_from(payload.len()).expect("it is short"),
            payload_crc: crc32c::crc32c(&payload),
        };
        let checks = |content: &[u8], head: &RecordHead| {
            let mut window = window(content);
            let checks = window.payload_checks(head, 64, &mut |bytes| assert!(bytes <= PIECE_BYTES));
            assert!(window.piece.capacity() <= PIECE_BYTES, "no more is held");
            checks.expect("it reads")
        };
        assert!(checks(&content, &head));
        assert!(!checks(&content[..content.len() - 8], &head), "it is cut off");
        for at in [64 + HEADER_BYTES, PIECE_BYTES, 2 * PIECE_BYTES + HEADER_BYTES, content.len() - 8] {
            content[at] ^= 1;
            assert!(!checks(&content, &head), "byte {at}");
            content[at] ^= 1;
        }
    }
}
