//! The message for a lost page of a mapped file: names the file and the offset, found in the kernel's list of mappings.
//!
//! Runs inside of a signal handler: nothing here allocates, locks, or depends on the work of the process at that time.
//! Any thread.

use std::fs::File;
use std::io::{self, Read, Write};

/// The kernel's list: one line a mapping, with the path that the file has now.
const MAPPINGS: &str = "/proc/self/maps";
/// Longer lines are cut: a path may have 4096 bytes.
const LINE_BYTES_MAX: usize = 4352;

/// Where an address lies.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    path: &'a [u8],
    /// In the file.
    offset: u64,
}

/// Writes the sentence for a fault at `address` to `out` in one piece. False where that is no mapped file.
pub(super) fn report(address: u64, out: &mut impl Write) -> bool {
    let mut line = Text::<LINE_BYTES_MAX>::new();
    let Ok(mut list) = File::open(MAPPINGS) else { return false };
    let mut piece = [0; 1024];
    loop {
        let read = match list.read(&mut piece) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        for byte in piece.iter().take(read) {
            if *byte != b'\n' {
                let _ = line.write(&[*byte]);
                continue;
            }
            if let Some(place) = place(line.bytes(), address) {
                return tell(&place, out).is_ok();
            }
            line.bytes = 0;
        }
    }
}

fn tell(place: &Place<'_>, out: &mut impl Write) -> io::Result<()> {
    let mut text = Text::<{ LINE_BYTES_MAX + 512 }>::new();
    text.write_all(b"corral: ")?;
    text.write_all(place.path)?;
    writeln!(
        text,
        ": the page at offset {} cannot be read or written: the file was cut off under the running server, or the disk failed or \
         is full; the server ended at once; look at the disk, and start the server again: it checks its files first",
        place.offset
    )?;
    out.write_all(text.bytes())
}

/// Whether the mapping of this line holds the address, and a file.
fn place(line: &[u8], address: u64) -> Option<Place<'_>> {
    let mut rest = line;
    let mut word = || {
        let begins = rest.iter().position(|byte| *byte != b' ')?;
        let from = rest.get(begins..)?;
        let ends = from.iter().position(|byte| *byte == b' ').unwrap_or(from.len());
        let (word, behind) = from.split_at_checked(ends)?;
        rest = behind;
        Some(word)
    };
    let mut range = word()?.split(|byte| *byte == b'-');
    let (from, to) = (number(range.next()?)?, number(range.next()?)?);
    let (_mode, offset, _device, _inode) = (word()?, number(word()?)?, word()?, word()?);
    let path = rest.trim_ascii();
    let within = address.checked_sub(from).filter(|_| address < to && path.starts_with(b"/"))?;
    Some(Place { path, offset: offset.checked_add(within)? })
}

fn number(hex: &[u8]) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()
}

/// Bytes on the stack; what does not fit is cut.
struct Text<const MAX: usize> {
    buffer: [u8; MAX],
    bytes: usize,
}

impl<const MAX: usize> Text<MAX> {
    fn new() -> Text<MAX> {
        Text { buffer: [0; MAX], bytes: 0 }
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.bytes).unwrap_or_default()
    }
}

impl<const MAX: usize> Write for Text<MAX> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (to, from) in self.buffer.iter_mut().skip(self.bytes).zip(bytes) {
            *to = *from;
        }
        self.bytes = self.bytes.saturating_add(bytes.len()).min(MAX);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_place() {
        let line = b"7f0000001000-7f0000003000 r--s 00002000 fd:00 4711                       /a dir/image-1.img";
        let place_of = |address| place(line, address).map(|place| (place.path, place.offset));
        assert_eq!(place_of(0x7f00_0000_1000), Some((&b"/a dir/image-1.img"[..], 0x2000)));
        assert_eq!(place_of(0x7f00_0000_2fff), Some((&b"/a dir/image-1.img"[..], 0x3fff)));
        assert_eq!((place_of(0x7f00_0000_3000), place_of(0xfff)), (None, None));
        for other in
            [&b"7f0000001000-7f0000003000 rw-p 00000000 00:00 0 "[..], b"7f0000001000-7f0000003000", b"", b"x y z"]
        {
            assert_eq!(place(other, 0x7f00_0000_1000), None, "{}", other.escape_ascii());
        }
        assert_eq!(place(b"1000-3000 rw-p 00000000 00:00 0    [heap]", 0x1000), None);
    }
}
