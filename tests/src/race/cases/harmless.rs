//! What a snapshot survives: the first attempt is the dump.

use super::super::{Case, Step, Step::Run, Step::Start, Verdict};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "nothing_but_new_rows_costs_no_second_attempt",
        steps: &[Run("INSERT INTO public.t VALUES (0, 'too late')")],
        verdict: Verdict::Go,
        ..Case::NEW
    },
    Case {
        name: "updates_deletes_and_a_vacuum_that_truncates_the_tail_cost_no_second_attempt",
        setup: &[
            "CREATE TABLE public.long (id int, filler text)",
            "INSERT INTO public.long SELECT i, repeat('x', 1000) FROM generate_series(1, 800) AS i",
            "DELETE FROM public.long WHERE id > 100",
        ],
        steps: &[
            Run("UPDATE public.t SET word = 'updated' WHERE id % 3 = 0"),
            Run("DELETE FROM public.t WHERE id % 5 = 0"),
            Run("VACUUM public.t"),
            Run("VACUUM public.long"),
            Run(
                "DO $$ BEGIN ASSERT pg_relation_size('public.long') < 200000, 'no tail cut'; END $$",
            ),
        ],
        verdict: Verdict::Go,
        ..Case::NEW
    },
    Case {
        name: "reindex_create_index_and_analyze_cost_no_second_attempt",
        steps: &[
            Run("REINDEX TABLE public.t"),
            Run("CREATE INDEX t_word ON public.t (word)"),
            Run("ANALYZE public.t, public.p, public.witness"),
        ],
        verdict: Verdict::Go,
        ..Case::NEW
    },
    Case {
        name: "concurrent_index_builds_wait_for_the_dump_and_cost_no_second_attempt",
        steps: &[
            Start("CREATE INDEX CONCURRENTLY t_word ON public.t (word)"),
            Start("REINDEX TABLE CONCURRENTLY public.p1"),
        ],
        verdict: Verdict::Go,
        ..Case::NEW
    },
    Case {
        // The builds have come to their last wait, for a snapshot older than the dump's, when
        // the dump starts; they end between its snapshot and its locks.
        name: "concurrent_index_builds_that_end_in_between_cost_no_second_attempt",
        setup: &["CREATE INDEX p1_id ON public.p1 (id)"],
        before: &[
            Step::In("old", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM public.witness"),
            Start("CREATE INDEX CONCURRENTLY t_word ON public.t (word)"),
            Start("CREATE INDEX CONCURRENTLY p2_id ON public.p2 (id)"),
        ],
        steps: &[Step::In("old", "COMMIT"), Step::Finish],
        verdict: Verdict::Go,
        ..Case::NEW
    },
    Case {
        name: "a_table_made_after_the_snapshot_is_not_in_the_dump",
        steps: &[
            Run("CREATE TABLE public.u (id int)"),
            Run("INSERT INTO public.u SELECT generate_series(1, 10)"),
        ],
        verdict: Verdict::Go,
        ..Case::NEW
    },
    Case {
        name: "a_refreshed_materialized_view_costs_no_second_attempt",
        setup: &[
            "CREATE MATERIALIZED VIEW public.words AS SELECT word, count(*) FROM public.t GROUP BY 1",
        ],
        steps: &[
            Run("INSERT INTO public.t VALUES (0, 'too late')"),
            Run("REFRESH MATERIALIZED VIEW public.words"),
        ],
        verdict: Verdict::Go,
        ..Case::NEW
    },
];
