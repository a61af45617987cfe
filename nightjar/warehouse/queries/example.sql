-- One example in full: what was asked, and what every model answered in its newest large run.
--
-- $env: environment
-- $example: its example_id, or 8 and more characters that its example_hash begins with
WITH chosen AS (
    SELECT chosen.model AS asked_model, rollouts.*
    FROM rollouts
    JOIN leaderboard AS chosen USING (run_id)
    WHERE chosen.env_id = $env
        AND (
            rollouts.example_id::VARCHAR = $example
            OR (length($example) >= 8 AND starts_with(rollouts.example_hash, $example))
        )
)
SELECT
    asked_model AS model,
    example_id,
    rollout_index,
    reward,
    error,
    answer,
    coalesce(
        array_to_string(
            [
                concat(m ->> 'role', ': ', coalesce(m ->> 'content', m ->> 'tool_calls'))
                FOR m IN json_extract(prompt, '$[*]')
            ],
            chr(10)
        ),
        prompt ->> '$'
    ) AS prompt,
    coalesce(
        array_to_string(
            [
                concat(m ->> 'role', ': ', coalesce(m ->> 'content', m ->> 'tool_calls'))
                FOR m IN json_extract(completion, '$[*]')
            ],
            chr(10)
        ),
        completion ->> '$'
    ) AS completion,
    run_id
FROM chosen
ORDER BY asked_model, example_id, rollout_index
