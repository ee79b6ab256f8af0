//! Jute vectors: a validated borrowed view for reading, an owned buffer and a streaming encoder for writing.
//!
//! A `Vector` has been decoded once from end to end when it exists, so iterating cannot fail. It holds a count and a
//! byte slice, however large the count is. A server streams a list with `VectorEncoder` and never builds a `Vec` of it.
//! Stateless, any core. Knows no record.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use crate::error::DecodeError;
use crate::jute::{Reader, Wire, Writer};

/// A decoded vector of `T` that borrows its bytes. The null vector is `Option::<Vector<T>>::None`.
pub struct Vector<'a, T> {
    count: u32,
    bytes: &'a [u8],
    items: PhantomData<fn() -> T>,
}

/// A vector of strings; jute allows each of them to be null.
pub type Strings<'a> = Vector<'a, Option<&'a str>>;

impl<'a, T: Wire<'a>> Vector<'a, T> {
    /// The vector without elements.
    pub const EMPTY: Self = Self { count: 0, bytes: &[], items: PhantomData };

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded elements, without the count word.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Decodes element after element.
    #[must_use]
    pub const fn iter(&self) -> Iter<'a, T> {
        Iter { left: self.count, reader: Reader::new(self.bytes), items: PhantomData }
    }

    /// A view of `count` elements that are known to be well formed.
    pub(crate) const fn of_valid(count: u32, bytes: &'a [u8]) -> Self {
        Self { count, bytes, items: PhantomData }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<Vector<'a, T>> {
    const SIZE_MIN: usize = 4;

    /// Checks the count against the bytes left before anything else, then every element. A count below -1 is refused
    /// (ZooKeeper's reader takes it for an empty vector; no client sends it).
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        const { assert!(T::SIZE_MIN > 0, "an element without bytes would leave the count unbounded") };
        let Some(count) = reader.length()? else { return Ok(None) };
        let possible = reader.remaining().checked_div(T::SIZE_MIN).unwrap_or(0);
        let possible = u32::try_from(possible).unwrap_or(u32::MAX);
        if count > possible {
            return Err(DecodeError::TooLong { claimed: count, possible });
        }
        let start = reader.rest();
        if count == 1
            && !T::USUAL.is_empty()
            && let Some(rest) = start.strip_prefix(T::USUAL)
        {
            *reader = Reader::new(rest);
            return Ok(Some(Vector::of_valid(1, T::USUAL)));
        }
        for _ in 0..count {
            T::decode(reader)?;
        }
        let length = start.len().saturating_sub(reader.remaining());
        let bytes = start.get(..length).ok_or(DecodeError::Truncated)?;
        Ok(Some(Vector::of_valid(count, bytes)))
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            None => writer.i32(-1),
            Some(vector) => {
                writer.u32(vector.count);
                writer.raw(vector.bytes);
            }
        }
    }
}

impl<T> Clone for Vector<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Vector<'_, T> {}

impl<T> PartialEq for Vector<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.bytes == other.bytes
    }
}

impl<T> Eq for Vector<'_, T> {}

impl<'a, T: Wire<'a> + fmt::Debug> fmt::Debug for Vector<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Wire<'a>> IntoIterator for Vector<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Wire<'a>> IntoIterator for &Vector<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Decodes the elements of a [`Vector`] one by one.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    left: u32,
    reader: Reader<'a>,
    items: PhantomData<fn() -> T>,
}

impl<'a, T: Wire<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        Some(T::decode(&mut self.reader).expect("every element was decoded when the vector was"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl<'a, T: Wire<'a>> ExactSizeIterator for Iter<'a, T> {}

/// Encodes a vector element by element: reserves the count word, patches it in [`VectorEncoder::finish`].
#[derive(Debug)]
#[must_use = "the count word is written by finish()"]
pub struct VectorEncoder<'w, 'v> {
    writer: &'w mut Writer<'v>,
    count_at: usize,
    count: i32,
}

impl<'w, 'v> VectorEncoder<'w, 'v> {
    /// Starts a vector at the end of `writer`.
    pub fn new(writer: &'w mut Writer<'v>) -> Self {
        let count_at = writer.position();
        writer.i32(0);
        Self { writer, count_at, count: 0 }
    }

    /// Appends one element.
    ///
    /// # Panics
    /// At 2^31 elements: they would need more than 8 GiB, no tree has a znode with so many children.
    pub fn push<'a, T: Wire<'a>>(&mut self, item: &T) {
        self.count = self.count.checked_add(1).expect("a list has fewer than 2^31 elements");
        item.encode(self.writer);
    }

