-- What the examples of runs ask and expect, to pair the runs of two programs. Programs put the same question into
-- different prompts, and keep different things about it.

CREATE OR REPLACE MACRO spaced(said) AS trim(regexp_replace(said, '\s+', ' ', 'g'));

CREATE OR REPLACE MACRO text_of(content) AS
    CASE WHEN json_type(content) = 'ARRAY' AND json_array_length(content) = len(content ->> '$[*].text')
        THEN array_to_string(content ->> '$[*].text', ' ')
        ELSE content ->> '$'
    END;

-- The last message of the user, without system prompts and the examples of few-shot prompts; a prompt may be one text.
CREATE OR REPLACE MACRO asked_in(prompt) AS
    CASE json_type(prompt)
        WHEN 'ARRAY' THEN text_of(
            list_filter(prompt::JSON[], lambda message: message ->> 'role' = 'user')[-1] -> 'content'
        )
        ELSE prompt ->> '$'
    END;

-- The answer after the #### of a solution, or the whole answer. Numbers have no commas.
CREATE OR REPLACE MACRO expected_in(answer) AS
    regexp_replace(
        spaced(coalesce(nullif(regexp_extract(answer, '####([^\n]+)', 1), ''), answer, '')),
        '^(-?\d{1,3}),(\d{3})(?:,(\d{3}))?(?:,(\d{3}))?(\.\d+)?$',
        '\1\2\3\4\5'
    );

-- The length of the words, each with a space, with which two texts start in common.
CREATE OR REPLACE MACRO shared_start(one, other) AS
    coalesce(list_sum(list_transform(string_split(one, ' ')[:coalesce(
        list_position(
            list_transform(
                list_zip(string_split(one, ' '), string_split(other, ' '), true), lambda words: words[1] = words[2]
            ),
            false
        ) - 1,
        len(string_split(one, ' '))
    )], lambda word: length(word) + 1)), 0)::BIGINT;

-- The examples of runs with the asked text, and with the question: the text without the words that the prompts of a run
-- have in common at the start and at the end (the lowest and the highest text in order have them in common, too).
CREATE OR REPLACE MACRO questions(run_ids) AS TABLE
WITH members AS MATERIALIZED (
    SELECT run_id, example_hash, min(example_id) AS example_id, any_value(content_id) AS content_id
    FROM segments.rollouts
    WHERE example_hash IS NOT NULL AND list_contains(run_ids::VARCHAR[], run_id)
    GROUP BY run_id, example_hash
),
contents AS (
    SELECT content_id, spaced(asked_in(any_value(prompt))) AS asked, expected_in(any_value(answer)) AS expected
    FROM segments.examples
    SEMI JOIN members USING (content_id)
    GROUP BY content_id
),
texts AS MATERIALIZED (
    SELECT run_id, example_hash, example_id, nullif(asked, '') AS asked, expected
    FROM members JOIN contents USING (content_id)
),
templates AS (
    SELECT
        run_id,
        shared_start(min(asked), max(asked)) AS before,
        shared_start(min(reverse(asked)), max(reverse(asked))) AS after
    FROM texts
    GROUP BY run_id
)
SELECT
    run_id,
    example_hash,
    example_id,
    asked,
    CASE WHEN before + after < length(asked)
        THEN substring(asked, before + 1, length(asked) - before - after)
        ELSE asked
    END AS question,
    expected
FROM texts JOIN templates USING (run_id);

-- The runs of two sides if they come from several environments or from other programs; otherwise no rows. In an
-- environment of Nightjar, an example with other content is another version of the example.
CREATE OR REPLACE MACRO foreign_sides(before, after) AS TABLE
SELECT run_id, list_contains(before, run_id) AS is_before
FROM segments.runs
WHERE list_contains(list_concat(before, after)::VARCHAR[], run_id)
QUALIFY count(DISTINCT env_id) OVER () > 1 OR bool_or(nightjar_version IS NULL) OVER ();

-- Pairs the examples that only one of two sides contains by question and expected answer. If any prompts of the two
-- sides are equal, the whole prompt is the question. Examples with the same question and answer are paired in order.
CREATE OR REPLACE MACRO paired_by_question(before, after) AS TABLE
WITH members AS MATERIALIZED (
    FROM foreign_sides(before, after)
),
examples AS MATERIALIZED (
    SELECT
        is_before,
        example_hash,
        arg_min(example_id, run_id) AS example_id,
        arg_min(asked, run_id) AS asked,
        arg_min(question, run_id) AS question,
        arg_min(expected, run_id) AS expected
    FROM questions((SELECT list(run_id) FROM members)) JOIN members USING (run_id)
    GROUP BY is_before, example_hash
    QUALIFY count(*) OVER (PARTITION BY example_hash) = 1
),
keyed AS (
    SELECT
        is_before,
        example_hash,
        example_id,
        expected,
        CASE
            WHEN EXISTS (
                FROM examples AS one JOIN examples AS other USING (asked, expected)
                WHERE one.is_before AND NOT other.is_before
            )
            THEN asked
            ELSE question
        END AS question
    FROM examples
),
numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (same ORDER BY example_id, example_hash) AS number, count(*) OVER same > 1 AS is_repeated
    FROM keyed
    WINDOW same AS (PARTITION BY is_before, question, expected)
)
SELECT
    one.example_hash AS hash_a,
    other.example_hash AS hash_b,
    CASE WHEN one.is_repeated OR other.is_repeated THEN 'position' ELSE 'question' END AS paired_by
FROM numbered AS one
JOIN numbered AS other USING (question, expected, number)
WHERE one.is_before AND NOT other.is_before;
