"""Where segments lie: what a segment is, which of them count, and the folder or object store that holds them."""
