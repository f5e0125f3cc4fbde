//! The files of a relation: segments of 1 GB, and forks beside the main one.
//!
//! The ledger names the first segment of the main fork. Which others there are only the data
//! directory can tell (PostgreSQL source, `_mdfd_segpath()` and `GetRelationPath()`).

use std::collections::HashMap;

use crate::server::VoidFile;

/// A path in its directory and its number there.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((".", path))
}

/// Of the files that a listing has found, directory and name, those that belong to each of the
/// void ones: the main fork first, segments in their order.
pub fn of_each(void: &[VoidFile], found: &[(String, String)]) -> Vec<Vec<String>> {
    let mut belonging: HashMap<(&str, &str), Vec<(File<'_>, &str)>> = HashMap::new();
    for (directory, name) in found {
        if let Some(file) = File::parse(name) {
            belonging.entry((directory, file.number)).or_default().push((file, name));
        }
    }
    void.iter()
        .map(|file| {
            let (directory, number) = split(&file.path);
            let mut files = belonging.remove(&(directory, number)).unwrap_or_default();
            files.sort_unstable();
            files.into_iter().map(|(_, name)| format!("{directory}/{name}")).collect()
        })
        .collect()
}

/// A file's name, in the order in which files are told.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct File<'a> {
    number: &'a str,
    /// Empty for the main fork.
    fork: &'a str,
    segment: u32,
}

impl<'a> File<'a> {
    /// Reads `NUMBER[_FORK][.SEGMENT]`; other names are not a relation's.
    fn parse(name: &'a str) -> Option<Self> {
        let (rest, segment) = match name.split_once('.') {
            Some((rest, segment)) => (rest, digits(segment)?.parse().ok()?),
            None => (name, 0),
        };
        let (number, fork) = match rest.split_once('_') {
            Some((number, fork @ ("fsm" | "vm" | "init"))) => (number, fork),
            Some(_) => return None,
            None => (rest, ""),
        };
        Some(Self { number: digits(number)?, fork, segment })
    }
}

fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::ledger::sample::void;

    #[test]
    fn names_of_a_relations_files_are_told_from_others() {
        let file = |number, fork, segment| Some(File { number, fork, segment });
        assert_eq!(File::parse("16384"), file("16384", "", 0));
        assert_eq!(File::parse("16384.12"), file("16384", "", 12));
        assert_eq!(File::parse("16384_fsm"), file("16384", "fsm", 0));
        assert_eq!(File::parse("16384_vm.1"), file("16384", "vm", 1));
        assert_eq!(File::parse("16384_init"), file("16384", "init", 0));
        for name in ["PG_VERSION", "pg_filenode.map", "t3_16384", "16384.x", "16384_", "16384.", ""]
        {
            assert_eq!(File::parse(name), None, "{name}");
        }
    }

    #[test]
    fn each_void_file_gets_what_is_there_of_it_in_order() {
        let void = [void("base/5/16384"), void("base/5/1638"), void("pg_tblspc/9/PG_15/5/16384")];
        let found = [
            ("base/5", "16384_vm"),
            ("base/5", "16384.10"),
            ("base/5", "16384.2"),
            ("base/5", "16384"),
            ("base/5", "16384_fsm"),
            ("base/5", "16384~"),
            ("pg_tblspc/9/PG_15/5", "16384"),
        ]
        .map(|(directory, name)| (directory.to_owned(), name.to_owned()));
        assert_eq!(
            of_each(&void, &found),
            [
                vec![
                    "base/5/16384",
                    "base/5/16384.2",
                    "base/5/16384.10",
                    "base/5/16384_fsm",
                    "base/5/16384_vm"
                ],
                vec![],
                vec!["pg_tblspc/9/PG_15/5/16384"],
            ]
        );
    }
}
