-- The schema "segments" holds what was published, as tables or as views over files: runs, rollouts, attempts, examples
-- (several copies of a content are possible), prices, nights, comparisons, gate_decisions and notes.

CREATE OR REPLACE VIEW prices AS FROM segments.prices;

-- Returns when a run began. If this is unknown, it returns the first later time that is known.
CREATE OR REPLACE MACRO began(started_at, finished_at, published_at) AS coalesce(started_at, finished_at, published_at);

-- The id of the run that a part belongs to; NULL for a whole run. Parts exist until they are joined.
CREATE OR REPLACE MACRO part_of(run_id) AS
    nullif(regexp_extract(run_id, '^([\w-]+)\.part-[1-9]\d*-of-[1-9]\d*$', 1), '');

-- Returns whether a run counts as a result; parts do not.
CREATE OR REPLACE MACRO is_finished(status, run_id) AS
    status IN ('completed', 'incomplete') AND part_of(run_id) IS NULL;

-- Returns the cost of tokens, given the prices of a million tokens.
CREATE OR REPLACE MACRO token_cost(input_tokens, output_tokens, input_price, output_price) AS
    (input_tokens * input_price + output_tokens * output_price) / 1e6;

CREATE OR REPLACE VIEW runs AS
SELECT
    runs.* EXCLUDE (metadata, config),
    part_of(runs.run_id) AS part_of,
    CASE
        WHEN runs.rescored_from IS NULL
        THEN token_cost(runs.input_tokens, runs.output_tokens, prices.input, prices.output)
        ELSE 0
    END AS cost,
    metadata,
    config
FROM segments.runs AS runs
ASOF LEFT JOIN segments.prices AS prices
    ON runs.model = prices.model AND began(runs.started_at, runs.finished_at, runs.published_at) >= prices.since;

-- LATERAL reads only the contents of the selected rollouts; a join would read all contents. Nothing may be computed
-- above it, or DuckDB applies the condition on rollouts too late.
CREATE OR REPLACE VIEW rollouts AS
SELECT
    rollouts.* EXCLUDE (content_id, finish_reason, model_ms, cached_calls, completion, trajectory, state),
    contents.*,
    rollouts.finish_reason,
    outcome_of(rollouts.error, rollouts.error_chain, rollouts.stop_condition, rollouts.is_truncated) AS outcome,
    rollouts.model_ms,
    rollouts.cached_calls,
    rollouts.completion,
    rollouts.trajectory,
    rollouts.state
FROM segments.rollouts AS rollouts
LEFT JOIN LATERAL (
    SELECT
        any_value(task) AS task,
        any_value(prompt) AS prompt,
        any_value(answer) AS answer,
        any_value(info) AS info,
        any_value(tool_defs) AS tool_defs
    FROM segments.examples
    WHERE examples.content_id = rollouts.content_id
) AS contents ON true;

CREATE OR REPLACE VIEW attempts AS FROM segments.attempts;

-- One row per hash, from the content with the smallest id; every content without a hash is a row of its own.
CREATE OR REPLACE VIEW examples AS
SELECT
    example_hash,
    arg_min_null(task, content_id) AS task,
    arg_min_null(prompt, content_id) AS prompt,
    arg_min_null(answer, content_id) AS answer,
    arg_min_null(info, content_id) AS info,
    arg_min_null(tool_defs, content_id) AS tool_defs
FROM segments.examples
GROUP BY example_hash, CASE WHEN example_hash IS NULL THEN content_id END;

CREATE OR REPLACE VIEW metrics AS
SELECT
    run_id,
    example_id,
    rollout_index,
    unnest(map_keys(metrics)) AS name,
    unnest(map_values(metrics)) AS value
FROM segments.rollouts;

CREATE OR REPLACE VIEW errors AS
SELECT
    run_id,
    example_id,
    rollout_index,
    error_phase AS phase,
    error,
    error_message AS message,
    error_chain AS chain,
    error_traceback AS traceback
FROM segments.rollouts
WHERE error IS NOT NULL;

-- Which finished runs can represent their model. The scored examples of a run are compared with those of the runs of the
-- same environment and model within ten days. So a quick -n 5, or a night with many failures, does not replace a full
-- run, and a nightly run that was made smaller for good counts after ten days.
CREATE OR REPLACE VIEW finished_runs AS
SELECT
    env_id, model, env_args, extra_env_kwargs, sampling_args, run_id, num_examples, coverage,
    began(started_at, finished_at, published_at) AS began,
    coalesce(num_examples, 0) * coalesce(coverage, 0) AS scored_examples,
    scored_examples > 0.5 * max(scored_examples) OVER near AS is_full,
    NOT has_low_coverage(coverage) OR bool_and(has_low_coverage(coverage)) OVER near AS is_sound
