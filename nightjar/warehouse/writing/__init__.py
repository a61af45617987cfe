"""Publishing: from the files of a run directory to a segment, and from many small segments to a pack."""
