"""From a record to what a person reads."""
