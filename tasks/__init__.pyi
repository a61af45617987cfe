# The stages of an evaluation and where they live: read by type checkers, and by __init__.py to load them on first use.
from .evaluation import aggregate as aggregate
from .evaluation import generate as generate
from .evaluation import load_env as load_env
from .evaluation import publish as publish
from .evaluation import push as push
from .evaluation import score as score
