//! The change comes in every attempt.

use super::super::{Case, Change, Step::Run, Verdict};

const T_REPLACED: &[Change] = &[Change::of("public.t", &["replaced"])];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a_table_truncated_in_every_attempt_is_left_out_and_the_rest_is_whole",
        steps: &[
            Run("TRUNCATE public.t"),
            Run("INSERT INTO public.t SELECT i, 'again' FROM generate_series(1, 20) AS i"),
        ],
        verdict: Verdict::LeftOut,
        changes: T_REPLACED,
        ..Case::NEW
    },
    Case {
        name: "with_one_attempt_a_truncated_table_is_left_out_at_once",
        steps: &[Run("TRUNCATE public.t"), Run("INSERT INTO public.t VALUES (1, 'again')")],
        verdict: Verdict::LeftOut,
        attempts: 1,
        changes: T_REPLACED,
        ..Case::NEW
    },
];