FROM segments.runs
WHERE is_finished(status, run_id)
WINDOW near AS (
    PARTITION BY env_id, model
    ORDER BY began(started_at, finished_at, published_at)
    RANGE BETWEEN INTERVAL 10 DAYS PRECEDING AND INTERVAL 10 DAYS FOLLOWING
);

CREATE OR REPLACE VIEW leaderboard AS
SELECT
    env_id, model, avg_reward, stderr, scored, coverage, status, started_at, run_id,
    num_examples, env_args, sampling_args, dataset_fingerprint, has_low_coverage(coverage) AS has_low_coverage
FROM runs
SEMI JOIN (
    SELECT run_id
    FROM finished_runs
    QUALIFY row_number() OVER (
        PARTITION BY env_id, model ORDER BY is_full DESC, is_sound DESC, began DESC, run_id
    ) = 1
) USING (run_id)
ORDER BY env_id, avg_reward DESC NULLS LAST, model;

-- The settings in which comparable runs agree, besides env_id and model; those stay separate so that filters on them
-- reach the files.
CREATE OR REPLACE MACRO settings(env_args, extra_env_kwargs, sampling_args) AS
    struct_pack(env_args := env_args, extra_env_kwargs := extra_env_kwargs, sampling_args := sampling_args);

CREATE OR REPLACE VIEW history AS
SELECT
    env_id,
    model,
    started_at,
    avg_reward,
    stderr,
    CASE WHEN dataset_fingerprint IS NOT NULL THEN avg_reward - lag(avg_reward) OVER comparable END AS change,
    scored,
    failed,
    coverage,
    cost,
    env_version,
    env_hash,
    dense_rank() OVER (ORDER BY env_id, model, settings(env_args, extra_env_kwargs, sampling_args)) AS configuration,
    run_id
FROM runs
WHERE is_finished(status, run_id)
WINDOW comparable AS (
    PARTITION BY env_id, model, settings(env_args, extra_env_kwargs, sampling_args), dataset_fingerprint
    ORDER BY began(started_at, finished_at, published_at), run_id
)
ORDER BY env_id, model, configuration, began(started_at, finished_at, published_at), run_id;

-- The probability that k draws without replacement from n all fall among c; a product of factors does not overflow.
CREATE OR REPLACE MACRO all_among(c, n, k) AS
    CASE WHEN k > c THEN 0 ELSE list_product(list_transform(range(k), lambda i: (c - i) / (n - i))) END;

CREATE OR REPLACE VIEW pass_at_k AS
WITH groups AS (
    SELECT
        env_id, runs.model, run_id, started_at, rollouts_per_example, example_id,
        count(reward) AS n,
        count(*) FILTER (correct) AS c
    FROM segments.runs AS runs
    JOIN segments.rollouts USING (run_id)
    GROUP BY env_id, runs.model, run_id, started_at, rollouts_per_example, example_id
),
outcomes AS (
    SELECT env_id, model, run_id, started_at, n, c, count(*) AS examples
    FROM groups
    WHERE n = rollouts_per_example
    GROUP BY env_id, model, run_id, started_at, n, c
),
curve AS (
    SELECT *, unnest(list_filter([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], lambda k: k <= n)) AS k
    FROM outcomes
)
SELECT
    env_id,
    model,
    run_id,
    started_at,
    k,
    sum(examples * (1 - all_among(n - c, n, k))) / sum(examples) AS pass_at_k,
    sum(examples * all_among(c, n, k)) / sum(examples) AS pass_all_k,
    sum(examples)::BIGINT AS examples
FROM curve
GROUP BY env_id, model, run_id, started_at, k
ORDER BY env_id, model, started_at, run_id, k;

CREATE OR REPLACE VIEW example_rewards AS
SELECT
    run_id,
    example_id,
    any_value(example_hash) AS example_hash,
    avg(reward) AS avg_reward,
    count(*) - count(error) AS scored,
    count(error) AS failed
FROM segments.rollouts
GROUP BY run_id, example_id
ORDER BY run_id, example_id;

