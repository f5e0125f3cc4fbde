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
    Case {
        name: "a_renamed_type_is_not_named_by_a_table_that_the_archive_has_with_the_old_one",
        setup: &[
            "CREATE TYPE public.mood AS ENUM ('calm', 'wild')",
            "CREATE TABLE public.m AS SELECT i AS id, 'calm'::public.mood AS mood \
               FROM generate_series(1, 9) AS i",
        ],
        window: Window::BeforeDdl,
        steps: &[Run("ALTER TYPE public.mood RENAME TO temper")],
        verdict: Verdict::RetryAfterDdl,
        ..Case::NEW
    },
    Case {
        name: "a_renamed_schema_is_not_named_by_the_columns_of_its_types",
        setup: &[
            "CREATE SCHEMA words",
            "CREATE DOMAIN words.word AS text",
            "CREATE TABLE public.m AS SELECT md5(i::text)::words.word AS word \
               FROM generate_series(1, 9) AS i",
        ],
        window: Window::BeforeDdl,
        steps: &[Run("ALTER SCHEMA words RENAME TO terms")],
        verdict: Verdict::RetryAfterDdl,
        ..Case::NEW
    },
    Case {
        name: "a_renamed_function_is_not_named_by_a_tables_default",
        setup: &[
            "CREATE FUNCTION public.half(i int) RETURNS int LANGUAGE sql AS 'SELECT i / 2'",
            "CREATE TABLE public.m (id int DEFAULT public.half(8), word text)",
            "INSERT INTO public.m SELECT i, md5(i::text) FROM generate_series(1, 9) AS i",
        ],
        window: Window::BeforeDdl,
        steps: &[Run("ALTER FUNCTION public.half RENAME TO moiety")],
        verdict: Verdict::RetryAfterDdl,
        ..Case::NEW
    },
    Case {
        name: "a_renamed_enum_label_is_not_named_by_a_tables_default",
        setup: &[
            "CREATE TYPE public.mood AS ENUM ('calm', 'wild')",
            "CREATE TABLE public.m (id int, mood public.mood DEFAULT 'wild')",
            "INSERT INTO public.m SELECT i, 'calm' FROM generate_series(1, 9) AS i",
        ],
        window: Window::BeforeDdl,
        steps: &[Run("ALTER TYPE public.mood RENAME VALUE 'wild' TO 'fierce'")],
        verdict: Verdict::RetryAfterDdl,
        ..Case::NEW
    },
    Case {
        name: "a_renamed_attribute_is_not_named_by_a_tables_constraint",
        setup: &[
            "CREATE TYPE public.pair AS (a int, b int)",
            "CREATE TABLE public.m (p public.pair CHECK ((p).a > 0))",
            "INSERT INTO public.m SELECT ROW(i, i)::public.pair FROM generate_series(1, 9) AS i",
        ],
        window: Window::BeforeDdl,
        steps: &[Run("ALTER TYPE public.pair RENAME ATTRIBUTE a TO c")],
        verdict: Verdict::RetryAfterDdl,
        ..Case::NEW
    },
    Case {
        // Nothing of the old parent is left but its name, and its key is no more to be had.
        name: "a_table_partitioned_anew_around_its_partitions_costs_a_second_attempt",
        window: Window::BeforeDdl,
        steps: &[Run("BEGIN; \
                      CREATE TABLE public.q (id int NOT NULL, word text) PARTITION BY LIST (id); \
                      ALTER TABLE public.p DETACH PARTITION public.p1; \
                      ALTER TABLE public.p DETACH PARTITION public.p2; \
                      DROP TABLE public.p; \
                      ALTER TABLE public.q RENAME TO p; \
                      ALTER TABLE public.p ATTACH PARTITION public.p1 DEFAULT; \
                      COMMIT")],
        verdict: Verdict::RetryAfterDdl,
        ..Case::NEW
    },
    Case {
        name: "what_is_made_or_dropped_without_being_in_a_table_costs_no_second_attempt",
        setup: &[
            "CREATE TYPE public.mood AS ENUM ('calm', 'wild')",
            "CREATE DOMAIN public.word AS text",
        ],
        steps: &[
            Run("DROP DOMAIN public.word"),
            Run("CREATE FUNCTION public.half(i int) RETURNS int LANGUAGE sql AS 'SELECT i / 2'"),
            Run("CREATE TYPE public._mood AS (i int)"),
            Run("ALTER TYPE public.mood ADD VALUE 'mad'"),
        ],
        ..Case::NEW
    },
];
