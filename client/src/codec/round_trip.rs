//! What one half of the codec writes, the other reads; and what is damaged, it finds.

use std::io::{self, Read, Write};

use super::{Codec, Compression, Content, DataReader, Encoder, TERMINATOR, Written, read_content};
use crate::archive::sample::compress;
use crate::manifest::Checksum;

fn compressions() -> Vec<Compression> {
    ["none", "gzip", "gzip:1", "gzip:9", "lz4", "zstd", "zstd:1", "zstd:-3"]
        .map(|text| text.parse().expect(text))
        .to_vec()
}

/// Rows that neither compress to nothing nor not at all.
fn rows(count: usize) -> Vec<u8> {
    let mut seed = 1_u64;
    let mut text = Vec::new();
    for row in 0..count {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        writeln!(text, "{row}\tname {}\t{}\t\\N", seed >> 50, seed >> 20).expect("memory");
    }
    text
}

fn write(encoder: &mut Encoder, pieces: &[&[u8]]) -> (Written, Vec<u8>) {
    let mut writer = encoder.start(Vec::new()).expect("a file begun");
    for piece in pieces {
        writer.write_all(piece).expect("rows");
    }
    writer.finish().expect("a file")
}

fn read(stored: &[u8], codec: Codec) -> io::Result<Content> {
    read_content(&mut DataReader::new(stored, codec)?)
}

fn text_of(stored: &[u8], codec: Codec) -> Vec<u8> {
    let mut text = Vec::new();
    let mut reader = DataReader::new(stored, codec).expect("a reader");
    reader.read_to_end(&mut text).expect("an intact stream");
    text
}

#[test]
fn rows_read_back_as_they_were_written() {
    for compression in compressions() {
        let mut encoder = Encoder::new(compression).expect("an encoder");
        // One encoder for all files, of all sizes: none may show in another.
        for count in [0, 1, 3, 2_000, 15_000, 5, 0] {
            let rows = rows(count);
            let lines: Vec<&[u8]> = rows.split_inclusive(|byte| *byte == b'\n').collect();
            let (written, stored) = write(&mut encoder, &lines);
            assert_eq!(written.rows, count as u64, "{compression}");
            assert_eq!(written.bytes, rows.len() as u64, "{compression}");
            assert_eq!(written.stored_bytes, stored.len() as u64, "{compression}");
            assert_eq!(written.checksum, Checksum::of(&stored), "{compression}");
            let expected = [&rows[..], TERMINATOR].concat();
            assert!(text_of(&stored, compression.codec()) == expected, "{compression} {count}");
            let content = read(&stored, compression.codec()).expect("an intact stream");
            let bytes = rows.len() as u64;
            assert_eq!(content, Content { rows: count as u64, bytes, terminated: true });
        }
    }
}

#[test]
fn the_size_of_the_pieces_makes_no_difference() {
    for compression in compressions() {
        let mut encoder = Encoder::new(compression).expect("an encoder");
        let rows = rows(6_000);
        let whole = write(&mut encoder, &[&rows]);
        for size in [1, 7, 65_535, 65_536, 65_537, 150_000] {
            let pieces: Vec<&[u8]> = rows.chunks(size).collect();
            let (written, stored) = write(&mut encoder, &pieces);
            assert_eq!((written.rows, written.bytes), (whole.0.rows, whole.0.bytes));
            assert!(text_of(&stored, compression.codec()).starts_with(&rows), "{compression}");
        }
    }
}

#[test]
fn an_unfinished_file_leaves_nothing_in_the_next_one() {
    for compression in compressions() {
        let mut encoder = Encoder::new(compression).expect("an encoder");
        let (_, expected) = write(&mut encoder, &[&rows(10)]);
        for size in [1, 15_000] {
            let mut abandoned = encoder.start(Vec::new()).expect("a file begun");
            abandoned.write_all(&rows(size)).expect("rows");
            drop(abandoned);
            let (_, stored) = write(&mut encoder, &[&rows(10)]);
            assert!(stored == expected, "{compression} after {size} rows");
        }
    }
}

