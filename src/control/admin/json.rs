//! JSON as Jackson prints it for ZooKeeper's AdminServer: scripts look for `"error" : null` with its spaces.
//!
//! Pure.

use std::io;

use serde::Serialize;
use serde::ser::SerializeMap as _;
use serde_json::ser::{Compound, Formatter, Serializer};

const WRITTEN: &str = "a Vec takes every write, and keys are texts";

/// An object that is being written.
pub(super) struct Fields<'o>(Compound<'o, Vec<u8>, Jackson>);

impl Fields<'_> {
    pub(super) fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.0.serialize_entry(name, value).expect(WRITTEN);
    }
}

/// The text of an object with these fields.
pub(super) fn object(fields: impl FnOnce(&mut Fields<'_>)) -> Vec<u8> {
    let mut serializer = Serializer::with_formatter(Vec::new(), Jackson::default());
    let mut written = Fields(serde::Serializer::serialize_map(&mut serializer, None).expect(WRITTEN));
    fields(&mut written);
    written.0.end().expect(WRITTEN);
    serializer.into_inner()
}

/// Jackson's `DefaultPrettyPrinter`: a field a line, lists on one line.
#[derive(Default)]
pub(super) struct Jackson {
    depth: usize,
    /// Whether the object that ends next has a field.
    has_field: bool,
}

impl Jackson {
    fn line<W: io::Write + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        write!(writer, "\n{:1$}", "", 2 * self.depth)
    }
}

impl Formatter for Jackson {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b" " } else { b", " })
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b" ]")
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.has_field = false;
        writer.write_all(b"{")
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b"," })?;
        self.line(writer)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b" : ")
    }

    fn end_object_value<W: io::Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_field = true;
        Ok(())
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.has_field {
            self.line(writer)?;
            return writer.write_all(b"}");
        }
        writer.write_all(b" }")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn objects_and_lists_as_jackson_prints_them() {
        let inner = BTreeMap::from([("sid", 3), ("requests", 0)]);
        let text = object(|fields| {
            fields.put("none", &BTreeMap::<String, u8>::new());
            fields.put("numbers", &[1, 2]);
            fields.put("empty", &[0_u8; 0]);
            fields.put("observers", &[&inner, &inner]);
            fields.put("average", &1.25);
            fields.put("zero", &0.0);
            fields.put("text", "a \"b\"\n");
            fields.put("error", &None::<&str>);
        });
        let expect = r#"{
  "none" : { },
  "numbers" : [ 1, 2 ],
  "empty" : [ ],
  "observers" : [ {
    "requests" : 0,
    "sid" : 3
  }, {
    "requests" : 0,
    "sid" : 3
  } ],
  "average" : 1.25,
  "zero" : 0.0,
  "text" : "a \"b\"\n",
  "error" : null
}"#;
        assert_eq!(String::from_utf8(text).expect("JSON is text"), expect);
    }
}
