//! Immutable text and bytes that several cores hold at once: one allocation, reference counted, archived as a plain
//! string or byte vector. The only sharing between cores there is.

use crate::path;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, Range};
use rkyv::rancor::{Fallible, Source};
use rkyv::ser::{Allocator, Writer};
use rkyv::string::{ArchivedString, StringResolver};
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::{Archive, Deserialize, Place, Serialize};

/// Shared immutable text: paths, names, ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(pub Arc<str>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Archive for Text {
    type Archived = ArchivedString;
    type Resolver = StringResolver;
    fn resolve(&self, resolver: Self::Resolver, out: Place<Self::Archived>) {
        ArchivedString::resolve_from_str(&self.0, resolver, out);
    }
}

impl<S: Fallible<Error: Source> + Writer + ?Sized> Serialize<S> for Text {
    fn serialize(&self, serializer: &mut S) -> Result<Self::Resolver, S::Error> {
        ArchivedString::serialize_from_str(&self.0, serializer)
    }
}

impl<D: Fallible + ?Sized> Deserialize<Text, D> for ArchivedString {
    fn deserialize(&self, _: &mut D) -> Result<Text, D::Error> {
        Ok(Text::from(self.as_str()))
    }
}

/// Shared immutable bytes: a znode's data.
#[derive(Clone)]
pub struct Data(Bytes);

#[derive(Clone)]
enum Bytes {
    Own(Arc<[u8]>),
    Lent(Arc<Lent>),
}

/// A part of something larger, which stays for as long.
struct Lent {
    whole: Arc<dyn AsRef<[u8]> + Send + Sync>,
    part: Range<usize>,
}

impl Lent {
    #[cold]
    #[inline(never)]
    fn bytes(&self) -> &[u8] {
        &(*self.whole).as_ref()[self.part.clone()]
    }
}

impl Data {
    /// Data that are a part of bytes held elsewhere, without a copy.
    ///
    /// # Panics
    /// When it is no part of it.
    pub(crate) fn lent(whole: Arc<dyn AsRef<[u8]> + Send + Sync>, part: Range<usize>) -> Self {
        assert!((*whole).as_ref().get(part.clone()).is_some(), "lent data are there");
        Self(Bytes::Lent(Arc::new(Lent { whole, part })))
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::Own(Arc::from(bytes)))
    }
}

impl Deref for Data {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(lent) => lent.bytes(),
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Data {}

impl Archive for Data {
    type Archived = ArchivedVec<u8>;
    type Resolver = VecResolver;
    fn resolve(&self, resolver: Self::Resolver, out: Place<Self::Archived>) {
        ArchivedVec::resolve_from_len(self.len(), resolver, out);
    }
}

impl<S: Fallible + Allocator + Writer + ?Sized> Serialize<S> for Data {
    fn serialize(&self, serializer: &mut S) -> Result<Self::Resolver, S::Error> {
        ArchivedVec::<u8>::serialize_from_slice(self, serializer)
    }
}

impl<D: Fallible + ?Sized> Deserialize<Data, D> for ArchivedVec<u8> {
    fn deserialize(&self, _: &mut D) -> Result<Data, D::Error> {
        Ok(Data::from(self.as_slice()))
    }
}

/// A path together with the hashes by which every view of this server finds it and its parent.
///
/// Computed once, where the change is made; a shard that applies the change hashes nothing and looks for no slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedPath {
    /// Path of the znode.
    pub path: Text,
    /// Hash of the path, by the hasher of this server's views.
    pub hash: u64,
    /// 0 where the parent is not concerned: a znode's own state changes.
    pub parent_hash: u64,
    name_at: u32,
}

impl HashedPath {
    /// The path with its hash; `hash_of` is asked for the parent's too if that is concerned.
    pub(crate) fn new(path: Text, concerns_parent: bool, hash_of: impl Fn(&str) -> u64) -> Self {
        let name_at = path::last_slash(&path).map_or(0, |at| at + 1);
        let name_at = u32::try_from(name_at).expect("a path is far below 4 GiB");
        let mut hashed = Self { hash: hash_of(&path), parent_hash: 0, name_at, path };
        if concerns_parent {
            hashed.parent_hash = hash_of(hashed.parent());
        }
        hashed
    }

    /// The path of the parent; the root's parent is the root itself.
    #[inline]
    pub fn parent(&self) -> &str {
        match self.name_at {
            0 | 1 => path::ROOT,
            at => &self.path[..at as usize - 1],
        }
    }

    /// The last component.
    #[inline]
    pub fn name(&self) -> &str {
        &self.path[self.name_at as usize..]
    }

    /// Where the last component begins, in bytes.
    pub(crate) const fn name_at(&self) -> u32 {
        self.name_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hashed_path_is_taken_apart_as_any_path() {
        for text in ["/", "/a", "/a/b", "/a/", "/a//b", "a", "", "/\u{e4}/\u{f6}"] {
            let at = HashedPath::new(Text::from(text), true, |path| path.len() as u64 + 1);
            assert_eq!((at.parent(), at.name()), (path::parent(text), path::name(text)), "{text:?}");
            assert_eq!((at.hash, at.parent_hash), (text.len() as u64 + 1, path::parent(text).len() as u64 + 1));
        }
    }
}
