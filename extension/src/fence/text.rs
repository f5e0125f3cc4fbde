//! Text of the server in Rust and back.
//!
//! A server may have any encoding, or none (`SQL_ASCII`, where names are bytes). What the check
//! needs is that equal stays equal, different stays different, and every name finds its way
//! back. So text of a UTF-8 server is taken as it is, and of any other server each byte becomes
//! the character of that number.

use std::ffi::{CStr, CString};

use super::{error, pg_sys};

/// How the bytes of the current database's text are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The database's encoding is UTF-8.
    Utf8,
    /// It is another one.
    Bytes,
}

impl Encoding {
    /// The encoding of the current database.
    pub fn of_database() -> Self {
        // SAFETY: the function reads a variable of the backend.
        let encoding = unsafe { pg_sys::GetDatabaseEncoding() };
        if encoding == pg_sys::pg_enc::PG_UTF8 as i32 { Self::Utf8 } else { Self::Bytes }
    }

    pub(super) fn read(self, text: &CStr) -> String {
        match self {
            Self::Utf8 => match text.to_str() {
                Ok(text) => text.to_owned(),
                Err(_) => error::raise_internal(format!("text is not valid UTF-8: {text:?}")),
            },
            Self::Bytes => text.to_bytes().iter().copied().map(char::from).collect(),
        }
    }

    pub(super) fn write(self, text: &str) -> CString {
        let bytes = match self {
            Self::Utf8 => text.into(),
            // Only what came from read() holds characters beyond ASCII here.
            Self::Bytes => text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect(),
        };
        match CString::new::<Vec<u8>>(bytes) {
            Ok(text) => text,
            Err(_) => error::raise_internal(format!("text holds a zero byte: {text:?}")),
        }
    }

    /// The text as it may stand in an error message: messages are sent in the database's
    /// encoding without being converted, so where that is not ours only ASCII is safe.
    pub fn for_message(self, text: &str) -> String {
        match self {
            Self::Utf8 => text.to_owned(),
            Self::Bytes => text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect(),
        }
    }
}
