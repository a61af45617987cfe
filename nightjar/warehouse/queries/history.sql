-- How the mean reward changed over time: the finished runs of an environment, newest first.
--
-- The column change is the difference from the previous run of the same configuration and dataset.
--
-- $env environment: environment
-- $model model = NULL: only this model
-- $limit integer = 30: maximum number of rows
SELECT started_at, model, avg_reward, stderr, change, coverage, cost, env_version, left(env_hash, 12) AS env_hash, run_id
FROM history
WHERE env_id = $env AND ($model IS NULL OR model = $model)
ORDER BY started_at DESC NULLS LAST, run_id
LIMIT $limit
