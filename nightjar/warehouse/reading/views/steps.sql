CREATE OR REPLACE VIEW cost AS
WITH paid AS (
    SELECT
        run_id,
        count(*) AS attempts,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(output_tokens)::BIGINT AS output_tokens
    FROM segments.attempts
    GROUP BY run_id
)
SELECT
    runs.env_id,
    runs.model,
    runs.started_at,
    runs.scored,
    paid.attempts,
    coalesce(paid.input_tokens, runs.input_tokens) AS input_tokens,
    coalesce(paid.output_tokens, runs.output_tokens) AS output_tokens,
    token_cost(
        coalesce(paid.input_tokens, runs.input_tokens), coalesce(paid.output_tokens, runs.output_tokens),
        prices.input, prices.output
    ) AS cost,
    runs.run_id
FROM segments.runs AS runs
LEFT JOIN paid USING (run_id)
ASOF LEFT JOIN segments.prices AS prices
    ON runs.model = prices.model AND began(runs.started_at, runs.finished_at, runs.published_at) >= prices.since
WHERE runs.rescored_from IS NULL
ORDER BY runs.started_at DESC NULLS LAST, runs.run_id;

CREATE OR REPLACE VIEW retries AS
WITH failures AS (
    SELECT
        run_id,
        coalesce(error_chain, error) AS error,
        count(*) AS attempts,
        count(DISTINCT (example_id, rollout_index)) AS rollouts,
        sum(generation_ms) / 1000 AS seconds,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(output_tokens)::BIGINT AS output_tokens
    FROM segments.attempts
    WHERE error IS NOT NULL
    GROUP BY ALL
)
SELECT env_id, model, started_at, failures.* EXCLUDE (run_id), run_id
FROM failures
JOIN segments.runs USING (run_id)
WHERE rescored_from IS NULL
ORDER BY started_at DESC NULLS LAST, run_id, failures.attempts DESC;

-- The time and tokens of each rollout. A NeMo solver that calls the model itself reports latency and finish reason.
CREATE OR REPLACE VIEW steps AS
WITH reported AS (
    SELECT
        *,
        error IS NULL AND completion IS NOT NULL AS is_answered,
        state -> 'model_response' AS response,
        -- Only wrong answers need these two, which take as long as all the rest.
        CASE WHEN reward > 0 THEN '' ELSE coalesce(list_last(list_filter(
            (completion -> '$[*]')::JSON[], lambda message: message ->> 'role' = 'assistant'
        )) ->> 'content', '') END AS said,
        CASE WHEN reward > 0 THEN false
            ELSE (json_exists(state, '$.extracted_answer') OR json_exists(state, '$.parsed_answer'))
                AND coalesce(state ->> 'extracted_answer', state ->> 'parsed_answer') IS NULL
        END AS lacks_answer,
        TRY_CAST(trajectory -> '$[*].response.usage.reasoning_tokens' AS BIGINT[]) AS thought
    FROM segments.rollouts
)
SELECT
    run_id,
    example_id,
    rollout_index,
    reward,
    greatest(coalesce(attempts, 1) - 1, 0) AS retries,
    CASE WHEN is_answered THEN input_tokens END AS prompt_tokens,
    CASE WHEN is_answered THEN output_tokens END AS completion_tokens,
    CASE WHEN is_answered THEN coalesce((response ->> 'reasoning_tokens')::BIGINT, list_sum(thought)) END AS reasoning_tokens,
    CASE
        WHEN is_answered THEN coalesce(nullif((response ->> 'latency_ms')::DOUBLE, 0), reported.model_ms, generation_ms)
        ELSE generation_ms
    END AS model_ms,
    scoring_ms AS verify_ms,
    total_ms,
    CASE
        WHEN is_answered THEN coalesce(response ->> 'finish_reason', reported.finish_reason)
    END AS finish_reason,
    reported.cached_calls,
    is_answered,
    CASE
        WHEN error IS NOT NULL THEN category_of_error(string_split(coalesce(error_chain, error), ' -> '))
        ELSE category_of_answer(reward, said, state ->> '$.scoring_details.error_category', stop_condition, lacks_answer)
    END AS failure_category
