-- Spending by month and model, over all attempts including failed attempts.
--
-- The column spent is in the currency of the prices. A run without a price adds nothing to it; unpriced_runs counts
-- such runs.
--
-- $env environment = NULL: only this environment
-- $months integer = 12: number of months, including the current month
SELECT
    strftime(started_at, '%Y-%m') AS month,
    model,
    count(*) AS runs,
    sum(attempts)::BIGINT AS attempts,
    sum(input_tokens)::BIGINT AS input_tokens,
    sum(output_tokens)::BIGINT AS output_tokens,
    sum(cost) AS spent,
    count(*) FILTER (cost IS NULL) AS unpriced_runs
FROM cost
WHERE ($env IS NULL OR env_id = $env)
    AND started_at >= date_trunc('month', now()) - to_months($months - 1)
GROUP BY month, model
ORDER BY month DESC, spent DESC NULLS LAST, output_tokens DESC, model
