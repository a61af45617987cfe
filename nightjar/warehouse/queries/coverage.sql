-- Incomplete runs with the number of their remaining rollouts (owed); --resume RUN_DIR does only the remaining ones.
--
-- $env environment = NULL: only this environment
-- $days integer = 30: only runs that began at most this number of days ago
SELECT
    env_id,
    model,
    status,
    started_at,
    rollouts,
    scored,
    failed,
    rollouts - scored AS owed,
    coverage,
    run_id,
    run_dir
FROM runs
WHERE ($env IS NULL OR env_id = $env)
    AND started_at >= now() - to_days($days)
    AND (status <> 'completed' OR scored < rollouts)
ORDER BY started_at DESC, run_id