FROM reported;

-- The numbers of runtime_stats.json, over the rollouts with an answer.
CREATE OR REPLACE VIEW runtime_stats AS
WITH sums AS (
    SELECT
        run_id,
        count(*) AS total_steps,
        coalesce(sum(prompt_tokens), 0)::BIGINT AS total_prompt_tokens,
        coalesce(sum(completion_tokens), 0)::BIGINT AS total_completion_tokens,
        coalesce(sum(reasoning_tokens), 0)::BIGINT AS total_reasoning_tokens,
        coalesce(quantile_cont(model_ms, [0.5, 0.9, 0.99]) FILTER (is_answered), [0, 0, 0]) AS latencies_ms,
        count(*) FILTER (reward IS NULL AND is_model_error(failure_category)) AS model_errors,
        -- As an aggregate of the query, DuckDB would compute the histogram of every run, also where one is asked for.
        coalesce(list_aggregate(list(finish_reason) FILTER (finish_reason <> ''), 'histogram'), MAP {}) AS finish_reason_counts,
        coalesce(sum(cached_calls), 0)::BIGINT AS cached_calls
    FROM steps
    GROUP BY run_id
)
SELECT
    env_id,
    model,
    started_at,
    total_steps,
    total_prompt_tokens + total_completion_tokens AS total_tokens,
    total_prompt_tokens,
    total_completion_tokens,
    total_reasoning_tokens,
    coalesce(time_ms, 0) / 1000 AS elapsed_seconds,
    latencies_ms[1] AS latency_p50_ms,
    latencies_ms[2] AS latency_p90_ms,
    latencies_ms[3] AS latency_p99_ms,
    coalesce(total_tokens / nullif(elapsed_seconds, 0), 0) AS tokens_per_second,
    coalesce(total_steps / nullif(elapsed_seconds, 0), 0) AS steps_per_second,
    model_errors,
    coalesce((metadata ->> '$.requests.again')::BIGINT, 0) AS total_retries,
    finish_reason_counts,
    cached_calls,
    run_id
FROM sums
JOIN segments.runs USING (run_id)
ORDER BY started_at DESC NULLS LAST, run_id;

-- The numbers of failure_analysis.json: categories of failed and wrong rollouts, with a few examples of each.
CREATE OR REPLACE VIEW failures AS
WITH found AS (
    SELECT
        run_id,
        failure_category AS category,
        count(*) AS count,
        sum(count(*)) OVER (PARTITION BY run_id) AS steps,
        list({'example_id': example_id, 'rollout_index': rollout_index} ORDER BY example_id, rollout_index)[:3] AS exemplars
    FROM steps
    GROUP BY run_id, failure_category
)
SELECT env_id, model, started_at, category, count, count / steps AS percentage, exemplars, run_id
FROM found
JOIN segments.runs USING (run_id)
WHERE category IS NOT NULL
ORDER BY started_at DESC NULLS LAST, run_id, count DESC, category;

COMMENT ON VIEW cost IS 'tokens and cost of all attempts of a run, including failed attempts; rescored runs are left out';
COMMENT ON VIEW retries IS 'failed attempts by run and error, with their time and tokens';
COMMENT ON VIEW steps IS 'time and tokens of each rollout, and why it failed or was wrong';
COMMENT ON COLUMN steps.model_ms IS 'time in model calls; the time of the whole generation if no call was timed';
COMMENT ON COLUMN steps.verify_ms IS 'time of scoring';
COMMENT ON COLUMN steps.failure_category IS 'why the rollout failed or was wrong; NULL for a correct rollout or if no category applies';
COMMENT ON VIEW runtime_stats IS 'tokens, latency percentiles, rates and finish reasons of a run';
COMMENT ON COLUMN runtime_stats.total_retries IS 'retried requests in the last session';
COMMENT ON VIEW failures IS 'failed and wrong rollouts of a run by category';
COMMENT ON COLUMN failures.percentage IS 'share of all rollouts of the run, from 0 to 1';
