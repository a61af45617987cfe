"""May a candidate go where its baseline is? A policy, what is known of each benchmark, and the verdict."""
