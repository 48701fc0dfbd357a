"""What a worker's process loads before it has a pack; imported for its effect, in workers alone."""

from sweeps.engine.garbage import patient_collection

patient_collection()