COMMENT ON VIEW runs IS 'a run: one environment, one model, one configuration';
COMMENT ON COLUMN runs.version IS 'version of the published content; a newer version replaces an older one';
COMMENT ON COLUMN runs.rollouts IS 'number of requested rollouts; the number of existing rollouts is scored + failed';
COMMENT ON COLUMN runs.coverage IS 'scored / rollouts';
COMMENT ON COLUMN runs.avg_reward IS 'mean over scored rollouts; NULL if no rollout is scored';
COMMENT ON COLUMN runs.scoring_hash IS 'SHA-256 of the scoring code: environment, rubric, reward functions, parser';
COMMENT ON COLUMN runs.rescored_from IS 'the run whose rollouts this run scored again; NULL for a run that is not rescored';
COMMENT ON COLUMN runs.part_of IS 'the run that this part belongs to, until all parts are joined; NULL for a whole run';
COMMENT ON COLUMN runs.reward_examples IS 'number of examples with a scored rollout; NULL if an earlier version published the run';
COMMENT ON COLUMN runs.lowest_reward IS 'lowest reward of a rollout; NULL as for reward_examples';
COMMENT ON COLUMN runs.highest_reward IS 'highest reward of a rollout; NULL as for reward_examples';
COMMENT ON COLUMN runs.cost IS 'cost of the recorded rollouts, in the currency of prices; NULL if there is no price, 0 for a rescored run';
COMMENT ON COLUMN runs.metadata IS 'the whole metadata.json';
COMMENT ON COLUMN runs.config IS 'the whole config.json';
COMMENT ON COLUMN runs.protocol IS 'protocol of the endpoint, such as openai_chat_completions; NULL for runs of other programs';
COMMENT ON VIEW rollouts IS 'the final record of each rollout: one row per run, example and rollout_index';
COMMENT ON COLUMN rollouts.finish_reason IS 'finish reason of the last model call, as the endpoint returned it';
COMMENT ON COLUMN rollouts.outcome IS 'scored, truncated, timed_out, content_filtered, empty or failed';
COMMENT ON COLUMN rollouts.model_ms IS 'time in model calls including retries; NULL if unknown';
COMMENT ON COLUMN rollouts.cached_calls IS 'model calls that the cache answered; NULL if unknown';
COMMENT ON COLUMN rollouts.reward IS 'weighted sum of the metrics; NULL for a failed rollout, never 0';
COMMENT ON COLUMN rollouts.correct IS 'whether the reward is at least the pass_threshold of the run';
COMMENT ON COLUMN rollouts.metrics IS 'score of each metric; NULL for a NaN or infinite score';
COMMENT ON COLUMN rollouts.error IS 'class of the error; NULL if the rollout did not fail';
COMMENT ON COLUMN rollouts.model IS 'the model name that the server returned';
COMMENT ON COLUMN rollouts.task IS 'a name, or JSON text if the environment gives an object';
COMMENT ON COLUMN rollouts.trajectory IS 'the model calls, as recorded in attempts.jsonl';
COMMENT ON COLUMN rollouts.state IS 'values of the state that --state-columns selects';
COMMENT ON VIEW attempts IS 'every attempt at a rollout, including failed attempts, as recorded in attempts.jsonl';
COMMENT ON VIEW examples IS 'the distinct contents of examples';
COMMENT ON VIEW prices IS 'prices of a million tokens of a model from a date on; see nightjar warehouse prices';
COMMENT ON VIEW metrics IS 'the named components of a rollout''s reward, one per row';
COMMENT ON COLUMN metrics.value IS 'NULL if the score was NaN or infinite';
COMMENT ON VIEW errors IS 'the error of each failed rollout';
COMMENT ON COLUMN errors.phase IS 'phase in which the rollout failed: generation or scoring';
COMMENT ON VIEW finished_runs IS 'the finished runs, and whether each can represent its model';
COMMENT ON COLUMN finished_runs.is_full IS 'whether the run has scored more than half as many examples as the largest run within ten days';
COMMENT ON COLUMN finished_runs.is_sound IS 'whether at least 95 % of the rollouts are scored, or no run within ten days reaches 95 %';
COMMENT ON VIEW leaderboard IS 'for every environment and model, the newest run that can represent the model';
COMMENT ON COLUMN leaderboard.has_low_coverage IS 'whether less than 95 % of the planned rollouts are scored; such a run is not ranked';
COMMENT ON VIEW history IS 'the finished runs in order of time';
COMMENT ON COLUMN history.change IS 'difference of avg_reward from the previous run of the same configuration and dataset';
COMMENT ON VIEW pass_at_k IS 'pass@k and pass^k of every run, over the examples whose rollouts are all scored';
COMMENT ON VIEW example_rewards IS 'the mean reward of each example of a run';
