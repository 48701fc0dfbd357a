"""The report of a sweep, and the files that summarise it."""
