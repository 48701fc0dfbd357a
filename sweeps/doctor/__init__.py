"""Doctor: checks of everything that a sweep needs. Its report travels as JSON."""
