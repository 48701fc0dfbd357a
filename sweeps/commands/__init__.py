"""One module per command of `sweeps`; each imports what is slow only when it runs."""
