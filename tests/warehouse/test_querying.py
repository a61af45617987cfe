"""The lock-down: a query reads the warehouse and can do nothing else, whatever is asked."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def published(tmp_path_factory, run_writer):
    folder = tmp_path_factory.mktemp("published")
    warehouse = Warehouse(folder / "warehouse")
    warehouse.publish(run_writer.write(folder / "run"))
    (folder / "secret.csv").write_text("a,b\n1,2\n")
    return warehouse


@pytest.fixture
def segments(published):
    """The one folder that queries may read, with a way out of it."""
    folder = published.folder / "segments"
    outside = folder / "outside"
    outside.symlink_to(published.folder.parent)
    before = state(folder)
    yield folder
    assert state(folder) == before, "a query wrote there"
    outside.unlink()


def state(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


def one(warehouse, sql, parameters=None):
    (row,) = warehouse.query(sql, parameters).rows
    return row


def refusal(warehouse, sql, parameters=None, **options):
    """Returns why a statement is refused, after which the same warehouse answers the next query."""
    with pytest.raises(WarehouseError) as caught:
        warehouse.query(sql, parameters, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert one(warehouse, "SELECT count(*), (SELECT count(*) FROM prices) FROM runs") == (1, 0)
    return message


def test_gives_columns_types_and_rows_and_takes_parameters(published):
    joined = "metrics JOIN rollouts USING (run_id, example_id, rollout_index)"
    result = published.query(f"SELECT name, avg(value) AS mean, info FROM {joined} GROUP BY ALL ORDER BY name")
    assert result.columns == ("name", "mean", "info")
    assert result.types == ("VARCHAR", "DOUBLE", "JSON")
    assert result.rows == [("correct", 0.5, '{"level":1}'), ("length", 12.0, '{"level":1}')]
    nan, *rest = one(published, "SELECT 'nan'::DOUBLE, 'inf'::DOUBLE, 170141183460469231731687303715884105727")
    assert (math.isnan(nan), rest) == (True, [math.inf, 2**127 - 1])
    assert one(published, "SELECT env_id FROM runs WHERE run_id = ?", ["run-1"]) == ("gsm8k",)
    named = "SELECT count(*) FROM rollouts WHERE reward >= $least"
    assert one(published, named, {"least": 0.5}) == (2,)
    assert one(published, "SELECT ?", ["'; DROP VIEW runs"]) == ("'; DROP VIEW runs",)


def test_equal_names_become_distinct(published):
    result = published.query("SELECT 1 AS a, 2 AS b, 3 AS a, 4 AS a")
    assert result.columns == ("a", "b", "a_2", "a_3")
    assert published.query("SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a").columns == ("a", "a_2", "a_2_2", "a_3")
    thousands = published.query(f"SELECT {', '.join(['1'] * 5000)}")
    assert len(set(thousands.columns)) == 5000
    assert thousands.columns[-1] == "1_5000"


def test_reading_statements_are_answered(published):
    statements = [
        "WITH best AS (SELECT max(reward) FROM rollouts) FROM best",
        "PIVOT metrics ON name USING avg(value) GROUP BY run_id",
        "PIVOT metrics ON name IN ('correct') USING avg(value) GROUP BY run_id",
        "FROM (UNPIVOT (SELECT 1 AS copy, 2 AS b) ON copy, b)", "DESCRIBE runs", "SHOW TABLES", "SUMMARIZE runs",
        "VALUES (1)", "TABLE runs", "(SELECT 1) UNION ALL (SELECT 2)", "EXPLAIN SELECT * FROM runs",
        "EXPLAIN ANALYZE SELECT * FROM runs", "EXPLAIN (FORMAT json) SELECT * FROM runs",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM runs", "/* a /* b */ comment */ SELECT 1; -- nothing else",
        "SELECT query FROM (SELECT 'query' AS query)", "SELECT 1" + " + 1" * 500,
        "SELECT prompt->>'$[0].content' FROM rollouts", "FROM flips('run-1', 'run-1') SELECT count(*)",
    ]  # fmt: skip
    assert [sql for sql in statements if not published.query(sql).rows] == []


def test_words_that_write_may_be_used_as_names_and_texts(published):
    statements = [
        ("SELECT count(*) FROM rollouts WHERE completion::VARCHAR ILIKE '%insert into%' OR true", None),
        ("SELECT count(*) AS \"update\" FROM rollouts WHERE 'delete' <> ?", ["copy"]),
        ("SELECT count(*) FROM rollouts WHERE 'copy' <> $a", {"a": "x"}),
        ("SELECT count(*) AS copy FROM rollouts -- truncate", None),
        ("FROM (SELECT count(*) AS updated_at FROM rollouts)", None),
        ("SELECT sum(merge) FROM (SELECT 1 AS merge FROM rollouts)", None),
    ]  # fmt: skip
    assert [one(published, *asked) for asked in statements] == [(4,)] * len(statements)


def test_several_queries_are_answered_in_order_up_to_the_first_that_fails(published):
    statements = [("SELECT $n AS n", {"n": 1}), ("FROM range(20_000)", None), ("SELECT 1 WHERE false", None)]
    first, second, none = published.query_all(statements)
    assert (first.columns, first.rows) == (("n",), [(1,)])
    assert second.rows == [(number,) for number in range(20_000)]
    assert none.rows == []
    assert published.query_all([]) == []
    with pytest.raises(WarehouseError, match="nowhere"):
        published.query_all([("SELECT 1", None), ("FROM nowhere", None), ("DROP VIEW runs", None)])
    assert one(published, "SELECT 2") == (2,)


@pytest.mark.long
def test_several_queries_see_the_same_state(tmp_path, run_writer):
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.publish(run_writer.write(tmp_path / "first"))
    run_dirs = [run_writer.write(tmp_path / f"run-{number}", run_id=f"run-{number}") for number in range(8)]
    publishing = threading.Thread(target=lambda: [warehouse.publish(run_dir) for run_dir in run_dirs])
    publishing.start()
    seen = set()
    while publishing.is_alive():
        counts = warehouse.query_all([("SELECT count(*) FROM runs", None)] * 3)
        assert len({result.rows[0] for result in counts}) == 1
        seen.add(counts[0].rows[0])
    publishing.join()
    assert len(seen) > 1


def test_a_table_of_arrow_has_the_same(published):
    arrow = pytest.importorskip("pyarrow")
    table = published.query_arrow("SELECT reward FROM rollouts WHERE run_id = ? ORDER BY ALL", ["run-1"])
    assert isinstance(table, arrow.Table)
    assert table.to_pydict() == {"reward": [0.0, 0.5, 1.0, None]}
    assert published.query_arrow("PIVOT metrics ON name USING avg(value) GROUP BY run_id").num_rows == 1


def test_columns_are_arrays_whose_missing_numbers_are_nan_and_other_missing_values_none(published):
    given = "(VALUES ('a', 1.5::DOUBLE, 1, true), (NULL, NULL, NULL, NULL)) v(text, share, count, is_right)"
    found = published.query_columns(f"SELECT *, NULL::VARCHAR AS nothing FROM {given}")
    assert found["text"].tolist() == ["a", None]
    assert found["is_right"].tolist() == [True, None]
    assert found["nothing"].tolist() == [None, None]
    assert [str(value) for name in ("share", "count") for value in found[name]] == ["1.5", "nan", "1.0", "nan"]
    none = published.query_columns(f"SELECT text, share FROM {given} WHERE false")
    assert [len(none[name]) for name in ("text", "share")] == [0, 0]


def test_an_error_has_one_line(published):
    statements = [
        ("SELEC 1", 'The query failed: Parser Error: syntax error at or near "SELEC"'),
        ("FROM rolouts", 'Table with name rolouts does not exist! Did you mean "rollouts"?'),
        ("SELECT error('two\nlines')", "The query failed: Invalid Input Error: two lines"),
        ("SELECT 'a'::INT", "Could not convert string 'a'"),
        ("SELECT 1; SELECT 2", "Expected one SQL statement, found 2."),
        ("SELECT 1; DROP VIEW runs; SELECT 2", "Expected one SQL statement, found 3."),
        ("-- nothing", "Expected one SQL statement, found 0."),
        ("", "Expected one SQL statement, found 0."),
        ("SELECT '\ud800'", "it is not valid UTF-8"),
        ("\0", "syntax error"),
        ("SELECT " + "[" * 5000 + "]" * 5000, "Max expression depth"),
        ("SELECT 'copy'" + " + 1" * 5000, "Max expression depth"),
    ]  # fmt: skip
    assert [sql for sql, message in statements if message not in refusal(published, sql)] == []


def test_parameters_that_do_not_fit_are_refused(published):
    statements = [
        ("SELECT ?", None), ("SELECT ?", [1, 2]), ("SELECT 1", [1]), ("SELECT $a", {"b": 1}), ("SELECT ?", [print]),
        ("SELECT ?", ["\ud800"]), ("SELECT ?", [2**200]),
    ]  # fmt: skip
    told = [refusal(published, *asked) for asked in statements]
    assert [one for one in told if not one.startswith("The query failed: ")] == []


def test_refuses_statements_that_do_more_than_read(published, segments):
    statements = [
        "INSERT INTO segments.prices VALUES ('m', now(), 1, 1)",
        "INSERT INTO segments.prices SELECT 'm', now(), 1, 1 FROM runs",
        "WITH x AS (SELECT 1) INSERT INTO segments.prices SELECT 'm', now(), 1, 1 FROM x",
        "UPDATE segments.prices SET input = 0", "DELETE FROM segments.prices", "TRUNCATE segments.prices",
        "MERGE INTO segments.prices USING runs ON true WHEN MATCHED THEN DELETE", "DROP VIEW runs",
        "ALTER VIEW runs RENAME TO old_runs", "COMMENT ON VIEW runs IS 'mine'", "CREATE TABLE copies AS FROM runs",
        "CREATE TEMP TABLE copies AS FROM runs", "CREATE OR REPLACE VIEW runs AS SELECT 1",
        "CREATE MACRO double(a) AS 2 * a", "CREATE SECRET (TYPE s3)", "CREATE SCHEMA mine",
        "ATTACH '{segments}/other.duckdb'", "ATTACH ':memory:' AS other", "DETACH memory", "USE segments",
        "COPY runs TO '{segments}/runs.csv'", "COPY segments.prices FROM '{segments}/../prices.csv'",
        "EXPORT DATABASE '{segments}/export'", "IMPORT DATABASE '{segments}/export'", "CONNECT", "INSTALL httpfs",
        "LOAD httpfs", "UPDATE EXTENSIONS", "CHECKPOINT", "VACUUM", "ANALYZE", "BEGIN", "COMMIT", "SET threads = 1",
        "SET VARIABLE a = 1", "RESET threads", "PRAGMA threads = 1", "PRAGMA database_list",
        "PRAGMA json_execute_serialized_sql('{{}}')", "CALL pragma_version()", "CALL enable_logging()",
        "PREPARE mine AS SELECT 1", "EXECUTE mine", "DEALLOCATE mine",
        "WITH x AS (DELETE FROM segments.prices RETURNING *) FROM x",
        "WITH x AS (INSERT INTO segments.prices VALUES ('m', now(), 1, 1) RETURNING *) FROM x",
        "WITH x AS (UPDATE segments.prices SET input = 1 RETURNING *) SELECT count(*) FROM x",
        "WITH x AS (TRUNCATE segments.prices) FROM x", "WITH x AS (COPY (SELECT 1) TO '{segments}/x.csv') FROM x",
        "WITH x AS MATERIALIZED (COPY (SELECT 1) TO '{segments}/x.csv') SELECT 1",
        "WITH y AS (SELECT 1), x AS (copy y TO '{segments}/x.csv') FROM x",
        "WITH x AS (WITH y AS (SELECT now() AS n) INSERT INTO segments.prices SELECT 'm', n, 1, 1 FROM y) FROM x",
    ]  # fmt: skip
    told = {sql: refusal(published, sql.format(segments=segments)) for sql in statements}
    assert [sql for sql, why in told.items() if "is refused: a query only reads the warehouse" not in why] == []


def test_refuses_a_pivot_that_is_part_of_more(published, segments):
    statements = [
        "COPY (PIVOT metrics ON name) TO '{segments}/x.csv'", "CREATE TABLE mine AS PIVOT metrics ON name",
        "CREATE TEMP TABLE mine AS PIVOT metrics ON name",
        "/* /* */ SELECT 1 -- */ CREATE TABLE mine AS PIVOT metrics ON name",
        "INSERT INTO segments.prices PIVOT metrics ON name",
        "DELETE FROM segments.prices WHERE model IN (FROM (PIVOT metrics ON name) SELECT run_id)",
        "WITH x AS (COPY (SELECT 1) TO '{segments}/x.csv') PIVOT metrics ON name",
        "PIVOT (WITH x AS (DELETE FROM segments.prices RETURNING *) FROM x) ON model",
    ]  # fmt: skip
    told = {sql: refusal(published, sql.format(segments=segments)) for sql in statements}
    assert [sql for sql, why in told.items() if "A PIVOT with the word " not in why] == []


def test_refuses_to_explain_a_write_by_doing_it(published, segments):
    writes = [
        "DELETE FROM segments.prices", "COPY (SELECT 1) TO '{segments}/x.csv'", "CREATE TABLE mine AS SELECT 1",
        "WITH x AS (COPY (SELECT 1) TO '{segments}/x.csv') FROM x",
        "COPY (PIVOT metrics ON name) TO '{segments}/x.csv'",
        "WITH x AS (COPY (SELECT 1) TO '{segments}/x.csv') PIVOT metrics ON name",
    ]  # fmt: skip
    explains = ["EXPLAIN", "EXPLAIN (ANALYZE, FORMAT json)", "explain analyze"]
    statements = [f"{explain} {sql.format(segments=segments)}" for explain in explains for sql in writes]
    told = {sql: refusal(published, sql) for sql in statements}
    assert [sql for sql, why in told.items() if "is refused: a query only reads" not in why] == []


def test_comments_hide_nothing(published, segments):
    statements = [
        "EXPLAIN (ANALYZE /* ) SELECT 1 -- */ ) COPY (SELECT 1) TO '{segments}/x.csv'",
        "/* /* */ SELECT 1 -- */ EXPLAIN ANALYZE COPY (SELECT 1) TO '{segments}/x.csv'",
        "EXPLAIN /* */ ANALYZE COPY (SELECT 1) TO '{segments}/x.csv'",
        "EXPLAIN ANALYZE -- SELECT 1\nCOPY (SELECT 1) TO '{segments}/x.csv'",
    ]  # fmt: skip
    for sql in statements:
        refusal(published, sql.format(segments=segments))


def test_sql_in_a_text_is_refused(published, segments):
    statements = [
        ("FROM query('WITH x AS (COPY (SELECT 1) TO ''{segments}/x.csv'') FROM x')", None),
        ("FROM query('COPY (SELECT 1) TO ''{segments}/x.csv''')", None),
        ("FROM query(?)", ["DROP VIEW runs"]),
        ("FROM query(?)", ["WITH x AS (DELETE FROM segments.prices RETURNING *) FROM x"]),
        ("FROM query('CRE' || 'ATE TABLE mine(a INT)')", None),
        ("FROM json_execute_serialized_sql('{{}}')", None),
        ("FROM query_table(?)", ["/etc/passwd"]),
        ("FROM query('SELECT 1')", None),
        ("FROM system.main.\"QUERY\"('SELECT 1')", None),
        ("FROM Query/**/('SELECT 1')", None),
        ("FROM runs, LATERAL (DESCRIBE FROM query('SELECT 1'))", None),
        ("SELECT list_transform([1], lambda x: (FROM query_table('runs') SELECT count(*)))", None),
        ("EXPLAIN ANALYZE FROM query('SELECT 1')", None),
        ("PIVOT (FROM \"query\"('FROM metrics')) ON name", None),
        ("SELECT json_serialize_plan('SELECT 1')", None),
    ]  # fmt: skip
    told = {sql: refusal(published, sql.format(segments=segments), given) for sql, given in statements}
    assert [sql for sql, why in told.items() if "is refused: a query only reads" not in why] == []


def test_a_write_in_a_serialized_text_is_refused(published, segments):
    import duckdb

    statements = [
        "FROM {function}('{tree}')", "FROM (SUMMARIZE FROM {function}('{tree}'))",
        "FROM query('FROM json_exec' || 'ute_serialized_sql(''{nested}'')')",
        "EXPLAIN ANALYZE FROM {function}('{tree}')", "EXPLAIN ANALYZE FROM system.main.\"{function}\"('{tree}')",
        "PIVOT (FROM {function}('{tree}')) ON count",
    ]  # fmt: skip
    write = f"WITH x AS (COPY (SELECT 1) TO '{segments}/x.csv') FROM x"
    with duckdb.connect() as connection:
        ((tree,),) = connection.execute("SELECT json_serialize_sql(?)", [write]).fetchall()
    text = tree.replace("'", "''").replace("COPY", "CO'||'PY")
    names = {"function": "json_execute_serialized_sql", "tree": text, "nested": text.replace("'", "''")}
    told = {sql: refusal(published, sql.format(**names)) for sql in statements}
    assert [sql for sql, why in told.items() if "is refused: a query only reads the warehouse" not in why] == []


def test_no_function_reaches_beyond_the_warehouse(published):
    statements = [
        *["FROM enable_logging()", "FROM enable_profiling()", "FROM disable_logging()", "FROM checkpoint()"],
        *["FROM force_checkpoint()", "FROM truncate_duckdb_logs()", "FROM arrow_scan(1, 2, 3)"],
        *["FROM pandas_scan(1)", "FROM sql", "FROM connection", "FROM rows"],
        *["SELECT nextval('a')", "SELECT write_log('a')", "SELECT getenv('HOME')"],
    ]  # fmt: skip
    for sql in statements:
        refusal(published, sql)


def test_reads_only_files_of_the_warehouse(published, segments):
    functions = [f"read_{kind}" for kind in ("text", "blob", "csv", "json", "parquet")]
    functions += ["parquet_metadata", "parquet_schema", "sniff_csv"]
    sources = [f"{function}('{{}}')" for function in functions]
    sources.append(f"read_text(['{segments}/run-1*/segment.json', '{{}}'])")
    paths = [published.folder.parent / "secret.csv", "/etc/passwd", "/proc/self/environ", "/dev/stdin"]
    told = {
        sql: refusal(published, sql) for sql in (f"FROM {source.format(path)}" for source in sources for path in paths)
    }
    assert [sql for sql, why in told.items() if "file system operations are disabled" not in why] == []


def test_the_name_of_a_file_is_no_table(published, tmp_path):
    import duckdb

    with duckdb.connect(str(tmp_path / "other.duckdb")) as other:
        other.execute("CREATE TABLE secret AS SELECT 1")
    for secret in (published.folder.parent / "secret.csv", tmp_path / "other.duckdb"):
        assert "file system operations are disabled" in refusal(published, f"FROM '{secret}'")
    assert "does not exist" in refusal(published, "FROM '/etc/passwd'")


@pytest.mark.parametrize("function", ["read_text", "read_csv", "glob"])
def test_no_path_leads_out_of_the_warehouse(published, segments, function):
    paths = [
        "{segments}/../../secret.csv", "{segments}/./../../secret.csv", "{segments}/run-1/../../../secret.csv",
        "{segments}/outside/secret.csv", "{segments}/outside/*.csv", "{segments}/../nightjar.duckdb",
        "{segments}-other/secret.csv", "file://{segments}/../../a.csv", "file:///etc/passwd", "file:/etc/group",
        "~/.bashrc", "secret.csv", "../*", "http://127.0.0.1:9/secret.csv", "https://127.0.0.1:9/secret.csv",
        "s3://bucket/secret.csv", "hf://datasets/a/b.csv", "memory://secret.csv",
    ]  # fmt: skip
    for path in (each.format(segments=segments) for each in paths):
        for asked in ((f"FROM {function}(?)", [path]), (f"FROM {function}('{path}')",)):
            assert "file system operations are disabled" in refusal(published, *asked), asked


def test_listing_finds_only_files_of_the_warehouse(published, segments):
    found = {file for (file,) in published.query(f"FROM glob('{segments}/**')").rows}
    assert found
    assert all(file.startswith(f"{segments}/run-1.") for file in found)
    assert one(published, f"SELECT count(*) FROM read_parquet('{segments}/*/rollouts.parquet')") == (4,)


def test_a_warehouse_behind_a_link_can_be_read(tmp_path, run_writer):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    warehouse = Warehouse(tmp_path / "link" / "warehouse")
    warehouse.publish(run_writer.write(tmp_path / "run"))
    assert one(warehouse, "SELECT count(*) FROM rollouts") == (4,)


def test_a_timeout_that_is_over_at_once_or_none_is_refused(published):
    nothing = dict.fromkeys((0, -1, math.nan), "more than 0 seconds")
    for seconds, says in ({1e-9: "stopped after 1e-09 s"} | nothing).items():
        assert says in refusal(published, "SELECT sleep_ms(3_600_000)", timeout_seconds=seconds)


def test_the_timeout_of_one_thread_is_not_that_of_another(published):
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(published.query, "SELECT sleep_ms(600)", timeout_seconds=math.inf)
        refusal(published, "SELECT sleep_ms(100_000)", timeout_seconds=0.1)
        assert len(patient.result(30).rows) == 1


def test_refuses_an_answer_that_is_too_large(published, monkeypatch):
    from nightjar.warehouse.reading import querying

    monkeypatch.setattr(querying, "LARGEST_ANSWER_BYTES", 10_000_000)
    for sql in [
        "FROM range(1_000_000)", "SELECT repeat('x', 20_000) FROM range(1_000)", "SELECT range(200_000)",
        "SELECT [repeat('x', 100_000)] FROM range(100)",
        "SELECT map {'a': repeat('x', 5_000_000)}, {'b': [repeat('x', 5_000_000)]}",
        f"SELECT {', '.join(['1'] * 20_001)} WHERE false",
    ]:  # fmt: skip
        with pytest.raises(WarehouseError, match=r"The answer is larger than 0\.01 GB\. Narrow it"):
            published._backend.ask(lambda connection, sql=sql: querying.pack_rows(connection, sql, None))


def test_settings_say_the_limits_and_are_locked(published):
    settings = "SELECT current_setting('enable_external_access'), current_setting('lock_configuration')"
    assert one(published, settings) == (False, True)
    assert one(published, "SELECT current_setting('memory_limit')") == ("1.8 GiB",)


def test_a_query_that_fails_while_its_rows_are_read_stops_working(monkeypatch):
    """DuckDB's other thread is at work on the next 2048 rows then."""
    import duckdb

    from nightjar.warehouse.reading import querying

    monkeypatch.setattr(querying, "LARGEST_ANSWER_BYTES", 50_000)
    with duckdb.connect(config={"threads": 2}) as connection:
        with pytest.raises(WarehouseError, match="The answer is larger than"):
            querying.run_query(connection, "SELECT repeat('x', 100_000) FROM range(100_000)", None)
        before = time.process_time()
        time.sleep(0.2)
        assert time.process_time() - before < 0.05
