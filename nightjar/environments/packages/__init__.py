"""Environment packages: found, described, created and installed here, without running their code."""
