"""Studies: their YAML files, search spaces and validation."""
