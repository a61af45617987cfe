-- Who leads in each environment: every model's newest run of the most examples.
--
-- $env environment = NULL: only this environment
SELECT env_id, model, avg_reward, stderr, scored, coverage, started_at, run_id
FROM leaderboard
WHERE $env IS NULL OR env_id = $env
ORDER BY env_id, avg_reward DESC NULLS LAST, model
