"""What a user asks the doctor."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.engine.handing_over import is_job_server
from sweeps.study.spec import Study


@dataclass(frozen=True, slots=True)
class Request:
    """Where a sweep is to run, and what it will need there.

    Attributes:
        address: Of a Ray to join (`HOST:PORT`, `auto`), or of its job server (`http://...`); None
            for this machine alone.
        storage: Path or URI of the storage; this machine alone has a default.
        tracking_uri: Of the MLflow store; if None, MLFLOW_TRACKING_URI where the sweep is led from.
        study: Whose data and resources are looked at; None for none.
        data: Data directory on every machine; their own if None.
    """

    address: str | None = None
    storage: str | None = None
    tracking_uri: str | None = None
    study: Study | None = None
    data: str | None = None

    @property
    def over_http(self) -> bool:
        """Whether it goes through a job server."""
        return self.address is not None and is_job_server(self.address)