    /// Stores the count word, and returns the number of elements.
    pub fn finish(self) -> i32 {
        self.writer.patch_i32(self.count_at, self.count);
        self.count
    }
}

/// Encodes a list of names or paths straight from the tree: the list part of the getChildren, getChildren2 and
/// getEphemerals replies. For getChildren2 append the `Stat` after [`ChildrenEncoder::finish`].
#[derive(Debug)]
#[must_use = "the count word is written by finish()"]
pub struct ChildrenEncoder<'w, 'v>(VectorEncoder<'w, 'v>);

impl<'w, 'v> ChildrenEncoder<'w, 'v> {
    /// Starts the list at the end of `writer`.
    pub fn new(writer: &'w mut Writer<'v>) -> Self {
        Self(VectorEncoder::new(writer))
    }

    /// Appends one name.
    ///
    /// # Panics
    /// As [`VectorEncoder::push`].
    pub fn push(&mut self, name: &str) {
        self.0.push(&Some(name));
    }

    /// Stores the count word, and returns the number of names.
    pub fn finish(self) -> i32 {
        self.0.finish()
    }
}

/// Owned encoded elements, for making a request: in tests, the load generator, a fixed ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorBuf {
    count: u32,
    bytes: Vec<u8>,
}

impl VectorBuf {
    /// Encodes the items in order.
    ///
    /// # Panics
    /// At 2^31 items.
    #[must_use]
    pub fn of<'a, T: Wire<'a>>(items: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        let mut count = 0_i32;
        for item in items {
            count = count.checked_add(1).expect("a list has fewer than 2^31 elements");
            item.encode(&mut Writer::new(&mut bytes));
        }
        Self { count: count.unsigned_abs(), bytes }
    }

    /// The items as a vector of `T`, which must be the type they were encoded from or one of the same layout.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no vector of `T`.
    pub fn view<'a, T: Wire<'a>>(&'a self) -> Result<Vector<'a, T>, DecodeError> {
        let mut reader = Reader::new(&self.bytes);
        for _ in 0..self.count {
            T::decode(&mut reader)?;
        }
        match reader.remaining() {
            0 => Ok(Vector::of_valid(self.count, &self.bytes)),
            _ => Err(DecodeError::Truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_and_full_differ() {
        fn check(bytes: &[u8], expect: Option<&[Option<&str>]>) {
            let decoded = Option::<Strings<'_>>::decode(&mut Reader::new(bytes)).expect("valid");
            assert_eq!(decoded.map(|v| v.iter().collect::<Vec<_>>()), expect.map(<[_]>::to_vec));
            let mut out = Vec::new();
            decoded.encode(&mut Writer::new(&mut out));
            assert_eq!(out, bytes);
        }
        check(b"\xff\xff\xff\xff", None);
        check(b"\0\0\0\0", Some(&[]));
        check(b"\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff", Some(&[Some("a"), None]));
    }

    #[test]
    fn hostile_counts_are_refused() {
        fn check(bytes: &[u8], expect: DecodeError) {
            assert_eq!(Option::<Strings<'_>>::decode(&mut Reader::new(bytes)), Err(expect));
        }
        check(b"\x7f\xff\xff\xff", DecodeError::TooLong { claimed: 0x7fff_ffff, possible: 0 });
        check(b"\0\0\0\x03\0\0\0\0\0\0\0\0", DecodeError::TooLong { claimed: 3, possible: 2 });
        check(b"\xff\xff\xff\xfe", DecodeError::NegativeLength(-2));
        check(b"\0\0\0\x01\0\0\0\x01", DecodeError::Truncated);
        check(b"\0\0\0\x01\0\0\0\x01\xff", DecodeError::BadUtf8);
    }

    #[test]
    fn children_stream() {
        let mut out = alloc::vec![9];
        let mut writer = Writer::new(&mut out);
        let mut children = ChildrenEncoder::new(&mut writer);
        children.push("a");
        children.push("bc");
        assert_eq!(children.finish(), 2);
        assert_eq!(out, b"\x09\0\0\0\x02\0\0\0\x01a\0\0\0\x02bc");
        let names = VectorBuf::of([Some("a"), Some("bc")]);
        assert_eq!(names.view::<Option<&str>>().expect("strings").bytes(), &out[5..]);
    }
}
