-- Two models on the examples that both were scored on, in the newest large run of each.
--
-- The difference is b minus a, paired by example; its standard error is stderr. Where examples is 0, they have no
-- example in common; without an environment, not even that.
--
-- $a model: model
-- $b model: the model to compare it with
-- $env environment = NULL: only this environment
WITH chosen AS (
    SELECT env_id, model, run_id
    FROM leaderboard
    WHERE
        model IN ($a, $b) AND ($env IS NULL OR env_id = $env)
        AND ($a != $b OR error('''compare'' takes two models, found ''' || $a || ''' twice.'))
),
environments AS (
    SELECT env_id
    FROM chosen
    GROUP BY env_id
    HAVING count(DISTINCT model) = 2
),
shown AS (
    FROM environments
    UNION ALL
    SELECT $env
    WHERE
        NOT EXISTS (FROM environments)
        AND $a IN (SELECT model FROM runs) AND $b IN (SELECT model FROM runs)
        AND ($env IS NULL OR $env IN (SELECT env_id FROM runs))
),
rewards AS (
    SELECT env_id, model, example_hash, value AS reward
    FROM example_results((SELECT list(run_id) FROM chosen))
    JOIN chosen USING (run_id)
    WHERE scored > 0
),
pairs AS (
    SELECT env_id, rewards_a.reward AS a, rewards_b.reward AS b
    FROM rewards AS rewards_a
    JOIN rewards AS rewards_b USING (env_id, example_hash)
    WHERE rewards_a.model = $a AND rewards_b.model = $b
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
