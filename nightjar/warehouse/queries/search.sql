-- Completions that contain a text, the newest runs first; capitals do not matter.
--
-- $text: what to look for
-- $env = NULL: only this environment
-- $model = NULL: only this model
-- $limit integer = 20: rows
WITH found AS (
    SELECT
        runs.env_id,
        runs.model,
        rollouts.example_id,
        rollouts.rollout_index,
        rollouts.reward,
        rollouts.completion,
        runs.started_at,
        run_id
    FROM rollouts
    JOIN runs USING (run_id)
    WHERE regexp_matches(rollouts.completion, regexp_escape((to_json($text)::VARCHAR)[2:-2]), 'i')
        AND ($env IS NULL OR runs.env_id = $env)
        AND ($model IS NULL OR runs.model = $model)
    ORDER BY runs.started_at DESC NULLS LAST, run_id, rollouts.example_id, rollouts.rollout_index
    LIMIT $limit
)
SELECT
    env_id,
    model,
    example_id,
    rollout_index,
    reward,
    regexp_extract(
        completion, '.{0,40}' || regexp_escape((to_json($text)::VARCHAR)[2:-2]) || '.{0,40}', 0, 'is'
    ) AS passage,
    run_id
FROM found
ORDER BY started_at DESC NULLS LAST, run_id, example_id, rollout_index
