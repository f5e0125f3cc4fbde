//! Which files there must be: manifest, table of contents and directory against each other.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use super::finding::{Damage, Finding};
use super::{Archive, Expected, Kind};
use crate::archive::{Contents, TOC_FILE_NAME, Toc};
use crate::codec::Codec;
use crate::manifest::FileRecord;

impl Archive<'_> {
    /// The files whose content is to be checked; what is missing or too many is found here.
    pub fn expected(&self, findings: &mut Vec<Finding>) -> Vec<Expected<'_>> {
        let mut records: HashMap<&str, &FileRecord> = HashMap::new();
        for record in self.records() {
            if records.insert(&record.name, record).is_some() {
                findings.push(Finding::new(&record.name, Damage::NamedTwice));
            }
        }
        let mut needed = self.needed(&records, findings);
        let is_readable = self.toc.is_some();
        for (name, record) in &records {
            if needed.contains_key(*name) {
                continue;
            }
            if is_readable {
                findings.push(Finding::new(*name, Damage::NotInToc));
            }
            let kind = if record.rows.is_some() { Kind::Rows } else { Kind::Plain };
            needed.insert((*name).to_owned(), kind);
        }
        for (name, is_file) in &self.present {
            let damage = match (needed.contains_key(name), records.contains_key(name.as_str())) {
                _ if !is_file => Damage::NotAFile,
                // Without a manifest, what nothing needs may still belong to the archive.
                (false, _) if is_readable || self.manifest.is_some() => Damage::Extra,
                (true, false) if self.manifest.is_some() => Damage::NotInManifest,
                _ => continue,
            };
            findings.push(Finding::new(name, damage));
        }
        for name in needed.keys() {
            if !self.present.contains_key(name) {
                findings.push(Finding::new(name, Damage::Missing));
            }
        }
        self.present
            .iter()
            .filter(|(_, is_file)| **is_file)
            .filter_map(|(name, _)| {
                let (record, kind) = (records.get(name.as_str()).copied(), *needed.get(name)?);
                Some(Expected { name, record, kind })
            })
            .collect()
    }

    /// The files that a restore needs, and what each must be.
    fn needed(
        &self,
        records: &HashMap<&str, &FileRecord>,
        findings: &mut Vec<Finding>,
    ) -> BTreeMap<String, Kind> {
        let mut needed = BTreeMap::from([(TOC_FILE_NAME.to_owned(), Kind::Plain)]);
        // As pg_restore does, a name is tried without an extension and with each, but what the
        // manifest knows comes first: the other one is the one that is too many.
        let stored = |name: &str| {
            let names = [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd]
                .map(|codec| format!("{name}{}", codec.extension()));
            let known = names.iter().find(|name| records.contains_key(name.as_str()));
            let there = || names.iter().find(|name| self.present.contains_key(*name));
            let expected = || {
                let codec = self.summary().map_or(Codec::None, |summary| summary.codec);
                format!("{name}{}", codec.extension())
            };
            known.or_else(there).cloned().unwrap_or_else(expected)
        };
        for contents in self.toc.iter().flat_map(Toc::contents) {
            match contents {
                Contents::Rows { file } => {
                    needed.insert(stored(&file), Kind::Rows);
                }
                Contents::LargeObjects { file } => {
                    for object in self.large_objects(&file, findings) {
                        needed.insert(stored(&object), Kind::LargeObject);
                    }
                    needed.insert(file, Kind::Plain);
                }
            }
        }
        needed
    }

    /// The files that a list of large objects names, a line each: an OID and a name.
    fn large_objects(&self, list: &str, findings: &mut Vec<Finding>) -> Vec<String> {
        // One that cannot be read is found when it is checked, or is missing.
        let Ok(text) = fs::read(self.directory.join(list)) else { return Vec::new() };
        let mut files = Vec::new();
        for (number, line) in (1..).zip(String::from_utf8_lossy(&text).lines()) {
            match line.split_once(' ') {
                Some((oid, file)) if oid.parse::<u32>().is_ok() && !file.contains('/') => {
                    files.push(file.to_owned());
                }
                _ => {
                    let message = format!("line {number} names no large object");
                    findings.push(Finding::new(list, Damage::Malformed { message }));
                }
            }
        }
        files
    }
}
