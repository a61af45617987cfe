"""Built-in environments: one file each, readable in five minutes."""
