-- The slowest runs, and how long their rollouts took.
--
-- The column minutes is the time of the whole run. The columns median_seconds and p95_seconds are the median and the
-- 95th percentile of the time to generate a rollout; scoring_seconds is the mean time to score a rollout.
--
-- $env environment = NULL: only this environment
-- $days integer = 30: only runs that began at most this number of days ago
-- $limit integer = 20: maximum number of rows
WITH slowest AS (
    SELECT env_id, model, started_at, time_ms / 60000 AS minutes, scored + failed AS rollouts, run_id
    FROM runs
    WHERE ($env IS NULL OR env_id = $env) AND started_at >= now() - to_days($days) AND time_ms IS NOT NULL
    ORDER BY time_ms DESC, run_id
    LIMIT $limit
),
rollout_times AS (
    SELECT
        run_id,
        median(generation_ms) / 1000 AS median_seconds,
        quantile_cont(generation_ms, 0.95) / 1000 AS p95_seconds,
        avg(scoring_ms) / 1000 AS scoring_seconds
    FROM rollouts
    SEMI JOIN slowest USING (run_id)
    GROUP BY run_id
)
SELECT
    slowest.* EXCLUDE (run_id),
    rollouts / nullif(minutes * 60, 0) AS per_second,
    rollout_times.* EXCLUDE (run_id),
    run_id
FROM slowest
LEFT JOIN rollout_times USING (run_id)
ORDER BY minutes DESC, run_id