#[test]
fn several_members_or_frames_in_a_row_are_one_file() {
    for compression in compressions() {
        let mut encoder = Encoder::new(compression).expect("an encoder");
        let (first, second) = (rows(20), rows(5_000));
        let codec = compression.codec();
        // Frames as a splitting writer makes them: only the last one has the terminator.
        let mut stored = compress(&first, codec);
        stored.extend(write(&mut encoder, &[&second]).1);
        let content = read(&stored, codec).expect("an intact stream");
        let bytes = (first.len() + second.len()) as u64;
        assert_eq!(content, Content { rows: 5_020, bytes, terminated: true }, "{compression}");
    }
}

#[test]
fn a_stream_that_is_cut_short_is_noticed_wherever_it_is_cut() {
    for compression in compressions() {
        let mut encoder = Encoder::new(compression).expect("an encoder");
        let (_, stored) = write(&mut encoder, &[&rows(40)]);
        for length in 0..stored.len() {
            let found = read(&stored[..length], compression.codec());
            let whole = found.is_ok_and(|content| content.terminated);
            assert!(!whole, "{compression} cut from {} to {length}", stored.len());
        }
    }
}

#[test]
fn bytes_after_the_end_are_noticed() {
    for compression in compressions() {
        let mut encoder = Encoder::new(compression).expect("an encoder");
        let (_, mut stored) = write(&mut encoder, &[&rows(40)]);
        stored.extend_from_slice(b"1\tmore\n");
        let found = read(&stored, compression.codec());
        assert!(!found.is_ok_and(|content| content.terminated), "{compression}");
    }
}

#[test]
fn a_flipped_bit_is_noticed_by_a_compressed_stream_itself_or_means_nothing() {
    for compression in compressions() {
        if compression.codec() == Codec::None {
            continue;
        }
        let mut encoder = Encoder::new(compression).expect("an encoder");
        let (written, stored) = write(&mut encoder, &[&rows(40)]);
        // Some bits of headers say nothing about the content, nor do those that fill a byte.
        let expected = text_of(&stored, compression.codec());
        for position in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[position] ^= 0x10;
            let mut text = Vec::new();
            let mut reader = DataReader::new(&damaged[..], compression.codec()).expect("a reader");
            let noticed = reader.read_to_end(&mut text).is_err();
            assert!(noticed || text == expected, "{compression} at {position}");
            // And its checksum can still be told.
            let (bytes, checksum) = reader.finish().expect("memory");
            assert_eq!(bytes, written.stored_bytes);
            assert_eq!(checksum, Checksum::of(&damaged));
        }
    }
}

#[test]
fn only_a_terminator_at_the_end_is_one() {
    let content = |text: &str| read(text.as_bytes(), Codec::None).expect("memory");
    let whole = Content { rows: 2, bytes: 4, terminated: true };
    assert_eq!(content("a\nb\n\\.\n\n\n"), whole);
    assert_eq!(content("\\.\n\n\n"), Content { rows: 0, bytes: 0, terminated: true });
    // A column that ends so is data: COPY doubles the backslash, and a row is more than this.
    assert!(content("x\\\\.\n\\.\n\n\n").terminated);
    for broken in [
        "",
        "a\nb\n",
        "a\nb\n\\.\n",
        "a\nb\n\\.\n\n",
        "a\nb\n\\.\n\n\nc\n",
        "a\n\\.\n\n\nb\n\\.\n\n\n",
        "a\n\\.\nb\n\\.\n\n\n",
        "a\n\\.\n\\.\n\n\n",
        "\\.\n\\.\n\n\n",
        "\\.\n\n\n\\.\n\n\n",
        "a\nb\\.\n\n\n",
    ] {
        assert!(!content(broken).terminated, "{broken:?}");
    }
}

#[test]
fn a_terminator_is_found_across_the_pieces_of_a_read() {
    struct Trickle<'a>(&'a [u8], usize);
    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(buffer.len());
            self.0.read(&mut buffer[..length])
        }
    }
    for size in 1..12 {
        for (text, terminated) in [
            ("a\nb\n\\.\n\n\n", true),
            ("\\.\n\n\n", true),
            ("a\n\\.\n\n\nb\n\\.\n\n\n", false),
            ("\\.\n\\.\n\n\n", false),
        ] {
            let trickle = Trickle(text.as_bytes(), size);
            let mut reader = DataReader::new(trickle, Codec::None).expect("a reader");
            let found = read_content(&mut reader).expect("memory");
            assert_eq!(found.terminated, terminated, "{text:?} by {size}");
        }
    }
}
