"""What the problems state of themselves."""
