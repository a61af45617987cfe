# The names of this package and where they live: read by type checkers, and by __init__.py to load them on first use.
from .numbers import equated_number as equated_number
from .numbers import last_number as last_number
from .numbers import plain_text as plain_text
from .numbers import read_number as read_number
from .numbers import read_numbers as read_numbers
from .numbers import same_number as same_number
from .numbers import stated_number as stated_number
from .texts import extract_json as extract_json
from .texts import stated_answer as stated_answer
from .texts import stated_letter as stated_letter
from .texts import stated_lines as stated_lines
