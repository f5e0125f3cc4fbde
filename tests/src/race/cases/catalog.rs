//! The change comes before `pg_dump` has read the catalog.

use super::super::{Case, Change, Step::Run, Verdict, Window};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a_table_truncated_before_the_ddl_is_read_is_dumped_by_a_second_attempt",
        window: Window::BeforeDdl,
        steps: &[Run("TRUNCATE public.t"), Run("INSERT INTO public.t VALUES (1, 'reloaded')")],
        verdict: Verdict::Retry,
        changes: &[Change::of("public.t", &["replaced"])],
        ..Case::NEW
    },
    Case {
        name: "tables_truncated_before_the_ddl_is_read_are_found_by_the_workers_that_have_them",
        arguments: &["-j", "3"],
        window: Window::BeforeDdl,
        steps: &[Run("TRUNCATE public.t"), Run("TRUNCATE public.p1")],
        verdict: Verdict::Retry,
        changes: &[
            Change::of("public.t", &["replaced"]),
            Change::of("public.p1", &["replaced"]).below(&["public.p"]),
        ],
        ..Case::NEW
    },
    Case {
        name: "a_table_renamed_before_the_ddl_is_read_is_dumped_by_a_second_attempt",
        window: Window::BeforeDdl,
        steps: &[Run("ALTER TABLE public.t RENAME TO t_renamed")],
        verdict: Verdict::RetryAfterDdl,
        logged: &["relation \"public.t\" does not exist"],
        ..Case::NEW
    },
    Case {
        name: "a_view_a_function_and_a_type_dropped_before_the_ddl_is_read_cost_a_second_attempt",
        setup: &[
            "CREATE TYPE public.mood AS ENUM ('calm', 'wild')",
            "CREATE FUNCTION public.half(i int) RETURNS int LANGUAGE sql AS 'SELECT i / 2'",
            "CREATE VIEW public.halves AS SELECT public.half(id), 'calm'::public.mood FROM public.t",
        ],
        window: Window::BeforeDdl,
        steps: &[
            Run("DROP VIEW public.halves"),
            Run("DROP FUNCTION public.half"),
            Run("DROP TYPE public.mood"),
        ],
        verdict: Verdict::RetryAfterDdl,
        logged: &["cache lookup failed", "could not open relation", "does not exist"],
        ..Case::NEW
    },
];
