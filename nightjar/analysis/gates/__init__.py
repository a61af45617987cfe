"""Gates: a policy, the evidence on each benchmark, and the verdict on whether a candidate may replace its baseline."""
