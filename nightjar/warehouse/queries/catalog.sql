-- Every table and view with its columns, tables first.

SELECT
    relations.name AS "table",
    relations.comment AS about,
    columns.column_name AS "column",
    columns.data_type AS "type",
    columns.comment AS note
FROM (
    SELECT table_name AS name, comment, false AS is_view FROM duckdb_tables()
    UNION ALL
    SELECT view_name, comment, true FROM duckdb_views() WHERE NOT internal
) AS relations
JOIN duckdb_columns() AS columns ON columns.table_name = relations.name
WHERE relations.name <> 'migrations'
ORDER BY relations.is_view, relations.name, columns.column_index
