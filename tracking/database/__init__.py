"""Databases of MLflow: SQLite stores, and runs written by rows."""
