-- Which examples changed between two runs: 'broken' was right in a and is wrong in b, 'fixed' the reverse.
--
-- $a run: run_id of the run before
-- $b run: run_id of the run after
SELECT flip, example_id, correct_a, correct_b, reward_a, reward_b, example_hash
FROM flips($a, $b)
ORDER BY flip, example_id
