"""Photographs of faces with identity, gender and perhaps smile; for research only."""
