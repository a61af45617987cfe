-- The results of runs per example, by content; duplicates in a dataset are merged. The metric is 'reward', 'correct', or
-- the name of a metric.
CREATE OR REPLACE MACRO example_results(run_ids, metric := 'reward') AS TABLE
WITH measured AS (
    SELECT
        *,
        CASE metric WHEN 'reward' THEN reward WHEN 'correct' THEN correct::INTEGER ELSE metrics[metric] END AS measure
    FROM segments.rollouts
    WHERE example_hash IS NOT NULL AND list_contains(run_ids::VARCHAR[], run_id)
)
SELECT
    run_id,
    example_hash,
    min(example_id) AS example_id,
    avg(measure) AS value,
    avg(correct::INTEGER) AS correct,
    count(measure) AS scored,
    count(*) - count(measure) AS failed
FROM measured
GROUP BY run_id, example_hash;

-- The definition of pairs: two sides, paired by the content of examples. It takes many comparisons at once, as two
-- lists of sides in the same order. A side is a list of runs. The value of an example on a side is the mean of the
-- runs' means. An example appears if both sides contain it; its value is NULL on a side where it has no value.
CREATE OR REPLACE MACRO side_results(sides, metric := 'reward') AS TABLE
WITH members AS (
    SELECT unnest(range(1, len(sides) + 1)) AS side, unnest(sides) AS run_ids
)
SELECT
    side,
    example_hash,
    min(example_id) AS example_id,
    avg(value) AS value,
    list(value ORDER BY run_id) FILTER (value IS NOT NULL) AS values,
    avg(correct) AS correct,
    sum(scored)::BIGINT AS scored,
    sum(failed)::BIGINT AS failed
FROM example_results(flatten(sides), metric := metric)
JOIN (SELECT side, unnest(run_ids) AS run_id FROM members) USING (run_id)
GROUP BY side, example_hash;

CREATE OR REPLACE MACRO paired_sides(before, after, metric := 'reward') AS TABLE
SELECT
    side,
    b.example_id,
    a.value AS value_a,
    b.value AS value_b,
    b.value - a.value AS difference,
    a.values AS values_a,
    a.correct AS correct_a,
    b.correct AS correct_b,
    a.scored AS scored_a,
    b.scored AS scored_b,
    a.failed AS failed_a,
    b.failed AS failed_b,
    example_hash,
    example_hash AS hash_a,
    'content' AS paired_by
FROM side_results(before, metric := metric) AS a
JOIN side_results(after, metric := metric) AS b USING (side, example_hash);

-- The pairs of two sides. Runs of several programs are also paired by question. The baseline may have another metric.
CREATE OR REPLACE MACRO paired(before, after, metric := 'reward', baseline_metric := NULL) AS TABLE
WITH results AS MATERIALIZED (
    SELECT 1 AS side, * EXCLUDE (side) FROM side_results([before], metric := coalesce(baseline_metric, metric))
    UNION ALL
    SELECT 2 AS side, * EXCLUDE (side) FROM side_results([after], metric := metric)
),
matched AS (
    SELECT example_hash AS hash_a, example_hash AS hash_b, 'content' AS paired_by
    FROM results
    GROUP BY example_hash
    HAVING count(*) = 2
    UNION ALL
    FROM paired_by_question(before, after)
)
SELECT
    b.example_id,
    a.value AS value_a,
    b.value AS value_b,
    b.value - a.value AS difference,
    a.values AS values_a,
    a.correct AS correct_a,
    b.correct AS correct_b,
    a.scored AS scored_a,
    b.scored AS scored_b,
    a.failed AS failed_a,
    b.failed AS failed_b,
    hash_b AS example_hash,
    hash_a,
    paired_by
FROM matched
JOIN results AS a ON a.side = 1 AND a.example_hash = hash_a
JOIN results AS b ON b.side = 2 AND b.example_hash = hash_b;

-- Returns no rows, but raises an error if one of the runs is not in the warehouse. The column is not constant, so that
-- no outer filter removes the check. The error is in a branch of a CASE, so that it is not raised for a run that
-- exists.
CREATE OR REPLACE MACRO missing_runs(run_ids) AS TABLE
SELECT missing
FROM (
    SELECT
        CASE
            WHEN run_id IS NULL OR run_id IN (SELECT runs.run_id FROM segments.runs) THEN NULL
            ELSE error('No run ''' || run_id || ''' in this warehouse. See: FROM runs')::DOUBLE
        END AS missing
    FROM (SELECT unnest(run_ids::VARCHAR[]) AS run_id)
)
WHERE missing IS NOT NULL;

-- The examples that both runs have scored.
CREATE OR REPLACE MACRO pairs(a, b) AS TABLE
SELECT example_id, value_a AS reward_a, value_b AS reward_b, difference, correct_a, correct_b, example_hash
FROM paired([a], [b])
WHERE difference IS NOT NULL
UNION ALL
SELECT missing::BIGINT, missing, missing, missing, missing, missing, missing::VARCHAR FROM missing_runs([a, b])
ORDER BY example_id;

-- Compares the representative run of every configuration (as in leaderboard) with the newest earlier run that has more
-- than half as many scored examples. If the dataset grew, the common examples are compared.
CREATE OR REPLACE VIEW regressions AS
WITH ranked AS (
    SELECT
        *,
        first_value(run_id) OVER standing AS run_after,
        first_value(began) OVER standing AS after_began,
        first_value(scored_examples) OVER standing AS after_examples
    FROM finished_runs
    WINDOW standing AS (
        PARTITION BY env_id, model, settings(env_args, extra_env_kwargs, sampling_args)
        ORDER BY is_full DESC, is_sound DESC, began DESC, run_id
    )
),
latest AS (
    SELECT env_id, model, run_id, run_after
    FROM ranked
    WHERE began <= after_began
    QUALIFY row_number() OVER (
        PARTITION BY env_id, model, run_after
        ORDER BY run_id = run_after DESC, scored_examples > 0.5 * after_examples DESC, began DESC, run_id
    ) <= 2
),
steps AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY run_after) AS side, env_id, model, run_id AS run_before, run_after
    FROM latest
    WHERE run_id != run_after
)
SELECT
    env_id,
    model,
    example_id,
    value_a AS reward_before,
    value_b AS reward_after,
    difference AS change,
    example_hash,
    run_before,
    run_after
FROM steps
JOIN paired_sides(
    (SELECT list([run_before] ORDER BY side) FROM steps), (SELECT list([run_after] ORDER BY side) FROM steps)
) USING (side)
WHERE change < -1e-9
ORDER BY env_id, model, change, example_id;

CREATE OR REPLACE MACRO flips(a, b) AS TABLE
SELECT
    example_id,
    CASE WHEN correct_b > correct_a THEN 'fixed' ELSE 'broken' END AS flip,
    correct_a,
    correct_b,
    reward_a,
    reward_b,
    example_hash
FROM pairs(a, b)
WHERE (correct_a >= 0.5) <> (correct_b >= 0.5)
ORDER BY flip, example_id;

COMMENT ON VIEW regressions IS 'examples with a lower mean reward in the representative run than in the previous run, paired by example_hash';

COMMENT ON MACRO TABLE pairs IS 'the examples that two runs have both scored, with both rewards';
COMMENT ON MACRO TABLE flips IS 'the examples that are right in one of two runs only: broken or fixed';
