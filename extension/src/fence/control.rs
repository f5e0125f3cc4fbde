//! The server's control file, and what happens at the server's start and end.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::mem::offset_of;
use std::path::Path;

use super::pg_sys;

/// What the control file says of the server's last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// `DBState`.
    state: u32,
    /// Where its record is in the WAL.
    pub checkpoint: u64,
}

impl Control {
    /// Reads it; the directory is the data directory, in which every process of a server is.
    pub fn read() -> io::Result<Self> {
        let bytes = std::fs::read(Path::new("global/pg_control"))?;
        let state = field(&bytes, offset_of!(pg_sys::ControlFileData, state))?;
        let checkpoint = field(&bytes, offset_of!(pg_sys::ControlFileData, checkPoint))?;
        Ok(Self { state: u32::from_ne_bytes(state), checkpoint: u64::from_ne_bytes(checkpoint) })
    }

    /// Whether a server has ended well and none has come to its work since.
    pub const fn is_shut_down(self) -> bool {
        self.state == pg_sys::DBState::DB_SHUTDOWNED
            || self.state == pg_sys::DBState::DB_SHUTDOWNED_IN_RECOVERY
    }

    /// Its state, as a number that this server's version gives it.
    pub const fn state(self) -> u32 {
        self.state
    }
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> io::Result<[u8; N]> {
    bytes
        .get(offset..offset + N)
        .and_then(|field| field.try_into().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "control file too short"))
}

/// What is called when the server itself starts and ends, and not one of its sessions.
#[derive(Clone, Copy, Debug)]
pub struct Attendant {
    /// The server has started, and whatever it had to replay is replayed: a standby comes to that
    /// when it is promoted. The file `postmaster.opts` is this one's. It runs in a process of its
    /// own.
    pub started: fn(),
    /// The server ends; its last checkpoint, if there is one, is made.
    pub ended: fn(),
}

static mut ATTENDANT: Option<Attendant> = None;

/// Calls `attendant` from now on. To be called once, by `_PG_init`, while the server preloads.
pub fn attend(attendant: Attendant) {
    // SAFETY: the library is loaded once, by the one thread of the server. The server copies the
    // description of the process, whose texts fit. Callbacks at the exit of a process are not
    // inherited by those that it starts (on_exit_reset()).
    unsafe {
        ATTENDANT = Some(attendant);
        pg_sys::on_proc_exit(Some(on_exit), pg_sys::Datum::null());
        let mut worker = pg_sys::BackgroundWorker {
            bgw_flags: pg_sys::BGWORKER_SHMEM_ACCESS as c_int,
            bgw_start_time: pg_sys::BgWorkerStartTime::BgWorkerStart_RecoveryFinished,
            bgw_restart_time: pg_sys::BGW_NEVER_RESTART,
            ..Default::default()
        };
        put(&mut worker.bgw_name, c"stillpoint witness");
        put(&mut worker.bgw_type, c"stillpoint witness");
        put(&mut worker.bgw_library_name, c"stillpoint");
        put(&mut worker.bgw_function_name, c"stillpoint_started");
        pg_sys::RegisterBackgroundWorker(&raw mut worker);
    }
}

/// Writes a text, which must fit, into an array that is filled with zero bytes.
fn put(array: &mut [c_char], text: &CStr) {
    for (place, &byte) in array.iter_mut().zip(text.to_bytes()) {
        *place = byte as c_char;
    }
}

/// The process that the server starts when it has started; it ends at once.
#[doc(hidden)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn stillpoint_started(_: pg_sys::Datum) {
    // SAFETY: the server calls, and this frame holds nothing.
    unsafe {
        if let Some(attendant) = ATTENDANT {
            pg_sys::panic::pgrx_extern_c_guard(|| (attendant.started)());
        }
    }
}

unsafe extern "C-unwind" fn on_exit(_: c_int, _: pg_sys::Datum) {
    // SAFETY: as above.
    unsafe {
        if let Some(attendant) = ATTENDANT {
            pg_sys::panic::pgrx_extern_c_guard(|| (attendant.ended)());
        }
    }
}

/// The number that tells this cluster from others (`pg_control_system()`).
pub fn system_identifier() -> u64 {
    // SAFETY: reads what the server has read at its start.
    unsafe { pg_sys::GetSystemIdentifier() }
}

/// Bytes that nobody can guess, as hexadecimal digits: a name that no other has.
pub fn unique_name() -> String {
    let mut bytes = [0_u8; 16];
    // SAFETY: the server fills as many bytes as there are.
    if !unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) } {
        super::error::raise_internal("no random numbers are to be had".to_owned());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
