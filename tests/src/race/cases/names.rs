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
    Case {
        // Whoever may create a view must not have its functions run by the role of the dump: a
        // warning in the server's log fails the test.
        name: "a_view_in_the_place_of_a_sequence_is_not_read",
        setup: &["CREATE FUNCTION public.trap() RETURNS bigint LANGUAGE plpgsql AS \
                      $$ BEGIN RAISE WARNING 'the trap was run'; RETURN 1; END $$"],
        steps: &[
            Run("DROP SEQUENCE public.numbers"),
            Run(
                "CREATE VIEW public.numbers AS SELECT public.trap() AS last_value, true AS is_called",
            ),
        ],
        verdict: Verdict::Retry,
        changes: &[Change::of("public.numbers", &["dropped", "recreated"])],
        logged: &["access to non-system view \"numbers\" is restricted"],
        ..Case::NEW
    },
];
