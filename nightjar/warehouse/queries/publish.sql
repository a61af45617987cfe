-- Replaces a run's rows by the staged ones. Run inside a transaction; the variables run_id, run_dir
-- and metadata are set, and the tables staged_run and staged_rollouts are filled.

DELETE FROM runs WHERE run_id = getvariable('run_id');
DELETE FROM rollouts WHERE run_id = getvariable('run_id');
DELETE FROM metrics WHERE run_id = getvariable('run_id');
DELETE FROM errors WHERE run_id = getvariable('run_id');

INSERT INTO runs BY NAME
SELECT
    * EXCLUDE (usage),
    usage.input_tokens AS input_tokens,
    usage.output_tokens AS output_tokens,
    getvariable('run_dir') AS run_dir,
    now() AS published_at,
    getvariable('metadata') AS metadata
FROM staged_run;

INSERT INTO rollouts BY NAME
SELECT
    getvariable('run_id') AS run_id,
    * EXCLUDE (metrics, error, timing, token_usage),
    error.error AS error,
    error.error_chain_repr AS error_chain,
    token_usage.input_tokens AS input_tokens,
    token_usage.output_tokens AS output_tokens,
    timing.generation_ms AS generation_ms,
    timing.scoring_ms AS scoring_ms,
    timing.total_ms AS total_ms
FROM staged_rollouts;

INSERT INTO metrics BY NAME
SELECT
    getvariable('run_id') AS run_id,
    example_id,
    rollout_index,
    unnest(map_keys(metrics)) AS name,
    unnest(map_values(metrics)) AS value
FROM staged_rollouts;

INSERT INTO errors BY NAME
SELECT
    getvariable('run_id') AS run_id,
    example_id,
    rollout_index,
    error.phase AS phase,
    error.error AS error,
    error.message AS message,
    error.error_chain_repr AS chain,
    error.traceback AS traceback
FROM staged_rollouts
WHERE error IS NOT NULL;
