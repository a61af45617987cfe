-- Examples that changed between two runs: 'broken' is right in a and wrong in b, 'fixed' is wrong in a and right in b.
--
-- $a run: run_id of the earlier run
-- $b run: run_id of the later run
SELECT flip, example_id, correct_a, correct_b, reward_a, reward_b, example_hash
FROM flips($a, $b)
ORDER BY flip, example_id
