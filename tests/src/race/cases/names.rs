//! A name comes to mean another table, or nothing.

use super::super::{Case, Change, Step::Run, Verdict};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a_table_dropped_and_made_anew_is_dumped_by_a_second_attempt",
        steps: &[
            Run("DROP TABLE public.t"),
            Run("CREATE TABLE public.t (id int PRIMARY KEY, word text NOT NULL)"),
            Run("INSERT INTO public.t VALUES (1, 'new')"),
        ],
        verdict: Verdict::Retry,
        changes: &[Change::of("public.t", &["dropped", "recreated"])],
        ..Case::NEW
    },
    Case {
        name: "a_dropped_table_is_not_in_the_second_attempts_dump",
        steps: &[Run("DROP TABLE public.t")],
        verdict: Verdict::Retry,
        changes: &[Change::of("public.t", &["dropped"])],
        logged: &["relation \"public.t\" does not exist"],
        ..Case::NEW
    },
    Case {
        name: "two_tables_that_swap_names_are_never_taken_for_each_other",
        setup: &[
            "CREATE TABLE public.t_new (id int PRIMARY KEY, word text NOT NULL)",
            "INSERT INTO public.t_new SELECT i, 'other' FROM generate_series(1, 10) AS i",
        ],
        steps: &[Run("BEGIN; ALTER TABLE public.t RENAME TO t_old; \
                      ALTER TABLE public.t_new RENAME TO t; COMMIT")],
        verdict: Verdict::Retry,
        changes: &[
            Change::of("public.t", &["renamed", "recreated"]),
            Change::of("public.t_new", &["renamed"]),
        ],
        logged: &["relation \"public.t_new\" does not exist"],
        ..Case::NEW
    },
    Case {
        name: "a_table_moved_away_with_another_in_its_place_is_seen",
        setup: &["CREATE SCHEMA attic"],
        steps: &[
            Run("ALTER TABLE public.t SET SCHEMA attic"),
            Run("CREATE TABLE public.t (id int PRIMARY KEY, word text NOT NULL)"),
        ],
        verdict: Verdict::Retry,
        changes: &[Change::of("public.t", &["renamed", "recreated"])],
        ..Case::NEW
    },
];
