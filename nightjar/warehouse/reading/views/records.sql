CREATE OR REPLACE VIEW night_evaluations AS
WITH reported AS (
    SELECT
        night ->> 'suite' AS suite,
        (night ->> 'night')::DATE AS night,
        unnest(json_transform(night -> 'evaluations', '[{
            "name": "VARCHAR", "change": "VARCHAR", "env_id": "VARCHAR", "model": "VARCHAR", "run_id": "VARCHAR",
            "status": "VARCHAR", "scored": "BIGINT", "rollouts": "BIGINT", "avg_reward": "DOUBLE", "stderr": "DOUBLE",
            "cost": "DOUBLE", "errors": "MAP(VARCHAR, BIGINT)", "reason": "VARCHAR", "against_night": "DATE", "against_run": "VARCHAR",
            "against_nights": "BIGINT", "pairs": "BIGINT", "unpaired": "BIGINT", "difference": "DOUBLE", "difference_stderr": "DOUBLE",
            "p_worse": "DOUBLE", "differs": ["VARCHAR"], "flow_run_id": "VARCHAR",
            "num_examples": "BIGINT", "reward_examples": "BIGINT", "lowest_reward": "DOUBLE", "highest_reward": "DOUBLE"
        }]'), recursive := true)
    FROM segments.nights
)
FROM reported
ORDER BY suite, night, name;

CREATE OR REPLACE VIEW nights AS
SELECT
    night ->> 'suite' AS suite,
    (night ->> 'night')::DATE AS night,
    night ->> 'verdict' AS verdict,
    night ->> 'line' AS line,
    (night ->> 'is_accepted_by_hand')::BOOLEAN AS is_accepted_by_hand,
    (night ->> 'began_at')::TIMESTAMPTZ AS began_at,
    (night ->> 'ended_at')::TIMESTAMPTZ AS ended_at,
    json_array_length(night, 'evaluations') AS evaluations,
    list_sum((night -> '$.evaluations[*].cost')::DOUBLE[]) AS cost,
    night ->> 'flow_run_id' AS flow_run_id
FROM segments.nights
ORDER BY suite, night;

