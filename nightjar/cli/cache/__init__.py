"""``nightjar cache``: the answers that ``eval run --cache`` keeps."""
