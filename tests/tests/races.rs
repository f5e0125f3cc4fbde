//! Races between a dump and DDL: every case with the extension in the database and without.
//!
//! The cases themselves are data of the library (`stillpoint_tests::race::cases`), which the
//! soak test runs too; here each gets its two tests.

use stillpoint_tests::race::{Check, cases, run};

#[track_caller]
fn run_named(family: &str, name: &str, check: Check) {
    let case = cases::family(family).iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("no case {name:?} in {family:?}"));
    run(&check.start_cluster(), case, check);
}

macro_rules! races {
    ($family:ident: $($case:ident,)*) => {
        mod $family {
            mod with_the_extension {
                $(#[test]
                fn $case() {
                    let check = crate::Check::Extension;
                    crate::run_named(stringify!($family), stringify!($case), check);
                })*
            }

            mod by_plain_sql {
                $(#[test]
                fn $case() {
                    let check = crate::Check::Plain;
                    crate::run_named(stringify!($family), stringify!($case), check);
                })*
            }

            #[test]
            fn every_case_is_tested() {
                let cases = crate::cases::family(stringify!($family)).iter();
                let tested: &[&str] = &[$(stringify!($case)),*];
                assert!(cases.map(|case| case.name).eq(tested.iter().copied()));
            }
        }
    };
}

races! { rewrites:
    a_table_truncated_and_reloaded_is_dumped_by_a_second_attempt,
    rows_frozen_into_a_truncated_table_are_not_taken_for_the_snapshots_rows,
    vacuum_full_keeps_the_rows,
    vacuum_full_after_updates_and_deletes_keeps_the_rows,
    cluster_and_then_vacuum_full_keep_the_rows,
    a_truncate_after_vacuum_full_is_seen,
    a_truncate_and_a_cluster_in_one_transaction_are_seen,
    a_column_type_that_changes_with_a_rewrite_is_seen,
    a_column_added_with_a_volatile_default_is_seen,
    a_column_added_without_a_rewrite_is_seen,
    a_dropped_column_is_seen,
    a_renamed_column_is_seen,
    tables_that_become_unlogged_and_logged_are_seen,
}

races! { names:
    a_table_dropped_and_made_anew_is_dumped_by_a_second_attempt,
    a_dropped_table_is_not_in_the_second_attempts_dump,
    two_tables_that_swap_names_are_never_taken_for_each_other,
    a_table_moved_away_with_another_in_its_place_is_seen,
    a_view_in_the_place_of_a_sequence_is_not_read,
}

races! { partitions:
    an_attached_partition_has_its_rows_once,
    a_detached_partition_has_its_rows,
    a_concurrently_detached_partition_has_its_rows,
    a_partition_whose_concurrent_detaching_is_pending_has_its_rows,
    a_detached_and_dropped_partition_is_not_in_the_second_attempts_dump,
    a_truncated_leaf_is_named_with_all_its_ancestors,
    a_partitioned_table_made_anew_is_dumped_with_its_new_partitions,
    a_truncated_child_of_two_parents_is_named_with_both,
}

races! { harmless:
    nothing_but_new_rows_costs_no_second_attempt,
    updates_deletes_and_a_vacuum_that_truncates_the_tail_cost_no_second_attempt,
    reindex_create_index_and_analyze_cost_no_second_attempt,
    concurrent_index_builds_wait_for_the_dump_and_cost_no_second_attempt,
    concurrent_index_builds_that_end_in_between_cost_no_second_attempt,
    a_table_made_after_the_snapshot_is_not_in_the_dump,
    a_refreshed_materialized_view_costs_no_second_attempt,
}

races! { catalog:
    a_table_truncated_before_the_ddl_is_read_is_dumped_by_a_second_attempt,
    tables_truncated_before_the_ddl_is_read_are_found_by_the_workers_that_have_them,
    a_table_renamed_before_the_ddl_is_read_is_dumped_by_a_second_attempt,
    a_view_a_function_and_a_type_dropped_before_the_ddl_is_read_cost_a_second_attempt,
    a_renamed_type_is_not_named_by_a_table_that_the_archive_has_with_the_old_one,
    a_renamed_schema_is_not_named_by_the_columns_of_its_types,
    a_renamed_function_is_not_named_by_a_tables_default,
    a_renamed_enum_label_is_not_named_by_a_tables_default,
    a_renamed_attribute_is_not_named_by_a_tables_constraint,
    a_table_partitioned_anew_around_its_partitions_costs_a_second_attempt,
    what_is_made_or_dropped_without_being_in_a_table_costs_no_second_attempt,
}

races! { starvation:
    a_table_truncated_in_every_attempt_is_left_out_and_the_rest_is_whole,
    with_one_attempt_a_truncated_table_is_left_out_at_once,
}
