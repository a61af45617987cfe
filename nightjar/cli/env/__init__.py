"""``nightjar env``: make, install and list environments."""
