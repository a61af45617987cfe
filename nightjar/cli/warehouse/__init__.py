"""``nightjar warehouse`` and ``publish``: what is done with published runs besides asking."""
