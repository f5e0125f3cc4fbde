//! The answer of a function that returns a set.

use std::ptr;

use super::call::{Answer, Call};
use super::{Encoding, ErrorReport, Failure, SqlState, Value, error, pg_sys};

/// The rows that a function returns, collected in a store that the server reads afterwards
/// (`SFRM_Materialize`).
#[derive(Debug)]
pub struct RowSet {
    store: *mut pg_sys::Tuplestorestate,
    description: pg_sys::TupleDesc,
    types: Vec<pg_sys::Oid>,
    encoding: Encoding,
}

impl RowSet {
    /// Begins the answer to `call`; it is empty until rows are put in.
    pub fn begin(call: &Call, encoding: Encoding) -> Result<Self, Failure> {
        let refuse = |message| {
            let state = SqlState::ERRCODE_FEATURE_NOT_SUPPORTED;
            Err(Box::new(ErrorReport::new(state, message, "RowSet::begin")))
        };
        let Some(info) = call.return_set_info() else {
            return refuse("set-valued function called in context that cannot accept a set");
        };
        // SAFETY: the server passes a valid structure for the time of the call.
        let modes = unsafe { (*info).allowedModes };
        if modes & pg_sys::SetFunctionReturnMode::SFRM_Materialize as i32 == 0 {
            return refuse("materialize mode required, but it is not allowed in this context");
        }
        let random = modes & pg_sys::SetFunctionReturnMode::SFRM_Materialize_Random as i32 != 0;

        let mut description = ptr::null_mut();
        // SAFETY: as above. Store and description have to outlive the call, so they are made
        // in the memory of the query, and that is current only for these calls: if one of them
        // fails, error handling restores the context that was current before.
        let (kind, store) = unsafe {
            let query_memory = (*(*info).econtext).ecxt_per_query_memory;
            let before = pg_sys::MemoryContextSwitchTo(query_memory);
            let kind =
                pg_sys::get_call_result_type(call.as_raw(), ptr::null_mut(), &raw mut description);
            let store = pg_sys::tuplestore_begin_heap(random, false, pg_sys::work_mem);
            pg_sys::MemoryContextSwitchTo(before);
            (kind, store)
        };
        if kind != pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE {
            error::raise_internal("the function is not declared to return rows".to_owned());
        }
        // SAFETY: as above; the server reads the store after the call and then ends it.
        unsafe {
            (*info).returnMode = pg_sys::SetFunctionReturnMode::SFRM_Materialize;
            (*info).setResult = store;
            (*info).setDesc = description;
        }
        Ok(Self { store, description, types: column_types(description), encoding })
    }

    /// Ends the answer.
    pub fn finish(self) -> Answer {
        Answer::rows_are_stored()
    }

    /// Adds a row. Its values must have the types that the function is declared with.
    pub fn put(&mut self, row: &[Value<'_>]) {
        if !row.iter().map(|value| value.type_oid()).eq(self.types.iter().copied()) {
            // Another version's SQL: writing by our types would write beyond its row.
            error::raise_internal("the function is declared with other columns".to_owned());
        }
        let values: Vec<_> = row.iter().map(|value| value.to_datum(self.encoding)).collect();
        let mut nulls: Vec<_> = values.iter().map(Option::is_none).collect();
        let mut values: Vec<_> =
            values.into_iter().map(|value| value.unwrap_or(pg_sys::Datum::null())).collect();
        // SAFETY: values and marks are as many, and of the types, that the description says;
        // the store copies them.
        unsafe {
            pg_sys::tuplestore_putvalues(
                self.store,
                self.description,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
    }
}

/// The types of a row's columns.
pub(super) fn column_types(description: pg_sys::TupleDesc) -> Vec<pg_sys::Oid> {
    // SAFETY: every description counts its columns, and the server reads the type of each, by
    // its number from 1.
    unsafe {
        let count = (*description).natts;
        (1..=count).map(|column| pg_sys::SPI_gettypeid(description, column)).collect()
    }
}
