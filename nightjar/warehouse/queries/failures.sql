-- Why rollouts failed: the error classes, with the number of rollouts, where they occurred, and the newest message.
--
-- $env environment = NULL: only this environment
-- $days integer = 7: only runs that began at most this number of days ago
SELECT
    coalesce(errors.chain, errors.error) AS error,
    errors.phase,
    count(*) AS rollouts,
    count(DISTINCT run_id) AS runs,
    list_sort(list(DISTINCT runs.model)) AS models,
    list_sort(list(DISTINCT runs.env_id)) AS environments,
    max(runs.started_at) AS last_run,
    arg_max(errors.message, runs.started_at) AS message
FROM errors
JOIN runs USING (run_id)
WHERE ($env IS NULL OR runs.env_id = $env) AND runs.started_at >= now() - to_days($days)
GROUP BY ALL
ORDER BY rollouts DESC, error, errors.phase
