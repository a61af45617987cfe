-- The tables of a segment: runs, rollouts, attempts and examples. Texts that the dataset gives are kept once, in
-- examples, under the hash of their content; metrics and errors are part of their rollout.

ALTER TABLE runs RENAME TO runs_2;
ALTER TABLE rollouts RENAME TO rollouts_2;
DROP VIEW leaderboard;
DROP VIEW example_rewards;

CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    status VARCHAR,
    suite VARCHAR,
    tags VARCHAR[],
    env_id VARCHAR,
    env_version VARCHAR,
    env_commit VARCHAR,
    env_args JSON,
    extra_env_kwargs JSON,
    model VARCHAR,
    base_url VARCHAR,
    sampling_args JSON,
    num_examples BIGINT,
    rollouts_per_example BIGINT,
    dataset_fingerprint VARCHAR,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    time_ms DOUBLE,
    rollouts BIGINT,
    scored BIGINT,
    failed BIGINT,
    truncated BIGINT,
    coverage DOUBLE,
    avg_reward DOUBLE,
    stderr DOUBLE,
    avg_error DOUBLE,
    avg_metrics MAP(VARCHAR, DOUBLE),
    pass_at_k MAP(VARCHAR, DOUBLE),
    pass_all_k MAP(VARCHAR, DOUBLE),
    pass_threshold DOUBLE,
    input_tokens BIGINT,
    output_tokens BIGINT,
    errors MAP(VARCHAR, BIGINT),
    stop_conditions MAP(VARCHAR, BIGINT),
    served_models VARCHAR[],
    nightjar_version VARCHAR,
    nightjar_commit VARCHAR,
    version_info JSON,
    flow_run_id VARCHAR,
    run_dir VARCHAR,
    published_at TIMESTAMPTZ,
    metadata JSON,
    config JSON
);

CREATE TABLE rollouts (
    run_id VARCHAR NOT NULL,
    example_id BIGINT NOT NULL,
    rollout_index INTEGER NOT NULL,
    example_hash VARCHAR,
    content_id UBIGINT NOT NULL,
    reward DOUBLE,
    advantage DOUBLE,
    correct BOOLEAN,
    metrics MAP(VARCHAR, DOUBLE),
    error VARCHAR,
    error_chain VARCHAR,
    error_phase VARCHAR,
    error_message VARCHAR,
    error_traceback VARCHAR,
    stop_condition VARCHAR,
    is_completed BOOLEAN,
    is_truncated BOOLEAN,
    input_tokens BIGINT,
    output_tokens BIGINT,
    generation_ms DOUBLE,
    scoring_ms DOUBLE,
    total_ms DOUBLE,
    attempts INTEGER,
    model VARCHAR,
    completion JSON,
    trajectory JSON,
    state JSON
);

CREATE TABLE attempts (
    run_id VARCHAR NOT NULL,
    example_id BIGINT NOT NULL,
    rollout_index INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    finished_at TIMESTAMPTZ,
    error VARCHAR,
    error_chain VARCHAR,
    error_message VARCHAR,
    error_traceback VARCHAR,
    generation_ms DOUBLE,
    input_tokens BIGINT,
    output_tokens BIGINT
);

CREATE TABLE examples (
    content_id UBIGINT NOT NULL,
    example_hash VARCHAR,
    task VARCHAR,
    prompt JSON,
    answer VARCHAR,
    info JSON,
    tool_defs JSON
);

INSERT INTO runs BY NAME
SELECT
    *,
    printf('%09d-%013d-%013d-0', 0, 0, coalesce(epoch_ms(finished_at), 0)) AS version,
    metadata -> 'extra_env_kwargs' AS extra_env_kwargs,
    CAST(metadata ->> 'truncated' AS BIGINT) AS truncated,
    CAST(metadata -> 'errors' AS MAP(VARCHAR, BIGINT)) AS errors,
    CAST(metadata -> 'stop_conditions' AS MAP(VARCHAR, BIGINT)) AS stop_conditions,
    CAST(metadata -> 'served_models' AS VARCHAR[]) AS served_models,
    version_info ->> 'nightjar_version' AS nightjar_version
FROM runs_2;

CREATE TEMP TABLE contents AS
SELECT
    * EXCLUDE (error, error_chain),
    md5_number_lower(concat_ws(chr(0), example_hash, task, prompt, answer, info, tool_defs)) AS content_id
FROM rollouts_2;

INSERT INTO examples BY NAME
SELECT content_id, example_hash, task, prompt, answer, info, tool_defs
FROM contents
QUALIFY row_number() OVER (PARTITION BY content_id) = 1;

INSERT INTO rollouts BY NAME
SELECT
    contents.* EXCLUDE (task, prompt, answer, info, tool_defs),
    contents.reward >= coalesce(runs.pass_threshold, 0.5) AS correct,
    coalesce(scores.metrics, MAP {}) AS metrics,
    errors.error AS error,
    errors.chain AS error_chain,
    errors.phase AS error_phase,
    errors.message AS error_message,
    errors.traceback AS error_traceback
FROM contents
LEFT JOIN runs USING (run_id)
LEFT JOIN (
    SELECT run_id, example_id, rollout_index, map(list(name), list(value)) AS metrics
    FROM metrics
    GROUP BY ALL
) AS scores USING (run_id, example_id, rollout_index)
LEFT JOIN errors USING (run_id, example_id, rollout_index);

DROP TABLE contents;
DROP TABLE runs_2;
DROP TABLE rollouts_2;
DROP TABLE metrics;
DROP TABLE errors;
