//! Values of SQL types, made and read by the server's own functions, because the layout of
//! variable-length values is not the same on every server.
//!
//! What is made here lies in the current memory context: that of the SPI connection while
//! there is one, which ends with it.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use stillpoint_check::Oid;

use super::text::Encoding;
use super::{compat, error, pg_sys};

/// A value of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// `oid`; `None` is NULL.
    Oid(Option<Oid>),
    /// `bool`.
    Bool(bool),
    /// `"char"`.
    Char(u8),
    /// `xid8`; `None` is NULL.
    Xid(Option<u64>),
    /// `pg_lsn`.
    Lsn(u64),
    /// `timestamptz`, in microseconds since 2000-01-01.
    Timestamp(i64),
    /// `timestamptz`, in the same unit; `None` is NULL.
    OptionalTimestamp(Option<i64>),
    /// `bigint`.
    BigInt(i64),
    /// `text`.
    Text(&'a str),
    /// `text`; `None` is NULL.
    OptionalText(Option<&'a str>),
    /// `text[]`.
    Texts(&'a [&'a str]),
    /// `oid[]`.
    Oids(&'a [Oid]),
}

impl Value<'_> {
    pub(super) fn type_oid(self) -> pg_sys::Oid {
        match self {
            Self::Oid(_) => pg_sys::OIDOID,
            Self::Bool(_) => pg_sys::BOOLOID,
            Self::Char(_) => pg_sys::CHAROID,
            Self::Xid(_) => pg_sys::XID8OID,
            Self::Lsn(_) => compat::PG_LSN,
            Self::Timestamp(_) | Self::OptionalTimestamp(_) => pg_sys::TIMESTAMPTZOID,
            Self::BigInt(_) => pg_sys::INT8OID,
            Self::Text(_) | Self::OptionalText(_) => pg_sys::TEXTOID,
            Self::Texts(_) => pg_sys::TEXTARRAYOID,
            Self::Oids(_) => pg_sys::OIDARRAYOID,
        }
    }

    /// The value as the server takes it; `None` is NULL.
    pub(super) fn to_datum(self, encoding: Encoding) -> Option<pg_sys::Datum> {
        match self {
            Self::Oid(oid) => oid.map(pg_sys::Datum::from),
            Self::Bool(value) => Some(value.into()),
            Self::Char(value) => Some(pg_sys::Datum::from(value)),
            Self::Xid(xid) => xid.map(wide),
            Self::Lsn(position) => Some(wide(position)),
            Self::Timestamp(time) => Some(wide(time as u64)),
            Self::OptionalTimestamp(time) => time.map(|time| wide(time as u64)),
            Self::BigInt(value) => Some(wide(value as u64)),
            Self::Text(value) => Some(text(value, encoding)),
            Self::OptionalText(value) => value.map(|value| text(value, encoding)),
            Self::Texts(values) => Some(text_array(values, encoding)),
            Self::Oids(values) => Some(oid_array(values)),
        }
    }
}

/// A value of eight bytes, passed by value: every server that pgrx builds for has 64 bits.
pub(super) fn wide(value: u64) -> pg_sys::Datum {
    pg_sys::Datum::from(value)
}

/// Reads an `xid8`.
pub(super) fn read_xid(datum: pg_sys::Datum) -> u64 {
    datum.value() as u64
}

/// A `text`.
pub(super) fn text(value: &str, encoding: Encoding) -> pg_sys::Datum {
    let value = encoding.write(value);
    // SAFETY: the server copies the string, which lives until the end of this function.
    unsafe { pg_sys::cstring_to_text(value.as_ptr()) }.into()
}

/// A `text[]`.
fn text_array(values: &[&str], encoding: Encoding) -> pg_sys::Datum {
    let mut values: Vec<_> = values.iter().map(|value| text(value, encoding)).collect();
    // SAFETY: the elements are values of `text`, whose length, passing and alignment these are
    // (pg_type.dat); the server copies them.
    unsafe {
        let count = count(&values);
        pg_sys::construct_array(values.as_mut_ptr(), count, pg_sys::TEXTOID, -1, false, ALIGN_INT)
    }
    .into()
}

/// An `oid[]`.
pub(super) fn oid_array(values: &[Oid]) -> pg_sys::Datum {
    let mut values: Vec<_> = values.iter().copied().map(pg_sys::Datum::from).collect();
    // SAFETY: as for text_array(), with `oid`.
    unsafe {
        let count = count(&values);
        pg_sys::construct_array(values.as_mut_ptr(), count, pg_sys::OIDOID, 4, true, ALIGN_INT)
    }
    .into()
}

/// `TYPALIGN_INT` in pg_type.h, the alignment of both `oid` and `text`.
const ALIGN_INT: c_char = b'i' as c_char;

fn count(values: &[pg_sys::Datum]) -> c_int {
    match c_int::try_from(values.len()) {
        Ok(count) => count,
        Err(_) => error::raise_internal(format!("array of {} elements", values.len())),
    }
}

/// Reads an `oid`.
pub(super) fn read_oid(datum: pg_sys::Datum) -> Oid {
    // DatumGetObjectId(): the value stands in the lower half.
    datum.value() as Oid
}

/// Reads a `text`.
///
/// # Safety
///
/// `datum` is a value of that type and not NULL.
pub(super) unsafe fn read_text(datum: pg_sys::Datum, encoding: Encoding) -> String {
    // SAFETY: the caller's promise; the server makes a copy that ends with a zero byte, and
    // nothing uses it after it is freed.
    unsafe {
        let copy = pg_sys::text_to_cstring(datum.cast_mut_ptr());
        let text = encoding.read(CStr::from_ptr(copy));
        pg_sys::pfree(copy.cast());
        text
    }
}

/// Reads an `oid[]` of any number of dimensions, element by element; `None` is NULL.
///
/// # Safety
///
/// `datum` is a value of that type and not NULL.
pub(super) unsafe fn read_oid_array(datum: pg_sys::Datum) -> Vec<Option<Oid>> {
    let mut elements = ptr::null_mut();
    let mut nulls = ptr::null_mut();
    let mut count = 0;
    // SAFETY: the caller's promise. The server sets all three, and both arrays have `count`
    // elements, in the current memory context, which outlives this function.
    unsafe {
        let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
        pg_sys::deconstruct_array(
            array.cast(),
            pg_sys::OIDOID,
            4,
            true,
            ALIGN_INT,
            &raw mut elements,
            &raw mut nulls,
            &raw mut count,
        );
        let element = |i| (!*nulls.add(i)).then(|| read_oid(*elements.add(i)));
        (0..usize::try_from(count).unwrap_or(0)).map(element).collect()
    }
}
