//! Functions of the server that the bindings lack, because its headers are not among those that
//! they are made from. Calls pass the boundary by hand.

use stillpoint_check::Oid;

use super::pg_sys;

unsafe extern "C-unwind" {
    // Renamed in 16.
    #[cfg_attr(
        any(feature = "pg13", feature = "pg14", feature = "pg15"),
        link_name = "RelationMapOidToFilenode"
    )]
    #[cfg_attr(
        not(any(feature = "pg13", feature = "pg14", feature = "pg15")),
        link_name = "RelationMapOidToFilenumber"
    )]
    fn raw_mapped_filenode(relation: pg_sys::Oid, shared: bool) -> pg_sys::Oid;
}

/// The file of a mapped relation, changes of this transaction included; 0 if the mapper knows
/// none (`RelationMapOidToFilenode()` in relmapper.c).
pub(super) fn mapped_filenode(relation: Oid, shared: bool) -> Oid {
    // SAFETY: the function reads the backend's copy of the map.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| raw_mapped_filenode(relation.into(), shared)) }
        .to_u32()
}
