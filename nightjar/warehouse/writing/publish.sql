-- The rows of a run's segment, from the tables staged_run, staged_results and staged_attempts and the variables run_id,
-- version, run_dir, metadata, config and threshold. Names and types are those of storage/tables.sql.

CREATE TEMP VIEW new_runs AS
SELECT
    run_id,
    getvariable('version') AS version,
    status,
    suite,
    tags,
    env_id,
    env_version,
    version_info ->> 'env_commit' AS env_commit,
    env_args,
    extra_env_kwargs,
    model,
    base_url,
    sampling_args,
    num_examples,
    rollouts_per_example,
    dataset_fingerprint,
    started_at,
    finished_at,
    time_ms,
    rollouts,
    scored,
    failed,
    truncated,
    coverage,
    avg_reward,
    stderr,
    avg_error,
    avg_metrics,
    pass_at_k,
    pass_all_k,
    pass_threshold,
    usage.input_tokens AS input_tokens,
    usage.output_tokens AS output_tokens,
    errors,
    stop_conditions,
    served_models,
    version_info ->> 'nightjar_version' AS nightjar_version,
    version_info ->> 'nightjar_commit' AS nightjar_commit,
    version_info,
    flow_run_id,
    getvariable('run_dir') AS run_dir,
    coalesce(published_at, now()) AS published_at,
    getvariable('metadata')::JSON AS metadata,
    getvariable('config')::JSON AS config,
    version_info ->> 'env_hash' AS env_hash,
    version_info ->> 'scoring_hash' AS scoring_hash,
    rescored_from,
    api_client_type AS protocol,
    rewards.examples AS reward_examples,
    rewards.lowest AS lowest_reward,
    rewards.highest AS highest_reward
FROM staged_run, (
    SELECT count(DISTINCT example_id) AS examples, min(reward) AS lowest, max(reward) AS highest
    FROM staged_results WHERE reward IS NOT NULL
) AS rewards;

-- The content of a rollout as a hash whose first byte is that of the environment. Files are sorted by it, so that the
-- contents of one environment are adjacent, and a query about a run reads no others.
CREATE TEMP MACRO content(example_hash, task, prompt, answer, info, tool_defs) AS
    ((md5_number_lower((SELECT coalesce(env_id, '') FROM staged_run)) & 255::UBIGINT) << 56) | (md5_number_lower(concat_ws(
        chr(0), example_hash, coalesce(task, chr(1)), coalesce(prompt::VARCHAR, chr(1)), coalesce(answer, chr(1)),
        coalesce(info::VARCHAR, chr(1)), coalesce(tool_defs::VARCHAR, chr(1))
    )) >> 8);

CREATE TEMP VIEW new_rollouts AS
WITH lasts AS (
    SELECT arg_max(rowid, attempt) AS line
    FROM staged_attempts
    WHERE error IS NULL AND state.trajectory IS NOT NULL
    GROUP BY example_id, rollout_index
), trajectories AS (  -- joined by line, because DuckDB cannot spill an aggregate that holds texts to disk
    SELECT example_id, rollout_index, state.trajectory AS trajectory
    FROM staged_attempts
    JOIN lasts ON staged_attempts.rowid = lasts.line
)
SELECT
    getvariable('run_id') AS run_id,
    example_id,
    rollout_index,
    example_hash,
    content(example_hash, task, prompt, answer, info, tool_defs) AS content_id,
    reward,
    advantage,
    reward >= getvariable('threshold') AS correct,
    metrics,
    error.error AS error,
    error.error_chain_repr AS error_chain,
    error.phase AS error_phase,
    error.message AS error_message,
    error.traceback AS error_traceback,
    stop_condition,
    is_completed,
    is_truncated,
    token_usage.input_tokens AS input_tokens,
    token_usage.output_tokens AS output_tokens,
    timing.generation_ms AS generation_ms,
    timing.scoring_ms AS scoring_ms,
    timing.total_ms AS total_ms,
    attempts,
    model,
    completion,
    trajectory,
    state,
    trajectory ->> '$[#-1].response.finish_reason' AS finish_reason,
    list_sum(TRY_CAST(trajectory -> '$[*].latency_ms' AS DOUBLE[])) AS model_ms,
    len(list_filter(TRY_CAST(trajectory -> '$[*].response.is_cached' AS BOOLEAN[]), lambda one: one)) AS cached_calls
FROM staged_results
LEFT JOIN trajectories USING (example_id, rollout_index);

CREATE TEMP VIEW new_attempts AS
SELECT
    getvariable('run_id') AS run_id,
    example_id,
    rollout_index,
    attempt,
    to_timestamp(finished_at) AS finished_at,
    error.error AS error,
    error.error_chain_repr AS error_chain,
    error.message AS error_message,
    error.traceback AS error_traceback,
    generation_ms,
    token_usage.input_tokens AS input_tokens,
    token_usage.output_tokens AS output_tokens
FROM staged_attempts;

CREATE TEMP VIEW new_examples AS
WITH firsts AS (
    SELECT min(rowid) AS line
    FROM staged_results
    GROUP BY content(example_hash, task, prompt, answer, info, tool_defs)
)
SELECT
    content(example_hash, task, prompt, answer, info, tool_defs) AS content_id,
    example_hash,
    task,
    prompt,
    answer,
    info,
    tool_defs
FROM staged_results
SEMI JOIN firsts ON staged_results.rowid = firsts.line;
