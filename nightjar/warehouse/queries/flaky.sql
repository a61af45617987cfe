-- Examples that a model gets right only sometimes, over its newest rollouts of each example.
--
-- $env environment: environment
-- $model model = NULL: only this model
-- $rollouts integer = 8: number of the newest rollouts of each example that count
-- $limit integer = 20: maximum number of rows
WITH newest AS (
    SELECT runs.model, rollouts.example_hash, rollouts.example_id, rollouts.correct
    FROM rollouts
    JOIN runs USING (run_id)
    WHERE runs.env_id = $env AND ($model IS NULL OR runs.model = $model) AND rollouts.correct IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY runs.model, rollouts.example_hash
        ORDER BY runs.started_at DESC NULLS LAST, run_id, rollouts.rollout_index DESC
    ) <= $rollouts
)
SELECT
    model,
    any_value(example_id) AS example_id,
    count(*) AS rollouts,
    count(*) FILTER (correct) AS correct,
    avg(correct::INTEGER) AS share,
    example_hash
FROM newest
GROUP BY model, example_hash
HAVING bool_or(correct) AND NOT bool_and(correct)
ORDER BY abs(share - 0.5), rollouts DESC, model, example_id
LIMIT $limit
