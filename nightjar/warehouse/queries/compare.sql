-- Two models compared on the examples that both have scored, in the newest full run of each model.
--
-- The column difference is b minus a, paired by example, and stderr is its standard error. If the column examples is 0,
-- the models have no scored example in common. If env_id is NULL as well, they have no environment in common.
--
-- $a model: the first model
-- $b model: the second model, which is compared with the first
-- $env environment = NULL: only this environment
WITH chosen AS (
    SELECT env_id, model, run_id
    FROM leaderboard
    WHERE
        model IN ($a, $b) AND ($env IS NULL OR env_id = $env)
        AND ($a != $b OR error('''compare'' takes two models, found ''' || $a || ''' twice.'))
),
environments AS MATERIALIZED (
    SELECT
        row_number() OVER (ORDER BY env_id) AS side,
        env_id,
        any_value(run_id) FILTER (model = $a) AS run_a,
        any_value(run_id) FILTER (model = $b) AS run_b
    FROM chosen
    GROUP BY env_id
    HAVING count(DISTINCT model) = 2
),
shown AS (
    SELECT env_id FROM environments
    UNION ALL
    SELECT $env
    WHERE
        NOT EXISTS (FROM environments)
        AND $a IN (SELECT model FROM runs) AND $b IN (SELECT model FROM runs)
        AND ($env IS NULL OR $env IN (SELECT env_id FROM runs))
),
pairs AS (
    SELECT env_id, value_a AS a, value_b AS b
    FROM environments
    JOIN paired_sides(
        (SELECT list([run_a] ORDER BY side) FROM environments), (SELECT list([run_b] ORDER BY side) FROM environments)
    ) USING (side)
    WHERE difference IS NOT NULL
)
SELECT
    env_id,
    count(a) AS examples,
    avg(a) AS avg_a,
    avg(b) AS avg_b,
    avg(b - a) AS difference,
    stddev_samp(b - a) / sqrt(count(a)) AS stderr,
    count(*) FILTER (a > b) AS a_better,
    count(*) FILTER (b > a) AS b_better,
    count(*) FILTER (a = b) AS equal
FROM shown
LEFT JOIN pairs USING (env_id)
GROUP BY env_id
ORDER BY env_id
