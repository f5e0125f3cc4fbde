//! Reading data files back, to prove that every byte of them can be restored.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use memchr::memmem;
use xxhash_rust::xxh3::Xxh3;

use super::{BLOCK, Codec, TERMINATOR};
use crate::manifest::Checksum;

/// The stored bytes of a file on their way to the decompressor: counted and checksummed.
struct Stored<R> {
    file: R,
    bytes: u64,
    hash: Box<Xxh3>,
}

impl<R: Read> Read for Stored<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.hash.update(&buffer[..length]);
        self.bytes += length as u64;
        Ok(length)
    }
}

/// A decompressing reader that remembers what it read.
pub struct DataReader<R: Read> {
    machine: Machine<R>,
}

enum Machine<R: Read> {
    None(BufReader<Stored<R>>),
    Gzip(Box<MultiGzDecoder<BufReader<Stored<R>>>>),
    Lz4(Box<FrameDecoder<Watched<R>>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Stored<R>>>),
}

/// The LZ4 decoder takes an end of the file in the middle of a frame for the end of the data.
/// A decoder that is at the end of a frame has not yet asked for more, one that was cut short
/// has: this remembers which.
struct Watched<R> {
    stored: BufReader<Stored<R>>,
    starved: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stored.read(buffer)?;
        self.starved |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

impl<R: Read> DataReader<R> {
    /// Begins to read `file`, which need not be buffered.
    pub fn new(file: R, codec: Codec) -> io::Result<Self> {
        let stored = Stored { file, bytes: 0, hash: Box::new(Xxh3::new()) };
        let stored = BufReader::with_capacity(BLOCK, stored);
        let machine = match codec {
            Codec::None => Machine::None(stored),
            Codec::Gzip => Machine::Gzip(Box::new(MultiGzDecoder::new(stored))),
            Codec::Lz4 => {
                Machine::Lz4(Box::new(FrameDecoder::new(Watched { stored, starved: false })))
            }
            Codec::Zstd => Machine::Zstd(zstd::stream::read::Decoder::with_buffer(stored)?),
        };
        Ok(DataReader { machine })
    }

    /// Reads what is left of the stored bytes, without decompressing it, and returns their
    /// number and checksum. After a broken stream, too: the checksum of a file says something
    /// even if its content does not.
    pub fn finish(self) -> io::Result<(u64, Checksum)> {
        let mut stored = match self.machine {
            Machine::None(stored) => stored,
            Machine::Gzip(decoder) => decoder.into_inner(),
            Machine::Lz4(decoder) => decoder.into_inner().stored,
            Machine::Zstd(decoder) => decoder.finish(),
        }
        .into_inner();
        io::copy(&mut stored, &mut io::sink())?;
        Ok((stored.bytes, Checksum::from(stored.hash.digest128())))
    }
}

impl<R: Read> Read for DataReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.machine {
            Machine::None(stored) => stored.read(buffer),
            Machine::Gzip(decoder) => decoder.read(buffer),
            Machine::Lz4(decoder) => read_lz4(decoder, buffer),
            Machine::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

fn read_lz4<R: Read>(
    decoder: &mut FrameDecoder<Watched<R>>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        let length = decoder.read(buffer)?;
        if length > 0 || buffer.is_empty() {
            return Ok(length);
        }
        let watched = decoder.get_mut();
        if watched.starved {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame"));
        }
        // A frame has ended. Looking ahead here, and not through the watched reader, leaves
        // the decoder unstarved at the proper end.
        if watched.stored.fill_buf()?.is_empty() {
            return Ok(0);
        }
    }
}

/// What a data file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Rows of COPY text.
    pub rows: u64,
    /// Bytes of COPY text, without the terminator.
    pub bytes: u64,
    /// The text ends with the terminator, and this stands nowhere before: the server reads no
    /// row that follows it.
    pub terminated: bool,
}

/// Reads the rest of a data file and says what it holds. Fails if the stream is damaged.
pub fn read_content<R: Read>(reader: &mut DataReader<R>) -> io::Result<Content> {
    // COPY writes a backslash of the data twice, so that no row begins like this.
    const END_LINE: &[u8] = b"\n\\.";
    let end_line = memmem::Finder::new(END_LINE);
    // What lies over the border of two pieces must be found, too, so a few bytes are carried
    // from one to the next. The first piece has a line's beginning before it.
    const CARRIED: usize = TERMINATOR.len() + 1;
    let mut buffer = vec![0; CARRIED + BLOCK];
    buffer[CARRIED - 1] = b'\n';
    let (mut total, mut newlines, mut end_lines) = (0_u64, 0_u64, 0_u64);
    loop {
        let length = reader.read(&mut buffer[CARRIED..])?;
        if length == 0 {
            break;
        }
        total += length as u64;
        newlines += memchr::memchr_iter(b'\n', &buffer[CARRIED..CARRIED + length]).count() as u64;
        // Begin where a match cannot lie wholly in what was searched before.
        let from = CARRIED + 1 - END_LINE.len();
        end_lines += end_line.find_iter(&buffer[from..CARRIED + length]).count() as u64;
        buffer.copy_within(length..length + CARRIED, 0);
    }
    let tail = &buffer[..CARRIED];
    let at_end = total >= TERMINATOR.len() as u64 && tail.ends_with(TERMINATOR) && tail[0] == b'\n';
    if at_end {
        let newlines_of_terminator = memchr::memchr_iter(b'\n', TERMINATOR).count() as u64;
        Ok(Content {
            rows: newlines - newlines_of_terminator,
            bytes: total - TERMINATOR.len() as u64,
            terminated: end_lines == 1,
        })
    } else {
        Ok(Content { rows: newlines, bytes: total, terminated: false })
    }
}
