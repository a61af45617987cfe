"""``nightjar sql``: asks the warehouse, on a terminal with a prompt."""
