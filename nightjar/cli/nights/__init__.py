"""``nightjar nights``: what suites came to, night by night."""
