//! A bookmark as the command line gives it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use super::Error;

/// A bookmark, or where to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// The text itself.
    Text(String),
    /// `@FILE`.
    File(PathBuf),
    /// `-`.
    StandardInput,
}

impl Given {
    /// Takes an argument. A bookmark is JSON, which begins with neither `@` nor `-`.
    ///
    /// # Errors
    ///
    /// An argument that cannot be a bookmark, for people.
    pub fn parse(argument: OsString) -> Result<Self, &'static str> {
        if let Some(name) = argument.as_bytes().strip_prefix(b"@") {
            if name.is_empty() {
                return Err("@ must be followed by the name of a file");
            }
            return Ok(Self::File(OsString::from_vec(name.to_vec()).into()));
        }
        match argument.into_string() {
            Ok(text) if text == "-" => Ok(Self::StandardInput),
            // A script that had none to give.
            Ok(text) if text.trim().is_empty() => Err("it is empty"),
            Ok(text) => Ok(Self::Text(text)),
            Err(_) => Err("it is not UTF-8"),
        }
    }

    /// Its text, without the newline that most files end with.
    ///
    /// # Errors
    ///
    /// What cannot be read, or holds nothing.
    pub fn read(&self) -> Result<String, Error> {
        let (read, from) = match self {
            Self::Text(text) => return Ok(text.trim().to_owned()),
            Self::File(path) => (fs::read_to_string(path), format!("\"{}\"", path.display())),
            Self::StandardInput => {
                let mut text = String::new();
                let read = io::stdin().lock().read_to_string(&mut text).map(|_| text);
                (read, "standard input".to_owned())
            }
        };
        match read {
            Err(source) => Err(Error::Unreadable { from, source }),
            Ok(text) if text.trim().is_empty() => Err(Error::NoBookmark { from }),
            Ok(text) => Ok(text.trim().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_is_text_or_a_file_or_standard_input() {
        let text = "{\"version\":1}";
        assert_eq!(Given::parse(text.into()), Ok(Given::Text(text.to_owned())));
        assert_eq!(Given::parse("@a b".into()), Ok(Given::File("a b".into())));
        assert_eq!(Given::parse("-".into()), Ok(Given::StandardInput));
        for nothing in ["", " \n", "@"] {
            assert!(Given::parse(nothing.into()).is_err(), "{nothing:?}");
        }
        // A file's name may be any.
        let name = OsString::from_vec(b"@caf\xe9".to_vec());
        assert!(matches!(Given::parse(name), Ok(Given::File(_))));
        assert!(Given::parse(OsString::from_vec(b"caf\xe9".to_vec())).is_err());
    }

    #[test]
    fn a_file_may_end_with_a_newline_and_must_hold_something() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("bookmark");
        fs::write(&file, "{\"version\":1}\n").expect("a file");
        let given = Given::File(file.clone());
        assert_eq!(given.read().expect("it is there"), "{\"version\":1}");
        fs::write(&file, "\n").expect("a file");
        let message = given.read().expect_err("it is empty").to_string();
        assert_eq!(message, format!("there is no bookmark in \"{}\"", file.display()));
        fs::remove_file(&file).expect("it is there");
        let message = given.read().expect_err("it is gone").to_string();
        assert!(message.starts_with("could not read the bookmark from \""), "{message}");
    }
}
