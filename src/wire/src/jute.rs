//! Jute primitives: `Reader` decodes them from a borrowed slice, `Writer` appends them to a `Vec<u8>`.
//!
//! All integers are big-endian; a string or buffer is a length word and its bytes, length -1 means null. Reading
//! borrows and never copies, so that no length that a peer announces causes an allocation. Stateless, any core.
//! It knows no record; a record, and each type of a field, implements [`Wire`].

use alloc::vec::Vec;

use crate::error::DecodeError;

/// A value with a jute encoding: a field type or a whole record.
pub trait Wire<'a>: Sized {
    /// The fewest bytes an encoded value can take; at least 1, so that it bounds vector counts.
    const SIZE_MIN: usize;

    /// The encoding of the value that nearly all vectors of one element hold; empty if there is no such value.
    ///
    /// It is compared as a whole instead of being decoded.
    const USUAL: &'static [u8] = &[];

    /// Decodes one value from the front of `reader`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not an encoding of the value; the reader's position is then unspecified.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Appends the encoding of the value.
    fn encode(&self, writer: &mut Writer<'_>);
}

/// Decodes primitives from the front of a byte slice.
///
/// The caller checks for trailing bytes, see [`Reader::remaining`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    /// One unsigned byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.chunk().map(u8::from_be_bytes).ok_or(DecodeError::Truncated)
    }

    /// One signed byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.chunk().map(i8::from_be_bytes).ok_or(DecodeError::Truncated)
    }

    /// One byte; 0 is false, everything else is true, as in ZooKeeper.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        self.u8().map(|byte| byte != 0)
    }

    /// Four bytes, signed.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.chunk().map(i32::from_be_bytes).ok_or(DecodeError::Truncated)
    }

    /// Four bytes, unsigned; only the extension operations use it.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.chunk().map(u32::from_be_bytes).ok_or(DecodeError::Truncated)
    }

    /// Eight bytes, signed.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.chunk().map(i64::from_be_bytes).ok_or(DecodeError::Truncated)
    }

    /// A length word: `None` for -1, else the number.
    pub(crate) fn length(&mut self) -> Result<Option<u32>, DecodeError> {
        match self.i32()? {
            -1 => Ok(None),
            length => u32::try_from(length).map(Some).map_err(|_| DecodeError::NegativeLength(length)),
        }
    }

    /// A buffer; `None` is jute's null, which is not the empty buffer.
    ///
    /// # Errors
    /// [`DecodeError::NegativeLength`] below -1, [`DecodeError::Truncated`] if fewer bytes follow than announced.
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(length) = self.length()? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(Some(bytes))
    }

    /// A string of valid UTF-8; `None` is jute's null, which is not the empty string.
    ///
    /// # Errors
    /// As [`Reader::buffer`], and [`DecodeError::BadUtf8`].
    pub fn string(&mut self) -> Result<Option<&'a str>, DecodeError> {
        match self.buffer()? {
            None => Ok(None),
            Some(bytes) => core::str::from_utf8(bytes).map(Some).map_err(|_| DecodeError::BadUtf8),
        }
    }
}

/// Appends primitives to a `Vec<u8>`.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`; what is already there stays.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Bytes in the underlying vector, including what was there before.
    #[must_use]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// One unsigned byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// One byte, 1 or 0.
    pub fn bool(&mut self, value: bool) {
        self.out.push(u8::from(value));
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Four bytes, unsigned.
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// These bytes as they are.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A buffer; `None` is written as null.
    ///
    /// # Panics
    /// If the buffer has 2 GiB or more: frames are far smaller, so no peer can make us hold one.
    pub fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.i32(-1),
            Some(bytes) => {
                self.i32(i32::try_from(bytes.len()).expect("fields come from bounded frames, below 2 GiB"));
                self.out.extend_from_slice(bytes);
            }
        }
    }

    /// A string; `None` is written as null.
    ///
    /// # Panics
    /// As [`Writer::buffer`].
    pub fn string(&mut self, value: Option<&str>) {
        self.buffer(value.map(str::as_bytes));
    }

    /// A string that is not null.
    ///
    /// # Panics
    /// As [`Writer::buffer`].
    pub fn str(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Overwrites the four bytes at `position`, which a former call has written.
    pub(crate) fn patch_i32(&mut self, position: usize, value: i32) {
        patch_i32(self.out, position, value);
    }
}

