//! Partitions and inheritance children come, go and are emptied. Every table with rows is
//! dumped by itself, so that it does not matter who its parent is.

use super::super::{Case, Change, Step::In, Step::Run, Step::Start, Verdict};

const P1_DETACHED: &[Change] = &[Change::harmless("public.p1", &["detached"]).below(&["public.p"])];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "an_attached_partition_has_its_rows_once",
        setup: &[
            "CREATE TABLE public.p3 (id int NOT NULL, word text)",
            "INSERT INTO public.p3 SELECT i, 'third' FROM generate_series(101, 150) AS i",
        ],
        steps: &[Run(
            "ALTER TABLE public.p ATTACH PARTITION public.p3 FOR VALUES FROM (101) TO (151)",
        )],
        verdict: Verdict::Go,
        changes: &[Change::harmless("public.p3", &["attached"]).below(&["public.p"])],
        ..Case::NEW
    },
    Case {
        name: "a_detached_partition_has_its_rows",
        steps: &[Run("ALTER TABLE public.p DETACH PARTITION public.p1")],
        verdict: Verdict::Go,
        changes: P1_DETACHED,
        ..Case::NEW
    },
    Case {
        name: "a_concurrently_detached_partition_has_its_rows",
        steps: &[Start("ALTER TABLE public.p DETACH PARTITION public.p1 CONCURRENTLY")],
        verdict: Verdict::Go,
        changes: P1_DETACHED,
        ..Case::NEW
    },
    Case {
        // The first of its two transactions has committed, the second waits for a reader.
        name: "a_partition_whose_concurrent_detaching_is_pending_has_its_rows",
        steps: &[
            In("reader", "BEGIN; SELECT FROM public.p"),
            Start("ALTER TABLE public.p DETACH PARTITION public.p1 CONCURRENTLY"),
        ],
        verdict: Verdict::Go,
        changes: P1_DETACHED,
        ..Case::NEW
    },
    Case {
        name: "a_detached_and_dropped_partition_is_not_in_the_second_attempts_dump",
        steps: &[
            Run("ALTER TABLE public.p DETACH PARTITION public.p1"),
            Run("DROP TABLE public.p1"),
        ],
        verdict: Verdict::Retry,
        changes: &[Change::of("public.p1", &["dropped"]).below(&["public.p"])],
        logged: &["relation \"public.p1\" does not exist"],
        ..Case::NEW
    },
    Case {
        name: "a_truncated_leaf_is_named_with_all_its_ancestors",
        setup: &[
            "CREATE TABLE public.root (id int, kind text) PARTITION BY LIST (kind)",
            "CREATE TABLE public.branch PARTITION OF public.root FOR VALUES IN ('a') \
             PARTITION BY RANGE (id)",
            "CREATE TABLE public.leaf PARTITION OF public.branch FOR VALUES FROM (1) TO (51)",
            "CREATE TABLE public.twin PARTITION OF public.branch FOR VALUES FROM (51) TO (101)",
            "INSERT INTO public.root SELECT i, 'a' FROM generate_series(1, 100) AS i",
        ],
        arguments: &["-t", "public.barrier", "-t", "public.root"],
        asked_for: &["public.root", "public.branch", "public.leaf", "public.twin"],
        steps: &[Run("TRUNCATE public.leaf")],
        verdict: Verdict::Retry,
        changes: &[
            Change::of("public.leaf", &["replaced"]).below(&["public.branch", "public.root"])
        ],
        ..Case::NEW
    },
    Case {
        name: "a_partitioned_table_made_anew_is_dumped_with_its_new_partitions",
        arguments: &["-t", "public.barrier", "-t", "public.p"],
        asked_for: &["public.p", "public.p1", "public.p2", "public.p3"],
        steps: &[
            Run("DROP TABLE public.p"),
            Run("CREATE TABLE public.p (id int NOT NULL, word text) PARTITION BY RANGE (id)"),
            Run("CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (1) TO (41)"),
            Run("CREATE TABLE public.p2 PARTITION OF public.p FOR VALUES FROM (41) TO (81)"),
            Run("CREATE TABLE public.p3 PARTITION OF public.p FOR VALUES FROM (81) TO (121)"),
            Run("INSERT INTO public.p SELECT i, 'new' FROM generate_series(1, 120) AS i"),
        ],
        verdict: Verdict::Retry,
        changes: &[
            Change::of("public.p1", &["dropped", "recreated"]).below(&["public.p"]),
            Change::of("public.p2", &["dropped", "recreated"]).below(&["public.p"]),
        ],
        ..Case::NEW
    },
    Case {
        name: "a_truncated_child_of_two_parents_is_named_with_both",
        setup: &[
            "CREATE TABLE public.mother (id int)",
            "CREATE TABLE public.father (id int)",
            "CREATE TABLE public.child () INHERITS (public.mother, public.father)",
            "INSERT INTO public.child SELECT generate_series(1, 60)",
            "INSERT INTO public.mother VALUES (0)",
        ],
        steps: &[Run("TRUNCATE public.child"), Run("INSERT INTO public.child VALUES (7)")],
        verdict: Verdict::Retry,
        changes: &[
            Change::of("public.child", &["replaced"]).below(&["public.father", "public.mother"])
        ],
        ..Case::NEW
    },
];
