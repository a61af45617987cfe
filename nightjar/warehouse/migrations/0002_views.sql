-- The two questions that are asked first: who leads, and which examples are hard.

CREATE VIEW leaderboard AS
SELECT
    env_id, model, avg_reward, stderr, scored, coverage, status, started_at, run_id
FROM runs
WHERE status IN ('completed', 'incomplete')
QUALIFY row_number() OVER (
    PARTITION BY env_id, model ORDER BY started_at DESC NULLS LAST, published_at DESC, run_id
) = 1
ORDER BY env_id, avg_reward DESC NULLS LAST, model;

CREATE VIEW example_rewards AS
SELECT
    run_id,
    example_id,
    any_value(example_hash) AS example_hash,
    avg(reward) AS avg_reward,
    count(*) - count(error) AS scored,
    count(error) AS failed
FROM rollouts
GROUP BY run_id, example_id
ORDER BY run_id, example_id;

COMMENT ON VIEW leaderboard IS 'the newest finished run of every environment and model';
COMMENT ON VIEW example_rewards IS 'the mean reward of every example of a run';
