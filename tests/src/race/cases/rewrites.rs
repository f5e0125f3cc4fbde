//! A table's storage is replaced: what older snapshots see in the new file is not what they
//! saw in the old one.

use super::super::{Case, Change, Step::Run, Verdict};

const T_REPLACED: &[Change] = &[Change::of("public.t", &["replaced"])];
const T_REPLACED_AND_REDEFINED: &[Change] = &[Change::of("public.t", &["replaced", "redefined"])];
const T_REDEFINED: &[Change] = &[Change::of("public.t", &["redefined"])];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a_table_truncated_and_reloaded_is_dumped_by_a_second_attempt",
        steps: &[
            Run("TRUNCATE public.t"),
            Run("INSERT INTO public.t SELECT i, 'reloaded' FROM generate_series(1, 20) AS i"),
        ],
        verdict: Verdict::Retry,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "rows_frozen_into_a_truncated_table_are_not_taken_for_the_snapshots_rows",
        steps: &[Run("BEGIN; TRUNCATE public.t; \
                      COPY public.t FROM PROGRAM 'for i in 1 2 3 4 5; do echo $i,frozen; done' \
                      WITH (FORMAT csv, FREEZE); COMMIT")],
        verdict: Verdict::Retry,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "vacuum_full_keeps_the_rows",
        steps: &[Run("VACUUM FULL public.t")],
        verdict: Verdict::RowsKept,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "vacuum_full_after_updates_and_deletes_keeps_the_rows",
        steps: &[
            Run("UPDATE public.t SET word = 'updated' WHERE id % 3 = 0"),
            Run("DELETE FROM public.t WHERE id % 5 = 0"),
            Run("VACUUM FULL public.t"),
        ],
        verdict: Verdict::RowsKept,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "cluster_and_then_vacuum_full_keep_the_rows",
        steps: &[Run("CLUSTER public.t USING t_pkey"), Run("VACUUM FULL public.t")],
        verdict: Verdict::RowsKept,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "a_truncate_after_vacuum_full_is_seen",
        steps: &[Run("VACUUM FULL public.t"), Run("TRUNCATE public.t")],
        verdict: Verdict::Retry,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "a_truncate_and_a_cluster_in_one_transaction_are_seen",
        steps: &[Run("BEGIN; TRUNCATE public.t; CLUSTER public.t USING t_pkey; COMMIT")],
        verdict: Verdict::Retry,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "a_column_type_that_changes_with_a_rewrite_is_seen",
        steps: &[Run("ALTER TABLE public.t ALTER COLUMN id TYPE bigint")],
        verdict: Verdict::Retry,
        changes: T_REPLACED_AND_REDEFINED,
        ..Case::NEW
    },
    Case {
        name: "a_column_added_with_a_volatile_default_is_seen",
        steps: &[Run("ALTER TABLE public.t ADD COLUMN chance float8 DEFAULT random()")],
        verdict: Verdict::Retry,
        changes: T_REPLACED_AND_REDEFINED,
        ..Case::NEW
    },
    Case {
        name: "a_column_added_without_a_rewrite_is_seen",
        steps: &[Run("ALTER TABLE public.t ADD COLUMN five int DEFAULT 5")],
        verdict: Verdict::Retry,
        changes: T_REDEFINED,
        ..Case::NEW
    },
    Case {
        name: "a_dropped_column_is_seen",
        steps: &[Run("ALTER TABLE public.t DROP COLUMN word")],
        verdict: Verdict::Retry,
        changes: T_REDEFINED,
        ..Case::NEW
    },
    Case {
        name: "a_renamed_column_is_seen",
        steps: &[Run("ALTER TABLE public.t RENAME COLUMN word TO term")],
        verdict: Verdict::Retry,
        changes: T_REDEFINED,
        ..Case::NEW
    },
    Case {
        name: "tables_that_become_unlogged_and_logged_are_seen",
        setup: &[
            "CREATE UNLOGGED TABLE public.scratch (id int)",
            "INSERT INTO public.scratch SELECT generate_series(1, 30)",
        ],
        steps: &[
            Run("ALTER TABLE public.t SET UNLOGGED"),
            Run("ALTER TABLE public.scratch SET LOGGED"),
        ],
        verdict: Verdict::Retry,
        changes: &[
            Change::of("public.t", &["replaced"]),
            Change::of("public.scratch", &["replaced"]),
        ],
        ..Case::NEW
    },
];
