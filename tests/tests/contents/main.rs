//! An archive holds what `pg_dump`'s would: the database, restored with stock `pg_restore`,
//! equals the source and what `pg_dump` and `pg_restore` make of it.

mod compare;
mod edges;
mod encodings;
mod extensions;
mod kinds;
mod manifest;
mod names;
mod privileges;
mod values;
mod views;
