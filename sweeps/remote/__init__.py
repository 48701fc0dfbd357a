"""Use of a cluster from another machine: submit, status, logs, stop, doctor, data on nodes."""
