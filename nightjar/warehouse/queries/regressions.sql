-- What got worse last night: examples with a lower mean reward than in the previous comparable run.
--
-- $env environment = NULL: only this environment
-- $model model = NULL: only this model
-- $days integer = 1: only if the newer run began at most this number of days ago
-- $limit integer = 50: maximum number of rows
SELECT
    regressions.env_id,
    regressions.model,
    example_id,
    reward_before,
    reward_after,
    change,
    run_before,
    run_after
FROM regressions
JOIN runs ON runs.run_id = run_after
WHERE ($env IS NULL OR regressions.env_id = $env)
    AND ($model IS NULL OR regressions.model = $model)
    AND runs.started_at >= now() - to_days($days)
ORDER BY change, regressions.env_id, regressions.model, example_id
LIMIT $limit
