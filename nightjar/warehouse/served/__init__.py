"""A warehouse whose rows are kept by a service: MotherDuck, DuckLake, or a DuckDB file as a stand-in for them."""
