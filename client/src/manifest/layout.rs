//! The line layout of the manifest: a line for every key, and for every element of a list that
//! stands at the top. A person finds a table's line with `grep`, and two manifests can be
//! compared with `diff`, while ten thousand files do not become a hundred thousand lines.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The object's text up to the last value; the closing brace is left to the caller.
pub fn to_lines<T: Serialize>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Lines { depth: 0 }))?;
    debug_assert!(bytes.ends_with(b"}"));
    bytes.pop();
    Ok(bytes)
}

struct Lines {
    /// Objects and arrays that are open.
    depth: usize,
}

impl Lines {
    /// Before a key or an element at this depth: a new line at the top, else a blank.
    fn separate<W: Write + ?Sized>(
        &self,
        writer: &mut W,
        first: bool,
        own_line: bool,
    ) -> io::Result<()> {
        writer.write_all(match (first, own_line) {
            (true, true) => b"\n",
            (false, true) => b",\n",
            (true, false) => b"",
            (false, false) => b", ",
        })
    }
}

impl Formatter for Lines {
    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.separate(writer, first, self.depth == 1)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.separate(writer, first, self.depth == 2)
    }
}
