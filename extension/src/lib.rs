//! x
pgrx::pg_module_magic!();
