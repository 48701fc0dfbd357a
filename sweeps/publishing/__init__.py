"""Publisher: copies the ledger of a sweep to MLflow."""
