//! Tables and lists for people.

use std::fmt::Write as _;

/// Lines of columns, each as wide as its widest cell, under a heading. Nothing at all if there
/// are no lines: who tests for output finds none.
///
/// A character counts as one column, wide ones too: these stand in few names, and the alignment
/// is all that suffers.
pub fn columns<const N: usize>(heading: [&str; N], lines: &[[String; N]]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<[String; N]> = std::iter::once(heading.map(str::to_owned))
        .chain(lines.iter().map(|line| line.each_ref().map(|cell| printable(cell))))
        .collect();
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (width, cell) in widths.iter().zip(line) {
            // Writing to a String cannot fail.
            let _ = write!(row, "{cell:width$}  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// `key: value` lines, the values below each other.
pub fn pairs<const N: usize>(pairs: [(&str, String); N]) -> String {
    let width = pairs.iter().map(|(key, _)| key.len() + 1).max().unwrap_or_default();
    let mut text = String::new();
    for (key, value) in pairs {
        let key = format!("{key}:");
        let _ = writeln!(text, "{key:width$} {}", printable(&value));
    }
    text
}

/// A time of the server's, which is RFC 3339, without the fraction of its second.
pub fn time(at: &str) -> String {
    match at.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => at.to_owned(),
    }
}

/// A name may hold a newline, or what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let control = character.is_control();
            let escaped = control.then(|| character.escape_default());
            escaped.into_iter().flatten().chain((!control).then_some(character))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [
            ["base/5/16384".to_owned(), "t".to_owned()],
            ["base/5/9".to_owned(), "Über\n\u{1b}[0m".to_owned()],
            ["x".to_owned(), String::new()],
        ];
        assert_eq!(
            columns(["PATH", "RELATION"], &lines),
            "PATH          RELATION\n\
             base/5/16384  t\n\
             base/5/9      Über\\n\\u{1b}[0m\n\
             x\n"
        );
        assert_eq!(columns(["PATH", "RELATION"], &[]), "");
    }

    #[test]
    fn values_of_pairs_stand_below_each_other() {
        let text = pairs([("rows", "1".to_owned()), ("complete since", "never".to_owned())]);
        assert_eq!(text, "rows:           1\ncomplete since: never\n");
    }

    #[test]
    fn a_time_for_people_has_whole_seconds() {
        assert_eq!(time("2026-11-30T16:45:12.123456Z"), "2026-11-30T16:45:12Z");
        assert_eq!(time("2026-11-30T16:45:12Z"), "2026-11-30T16:45:12Z");
    }
}
