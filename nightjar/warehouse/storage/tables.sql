-- The tables of a segment: runs, rollouts, attempts and examples. Texts of the dataset are stored once, in examples,
-- under the hash of their content; metrics and errors are part of their rollout. There are no keys or indexes, because
-- they double the time of a publish.
--
-- The CREATE TABLE statements are those of the first release and never change. A new column is an ALTER TABLE statement
-- at the end, which raises the version of the tables by one.

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

ALTER TABLE runs ADD COLUMN env_hash VARCHAR;
ALTER TABLE runs ADD COLUMN scoring_hash VARCHAR;
ALTER TABLE runs ADD COLUMN rescored_from VARCHAR;
ALTER TABLE runs ADD COLUMN protocol VARCHAR;
ALTER TABLE rollouts ADD COLUMN finish_reason VARCHAR;
ALTER TABLE rollouts ADD COLUMN model_ms DOUBLE;
ALTER TABLE runs ADD COLUMN reward_examples BIGINT;
ALTER TABLE runs ADD COLUMN lowest_reward DOUBLE;
ALTER TABLE runs ADD COLUMN highest_reward DOUBLE;
ALTER TABLE rollouts ADD COLUMN cached_calls BIGINT;
