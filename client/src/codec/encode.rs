//! Writing data files: rows in, a compressed, counted and checksummed file out.

use std::io::{self, Write};
use std::mem;

use flate2::{Compress, FlushCompress, Status};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use xxhash_rust::xxh3::Xxh3;
use zstd::stream::raw::{CParameter, Encoder as ZstdEncoder, InBuffer, Operation, OutBuffer};

use super::{BLOCK, Codec, Compression, TERMINATOR};
use crate::manifest::Checksum;

/// zlib's window, the largest and the default.
const GZIP_WINDOW_BITS: u8 = 15;

/// The compressor of one worker, used for one file after another.
pub struct Encoder {
    compression: Compression,
    machine: Machine,
    input: Vec<u8>,
    output: Vec<u8>,
    /// A file was begun and not finished: what the machine still holds belongs to that file.
    interrupted: bool,
}

/// The state of each compressor. Every one of them writes into a vector, never into the file,
/// so that the stored bytes pass one place, where they are counted and checksummed.
enum Machine {
    None,
    Gzip(Compress),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static>),
}

impl Machine {
    fn new(compression: Compression) -> io::Result<Self> {
        Ok(match compression.codec() {
            Codec::None => Machine::None,
            Codec::Gzip => {
                let level = match compression.level() {
                    Some(level) => flate2::Compression::new(level.unsigned_abs()),
                    None => flate2::Compression::default(),
                };
                Machine::Gzip(Compress::new_gzip(level, GZIP_WINDOW_BITS))
            }
            Codec::Lz4 => {
                let frame = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Linked)
                    .content_checksum(true);
                Machine::Lz4(Box::new(FrameEncoder::with_frame_info(frame, Vec::new())))
            }
            Codec::Zstd => {
                let level = compression.level().unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                let mut encoder = ZstdEncoder::new(level)?;
                encoder.set_parameter(CParameter::ChecksumFlag(true))?;
                Machine::Zstd(encoder)
            }
        })
    }
}

impl Encoder {
    /// Makes the compressor. Fails only if memory or the level are refused.
    pub fn new(compression: Compression) -> io::Result<Self> {
        Ok(Encoder {
            compression,
            machine: Machine::new(compression)?,
            input: Vec::with_capacity(BLOCK),
            output: Vec::with_capacity(BLOCK),
            interrupted: false,
        })
    }

    /// Begins a file that goes to `file`, which need not be buffered. Whatever an earlier file
    /// left behind because its writer was dropped unfinished is thrown away.
    pub fn start<W: Write>(&mut self, file: W) -> io::Result<DataWriter<'_, W>> {
        self.input.clear();
        self.output.clear();
        if self.interrupted {
            // Not by a reset: at level 1 zlib-rs keeps "a block is open" across it and then
            // writes a stream that nobody can read; and an LZ4 frame can only be ended.
            self.machine = Machine::new(self.compression)?;
        } else if let Machine::Gzip(compress) = &mut self.machine {
            compress.reset();
        }
        self.interrupted = true;
        Ok(DataWriter { encoder: self, file: Stored::new(file), rows: 0, bytes: 0 })
    }

    /// Compresses `data` into `file`; with `end`, ends the compressed stream after it.
    fn compress<W: Write>(
        &mut self,
        data: &[u8],
        end: bool,
        file: &mut Stored<W>,
    ) -> io::Result<()> {
        match &mut self.machine {
            Machine::None => file.write_all(data),
            Machine::Gzip(compress) => deflate(compress, data, end, &mut self.output, file),
            Machine::Lz4(encoder) => {
                encoder.write_all(data)?;
                if end {
                    encoder.try_finish()?;
                }
                drain(encoder.get_mut(), file)
            }
            Machine::Zstd(encoder) => run_zstd(encoder, data, end, &mut self.output, file),
        }
    }
}

/// Feeds zlib. Output is kept back until the vector is full, so that a small file is written by
/// one call.
fn deflate<W: Write>(
    compress: &mut Compress,
    mut data: &[u8],
    end: bool,
    output: &mut Vec<u8>,
    file: &mut Stored<W>,
) -> io::Result<()> {
    let flush = if end { FlushCompress::Finish } else { FlushCompress::None };
    loop {
        if output.len() == output.capacity() {
            drain(output, file)?;
        }
        let before = compress.total_in();
        let status = compress.compress_vec(data, output, flush)?;
        // The difference cannot be larger than the slice that was given.
        data = &data[(compress.total_in() - before) as usize..];
        let done = if end { status == Status::StreamEnd } else { data.is_empty() };
        if done {
            break;
        }
    }
    if end { drain(output, file) } else { Ok(()) }
}

