"""``nightjar sql``: queries the warehouse; on a terminal, it offers a prompt."""
