-- Runs that are not complete, and how many rollouts they owe; --resume RUN_DIR does only these.
--
-- $env environment = NULL: only this environment
-- $days integer = 30: runs that began in the last so many days
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
