//! The server's lists.

use stillpoint_check::Oid;

use super::pg_sys;

/// The elements of a list of pointers.
///
/// # Safety
///
/// The list is null, which is an empty one, or a list of pointers to `T`, and stays as it is.
pub(super) unsafe fn pointers<T>(list: *mut pg_sys::List) -> impl Iterator<Item = *mut T> {
    // SAFETY: the caller's promise.
    unsafe { cells(list) }.map(|cell| unsafe { cell.ptr_value }.cast())
}

/// The elements of a list of OIDs.
///
/// # Safety
///
/// As above, of OIDs.
pub(super) unsafe fn oids(list: *mut pg_sys::List) -> impl Iterator<Item = Oid> {
    // SAFETY: the caller's promise.
    unsafe { cells(list) }.map(|cell| unsafe { cell.oid_value }.to_u32())
}

unsafe fn cells(list: *mut pg_sys::List) -> impl Iterator<Item = pg_sys::ListCell> {
    // SAFETY: as above; null has no elements.
    let length = if list.is_null() { 0 } else { unsafe { (*list).length } };
    // SAFETY: the list has that many.
    (0..usize::try_from(length).unwrap_or(0)).map(move |n| unsafe { *(*list).elements.add(n) })
}
