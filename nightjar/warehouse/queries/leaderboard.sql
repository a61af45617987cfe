-- Who leads in each environment: the newest full run of every model, best model first.
--
-- Means are comparable only if the column dataset is the same. A model is left out if less than 95 % of the rollouts of
-- its run are scored: see the query coverage.
--
-- $env environment = NULL: only this environment
SELECT
    env_id,
    model,
    avg_reward,
    stderr,
    coverage,
    num_examples AS examples,
    dataset_fingerprint[:8] AS dataset,
    started_at,
    run_id
FROM leaderboard
WHERE ($env IS NULL OR env_id = $env) AND NOT has_low_coverage
ORDER BY env_id, avg_reward DESC NULLS LAST, model
