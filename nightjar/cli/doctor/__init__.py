"""``nightjar doctor``: what this machine has, and what each missing part disables."""
