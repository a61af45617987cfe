-- The hardest examples of an environment: those with the lowest mean reward over the newest full run of every model.
--
-- $env environment: environment
-- $model model = NULL: only this model
-- $limit integer = 20: maximum number of rows
WITH newest AS (
    SELECT run_id
    FROM leaderboard
    WHERE env_id = $env AND ($model IS NULL OR model = $model)
),
hardest AS (
    SELECT
        any_value(example_id) AS example_id,
        avg(reward) AS avg_reward,
        count(reward) AS rollouts,
        count(DISTINCT run_id) AS models,
        count(DISTINCT run_id) FILTER (correct) AS solved_by,
        example_hash
    FROM rollouts
    SEMI JOIN newest USING (run_id)
    WHERE reward IS NOT NULL
    GROUP BY example_hash
    ORDER BY avg_reward, solved_by, models DESC, example_id
    LIMIT $limit
)
SELECT
    hardest.* EXCLUDE (example_hash),
    examples.answer,
    coalesce(examples.prompt ->> '$[#-1].content', examples.prompt ->> '$') AS question
FROM hardest
LEFT JOIN examples USING (example_hash)
ORDER BY avg_reward, solved_by, models DESC, example_id
