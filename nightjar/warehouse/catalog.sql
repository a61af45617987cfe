-- Every table and view with its columns, tables first.

SELECT
    relations.name AS "table",
    relations.comment AS about,
    columns.column_name AS "column",
    columns.data_type AS "type",
    columns.comment AS note
FROM (
    SELECT table_oid AS oid, table_name AS name, comment, false AS is_view
    FROM duckdb_tables()
    WHERE database_name = current_database() AND schema_name = 'main'
    UNION ALL
    SELECT view_oid, view_name, comment, true
    FROM duckdb_views()
    WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal
) AS relations
JOIN duckdb_columns() AS columns
    ON columns.table_oid = relations.oid AND columns.database_name = current_database()
ORDER BY relations.is_view, relations.name, columns.column_index