/// Overwrites the four bytes of `out` at `position`.
pub(crate) fn patch_i32(out: &mut [u8], position: usize, value: i32) {
    let word = out
        .get_mut(position..)
        .and_then(<[u8]>::first_chunk_mut::<4>)
        .expect("the word was reserved before and output only grows");
    *word = value.to_be_bytes();
}

macro_rules! wire_primitive {
    ($($ty:ty, $size:literal, $method:ident;)*) => {$(
        impl<'a> Wire<'a> for $ty {
            const SIZE_MIN: usize = $size;

            fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                reader.$method()
            }

            fn encode(&self, writer: &mut Writer<'_>) {
                writer.$method(*self);
            }
        }
    )*};
}

wire_primitive! {
    u8, 1, u8;
    bool, 1, bool;
    i32, 4, i32;
    u32, 4, u32;
    i64, 8, i64;
    Option<&'a str>, 4, string;
    Option<&'a [u8]>, 4, buffer;
}

/// A type with the same number of bytes for every value: records of such fields are appended in one go.
pub(crate) trait Fixed {
    /// Writes the value to the front of `room` and gives what is left of it.
    fn put<'b>(&self, room: &'b mut [u8]) -> &'b mut [u8];
}

macro_rules! fixed_number {
    ($($ty:ty)*) => {$(
        impl Fixed for $ty {
            #[inline]
            fn put<'b>(&self, room: &'b mut [u8]) -> &'b mut [u8] {
                let (head, rest) = room.split_first_chunk_mut().expect("the room is the record's size");
                *head = self.to_be_bytes();
                rest
            }
        }
    )*};
}

fixed_number! { u8 i32 u32 i64 }

impl Fixed for bool {
    #[inline]
    fn put<'b>(&self, room: &'b mut [u8]) -> &'b mut [u8] {
        u8::from(*self).put(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primitives_are_big_endian() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.u8(0x80);
        writer.bool(true);
        writer.i32(-2);
        writer.u32(0x8000_0001);
        writer.i64(5);
        writer.str("/a");
        writer.string(None);
        writer.buffer(Some(&[]));
        let expect = b"\x80\x01\xff\xff\xff\xfe\x80\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\x02/a\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(out, expect);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.i8(), Ok(-128));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.i32(), Ok(-2));
        assert_eq!(reader.u32(), Ok(0x8000_0001));
        assert_eq!(reader.i64(), Ok(5));
        assert_eq!(reader.string(), Ok(Some("/a")));
        assert_eq!(reader.string(), Ok(None));
        assert_eq!(reader.buffer(), Ok(Some(&[][..])));
        assert_eq!(reader.remaining(), 0);
        assert_eq!(reader.u8(), Err(DecodeError::Truncated));
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        for (byte, expect) in [(0, false), (1, true), (2, true), (0xff, true)] {
            assert_eq!(Reader::new(&[byte]).bool(), Ok(expect));
        }
    }

    #[test]
    fn bad_strings_are_refused() {
        fn check(bytes: &[u8], expect: DecodeError) {
            assert_eq!(Reader::new(bytes).string(), Err(expect), "{bytes:x?}");
        }
        check(b"", DecodeError::Truncated);
        check(b"\0\0\0", DecodeError::Truncated);
        check(b"\0\0\0\x02a", DecodeError::Truncated);
        check(b"\x7f\xff\xff\xffa", DecodeError::Truncated);
        check(b"\xff\xff\xff\xfe", DecodeError::NegativeLength(-2));
        check(b"\x80\0\0\0", DecodeError::NegativeLength(i32::MIN));
        check(b"\0\0\0\x01\xff", DecodeError::BadUtf8);
        // A surrogate pair as a Java sender writes it (CESU-8): a path may not hold one, and it is not UTF-8.
        check(b"\0\0\0\x06\xed\xa0\xbd\xed\xb8\x80", DecodeError::BadUtf8);
    }
}
