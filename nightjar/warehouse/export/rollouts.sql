-- Rollouts in the shape of results.jsonl (docs/run-directory.md), each with the run that it is of.
SELECT
    run_id,
    example_id,
    rollout_index,
    example_hash,
    task,
    prompt,
    completion,
    answer,
    info,
    reward,
    advantage,
    coalesce(metrics, MAP {}) AS metrics,
    CASE WHEN error IS NOT NULL THEN {
        'error': error,
        'message': error_message,
        'phase': error_phase,
        'error_chain_repr': error_chain,
        'traceback': error_traceback
    } END AS error,
    {'generation_ms': generation_ms, 'scoring_ms': scoring_ms, 'total_ms': total_ms} AS timing,
    is_completed,
    is_truncated,
    stop_condition,
    CASE WHEN coalesce(input_tokens, output_tokens) IS NOT NULL THEN {
        'input_tokens': input_tokens,
        'output_tokens': output_tokens
    } END AS token_usage,
    attempts,
    model,
    tool_defs,
    trajectory,
    state
FROM rollouts
