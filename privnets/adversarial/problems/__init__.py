"""The problems that a releaser can be trained on."""
