-- One example in full: the question, and the answers of every model in its newest full run.
--
-- Shown in full.
--
-- $env environment: environment
-- $example: the example_id, or at least the first 8 characters of the example_hash
WITH chosen AS (
    SELECT chosen.model AS asked_model, rollouts.*
    FROM rollouts
    JOIN leaderboard AS chosen USING (run_id)
    WHERE chosen.env_id = $env
        AND (
            rollouts.example_id::VARCHAR = $example
            OR (length($example) >= 8 AND starts_with(rollouts.example_hash, $example))
        )
),
texts AS (
    SELECT
        *,
        list_transform(
            [prompt, completion],
            lambda messages: coalesce(
                nullif(array_to_string([
                    concat(m ->> 'role', ': ', concat_ws(
                        chr(10),
                        'thinks: ' || (m ->> 'reasoning_content'),
                        CASE json_type(m, '$.content')
                            WHEN 'ARRAY' THEN array_to_string([
                                coalesce(part ->> 'text', part ->> 'type') FOR part IN json_extract(m, '$.content[*]')
                            ], ' ')
                            ELSE m ->> 'content'
                        END,
                        nullif(array_to_string([
                            coalesce(
                                'calls ' || (call ->> 'name') || '(' || (call ->> 'arguments') || ')',
                                call ->> '$'
                            )
                            FOR call IN json_extract(m, '$.tool_calls[*]')
                        ], chr(10)), '')
                    ))
                    FOR m IN json_extract(messages, '$[*]')
                ], chr(10)), ''),
                messages ->> '$'
            )
        ) AS written
    FROM chosen
)
SELECT
    asked_model AS model,
    example_id,
    rollout_index,
    reward,
    error,
    answer,
    written[1] AS prompt,
    written[2] AS completion,
    run_id
FROM texts
ORDER BY asked_model, example_id, rollout_index