CREATE OR REPLACE VIEW gate_decisions AS
SELECT unnest(json_transform(decision, '{
    "gate_id": "VARCHAR", "made_at": "TIMESTAMPTZ", "verdict": "VARCHAR", "reason": "VARCHAR", "suite": "VARCHAR",
    "night": "DATE", "baseline": "VARCHAR", "candidate": "VARCHAR", "policy": "VARCHAR", "policy_sha256": "VARCHAR",
    "alpha": "DOUBLE", "level": "DOUBLE", "correction": "VARCHAR", "min_pairs": "BIGINT", "benchmarks": "BIGINT",
    "breached": ["VARCHAR"], "undecided": ["VARCHAR"]
}'))
FROM segments.gate_decisions
ORDER BY ALL;

CREATE OR REPLACE VIEW comparisons AS
SELECT unnest(json_transform(comparison, '{
    "comparison_id": "VARCHAR", "gate_id": "VARCHAR", "made_at": "TIMESTAMPTZ", "benchmark": "VARCHAR",
    "tier": "VARCHAR", "decision": "VARCHAR", "reason": "VARCHAR", "metric": "VARCHAR", "direction": "VARCHAR",
    "margin": "DOUBLE", "difference": "DOUBLE", "stderr": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE",
    "alpha": "DOUBLE", "method": "VARCHAR", "seed": "BIGINT", "p": "DOUBLE", "p_adjusted": "DOUBLE",
    "p_sign_flips": "DOUBLE", "nights": "BIGINT", "pairs": "BIGINT", "clusters": "BIGINT", "pairs_needed": "BIGINT",
    "baseline_mean": "DOUBLE", "candidate_mean": "DOUBLE", "baseline_coverage": "DOUBLE",
    "candidate_coverage": "DOUBLE", "baseline_runs": ["VARCHAR"], "candidate_runs": ["VARCHAR"]
}'))
FROM segments.comparisons
ORDER BY ALL;

-- A note is outdated if the rollout was repeated after the note was written.
CREATE OR REPLACE VIEW notes AS
WITH written AS (
    SELECT unnest(json_transform(note, '{
        "note_id": "VARCHAR", "written_at": "TIMESTAMPTZ", "author": "VARCHAR", "mark": "VARCHAR", "comment": "VARCHAR",
        "overruled_reward": "DOUBLE", "run_id": "VARCHAR", "example_id": "BIGINT", "rollout_index": "INTEGER"
    }'))
    FROM segments.notes
    WHERE NOT (note ->> 'is_withdrawn')::BOOLEAN
),
done AS (
    SELECT run_id, example_id, rollout_index, max(finished_at) AS finished_at
    FROM segments.attempts
    SEMI JOIN written USING (run_id, example_id, rollout_index)
    GROUP BY ALL
)
SELECT written.*, coalesce(done.finished_at > written.written_at, false) AS is_outdated
FROM written
LEFT JOIN done USING (run_id, example_id, rollout_index)
ORDER BY ALL;

-- If several notes of any authors propose a reward, the newest note counts. A note that agrees with the recorded reward
-- overrules nothing; a note that proposes a reward for a failed rollout overrules it.
CREATE OR REPLACE VIEW overruled_rollouts AS
WITH said AS (
    SELECT run_id, example_id, rollout_index, arg_max(overruled_reward, written_at) AS overruled_reward
    FROM notes
    WHERE overruled_reward IS NOT NULL AND NOT is_outdated
    GROUP BY ALL
)
SELECT run_id, example_id, rollout_index, example_hash, reward, overruled_reward
FROM segments.rollouts
JOIN said USING (run_id, example_id, rollout_index)
WHERE reward IS DISTINCT FROM overruled_reward
ORDER BY ALL;

CREATE OR REPLACE VIEW overruled_runs AS
SELECT
    runs.env_id,
    runs.model,
    runs.avg_reward,
    avg(coalesce(overruled.overruled_reward, rollouts.reward)) AS overruled_avg_reward,
    count(overruled.overruled_reward) AS overruled,
    runs.scored,
    count(coalesce(overruled.overruled_reward, rollouts.reward)) AS overruled_scored,
    run_id
FROM segments.runs AS runs
JOIN segments.rollouts USING (run_id)
LEFT JOIN overruled_rollouts AS overruled USING (run_id, example_id, rollout_index)
WHERE run_id IN (SELECT run_id FROM overruled_rollouts)
GROUP BY ALL
ORDER BY ALL;

COMMENT ON VIEW gate_decisions IS 'decisions of nightjar gate; the rows of comparisons with the same gate_id are the benchmarks of a decision';
COMMENT ON COLUMN gate_decisions.verdict IS 'GO, NO-GO or INCONCLUSIVE';
COMMENT ON COLUMN gate_decisions.level IS 'accepted one-sided probability of at least one false breach';
COMMENT ON VIEW comparisons IS 'comparisons of runs that nightjar gate or nightjar compare --record has recorded';
COMMENT ON COLUMN comparisons.decision IS 'PASS, BREACH, INSUFFICIENT or MISSING in a gate; otherwise PASS, REGRESSION or INCONCLUSIVE';
COMMENT ON COLUMN comparisons.margin IS 'how much worse than the baseline the candidate may be';
COMMENT ON COLUMN comparisons.difference IS 'mean over the pairs of candidate minus baseline; its interval at 1 - alpha is low to high';
COMMENT ON COLUMN comparisons.p IS 'probability of such a large loss if the true loss is the margin; p_adjusted is corrected for all benchmarks';
COMMENT ON COLUMN comparisons.p_sign_flips IS 'probability of such a bad difference if nothing changed, by sign flips with the seed of this row';
COMMENT ON COLUMN comparisons.nights IS 'number of nights that together show a breach most clearly; NULL if no nights were tested';
COMMENT ON VIEW notes IS 'notes on rollouts, written in nightjar view; rollouts.reward keeps the recorded value';
COMMENT ON COLUMN notes.mark IS 'wrong grade, bad question or interesting';
COMMENT ON COLUMN notes.overruled_reward IS 'the reward that the author proposes; NULL if the author proposes none';
COMMENT ON COLUMN notes.is_outdated IS 'whether the rollout was repeated after the note was written';
COMMENT ON VIEW overruled_rollouts IS 'rollouts whose newest current note proposes another reward than the recorded one';
COMMENT ON VIEW overruled_runs IS 'runs with overruled rollouts: their recorded means and the means with the proposed rewards';
COMMENT ON COLUMN overruled_runs.overruled_avg_reward IS 'mean with the rewards that notes propose; avg_reward is the recorded mean';
COMMENT ON COLUMN overruled_runs.overruled IS 'number of overruled rollouts';
COMMENT ON VIEW nights IS 'one night of a suite, with its verdict; see nightjar nights';
COMMENT ON COLUMN nights.verdict IS 'accepted, worse, incomplete, skipped or running';
COMMENT ON VIEW night_evaluations IS 'an evaluation of a night, compared with the accepted nights before this night';
COMMENT ON COLUMN night_evaluations.change IS 'same, worse, better, new or missing';
COMMENT ON COLUMN night_evaluations.difference IS 'mean over the pairs of the reward of this run minus the reward of the accepted nights';
COMMENT ON COLUMN night_evaluations.p_worse IS 'probability of such a low difference if nothing changed';
COMMENT ON COLUMN night_evaluations.differs IS 'settings in which the runs differ, such as dataset';
