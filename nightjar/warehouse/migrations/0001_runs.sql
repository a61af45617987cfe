-- What a published run leaves: one row per run, per rollout, per metric of a rollout and per failure.
-- There are no keys or indexes (they double the time of a publish): publishing deletes and inserts
-- a run's rows in one transaction, and that is what makes them unique.

CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    status VARCHAR,
    env_id VARCHAR,
    env_version VARCHAR,
    env_args JSON,
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
    version_info JSON,
    flow_run_id VARCHAR,
    run_dir VARCHAR,
    published_at TIMESTAMPTZ,
    metadata JSON
);

CREATE TABLE rollouts (
    run_id VARCHAR NOT NULL,
    example_id BIGINT NOT NULL,
    rollout_index INTEGER NOT NULL,
    example_hash VARCHAR,
    reward DOUBLE,
    advantage DOUBLE,
    is_completed BOOLEAN,
    is_truncated BOOLEAN,
    stop_condition VARCHAR,
    error VARCHAR,
    error_chain VARCHAR,
    input_tokens BIGINT,
    output_tokens BIGINT,
    generation_ms DOUBLE,
    scoring_ms DOUBLE,
    total_ms DOUBLE,
    attempts INTEGER,
    model VARCHAR,
    task VARCHAR,
    answer VARCHAR,
    prompt JSON,
    completion JSON,
    info JSON,
    tool_defs JSON,
    state JSON
);

CREATE TABLE metrics (
    run_id VARCHAR NOT NULL,
    example_id BIGINT NOT NULL,
    rollout_index INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    value DOUBLE
);

CREATE TABLE errors (
    run_id VARCHAR NOT NULL,
    example_id BIGINT NOT NULL,
    rollout_index INTEGER NOT NULL,
    phase VARCHAR,
    error VARCHAR,
    message VARCHAR,
    chain VARCHAR,
    traceback VARCHAR
);

COMMENT ON TABLE runs IS 'a run: one environment, one model, one configuration';
COMMENT ON COLUMN runs.rollouts IS 'asked for; those there are: scored + failed';
COMMENT ON COLUMN runs.coverage IS 'scored / rollouts';
COMMENT ON COLUMN runs.avg_reward IS 'mean over scored rollouts; NULL when there are none';
COMMENT ON COLUMN runs.metadata IS 'metadata.json as a whole';

COMMENT ON TABLE rollouts IS 'an attempt of a model at an example';
COMMENT ON COLUMN rollouts.reward IS 'NULL for a failed rollout, never 0';
COMMENT ON COLUMN rollouts.error IS 'class of the failure; NULL when there is none';
COMMENT ON COLUMN rollouts.model IS 'the name that the server answered with';
COMMENT ON COLUMN rollouts.task IS 'a name, or JSON text where the environment gives an object';
COMMENT ON COLUMN rollouts.state IS 'the columns of --state-columns';

COMMENT ON TABLE metrics IS 'a named component of a rollout''s reward';
COMMENT ON COLUMN metrics.value IS 'NULL where the score was NaN or infinite';

COMMENT ON TABLE errors IS 'why a rollout failed';
COMMENT ON COLUMN errors.phase IS 'generation or scoring';