/// Feeds Zstandard, with the same keeping back.
fn run_zstd<W: Write>(
    encoder: &mut ZstdEncoder<'static>,
    data: &[u8],
    end: bool,
    output: &mut Vec<u8>,
    file: &mut Stored<W>,
) -> io::Result<()> {
    let mut input = InBuffer::around(data);
    while input.pos() < data.len() {
        if output.len() == output.capacity() {
            drain(output, file)?;
        }
        let position = output.len();
        encoder.run(&mut input, &mut OutBuffer::around_pos(output, position))?;
    }
    if !end {
        return Ok(());
    }
    loop {
        if output.len() == output.capacity() {
            drain(output, file)?;
        }
        let position = output.len();
        let left = encoder.finish(&mut OutBuffer::around_pos(output, position), true)?;
        if left == 0 {
            return drain(output, file);
        }
    }
}

fn drain<W: Write>(output: &mut Vec<u8>, file: &mut Stored<W>) -> io::Result<()> {
    file.write_all(output)?;
    output.clear();
    Ok(())
}

/// The file behind the compressor: counts and checksums what is stored in it.
struct Stored<W> {
    file: W,
    bytes: u64,
    hash: Box<Xxh3>,
}

impl<W: Write> Stored<W> {
    fn new(file: W) -> Self {
        Stored { file, bytes: 0, hash: Box::new(Xxh3::new()) }
    }

    fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(data)?;
        self.hash.update(data);
        self.bytes += data.len() as u64;
        Ok(())
    }
}

/// What went into a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Rows of COPY text: its newline bytes.
    pub rows: u64,
    /// Bytes of COPY text, without the terminator, before compression.
    pub bytes: u64,
    /// The size of the file.
    pub stored_bytes: u64,
    /// Over the stored bytes.
    pub checksum: Checksum,
}

/// One data file being written: takes the rows as COPY sends them, in pieces of any size.
///
/// Dropped without [`DataWriter::finish`], it leaves a file that does not look whole.
pub struct DataWriter<'encoder, W: Write> {
    encoder: &'encoder mut Encoder,
    file: Stored<W>,
    rows: u64,
    bytes: u64,
}

impl<W: Write> DataWriter<'_, W> {
    /// Ends the file: the terminator, the end of the compressed stream. Returns what was written
    /// and the file, which is not synced.
    pub fn finish(mut self) -> io::Result<(Written, W)> {
        self.pass_on()?;
        self.encoder.compress(TERMINATOR, true, &mut self.file)?;
        self.file.file.flush()?;
        self.encoder.interrupted = false;
        let Stored { file, bytes: stored_bytes, hash } = self.file;
        let checksum = Checksum::from(hash.digest128());
        Ok((Written { rows: self.rows, bytes: self.bytes, stored_bytes, checksum }, file))
    }

    /// Compresses what has gathered.
    fn pass_on(&mut self) -> io::Result<()> {
        // Taken out for the call, since it is a part of the encoder that compresses it.
        let mut input = mem::take(&mut self.encoder.input);
        let result = self.take(&input);
        input.clear();
        self.encoder.input = input;
        result
    }

    fn take(&mut self, rows: &[u8]) -> io::Result<()> {
        self.rows += memchr::memchr_iter(b'\n', rows).count() as u64;
        self.bytes += rows.len() as u64;
        self.encoder.compress(rows, false, &mut self.file)
    }
}

impl<W: Write> Write for DataWriter<'_, W> {
    /// COPY sends row by row: small pieces are gathered, since every one of compressing,
    /// counting and hashing costs far more by the call than by the byte.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.encoder.input.len() + data.len() > BLOCK {
            self.pass_on()?;
        }
        if data.len() >= BLOCK {
            self.take(data)?;
        } else {
            self.encoder.input.extend_from_slice(data);
        }
        Ok(data.len())
    }

    /// Does nothing: a compressed stream that is flushed in the middle is larger, and nobody
    /// reads a data file before it is finished.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
