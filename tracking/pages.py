"""Where MLflow's own pages show a study."""

from __future__ import annotations

from tracking.store import connect, translate_errors

_DEFAULT = "Default"


def study_pages(uri: str, most: int) -> dict[str, str]:
    """The pages with the runs of each study, for the end of a server's address.

    Args:
        uri: A resolved URI of a store that exists.
        most: Give the pages of so many, those that changed last.

    Returns:
        Study to page, the one that changed last first.

    Raises:
        TrackingError: If there is no such store, or it fails.
    """
    client = connect(uri)
    with translate_errors(uri):
        # One more, as MLflow's own empty experiment is passed over.
        found = client.search_experiments(max_results=most + 1, order_by=["last_update_time DESC"])
    names = {e.name: e.experiment_id for e in found if e.name != _DEFAULT}
    return {name: runs_page(number) for name, number in list(names.items())[:most]}


def study_page(uri: str, study: str) -> str | None:
    """The page with a study's runs, for the end of a server's address; None if there is none.

    Args:
        uri: A resolved URI of a store that exists.
        study: Its name.

    Raises:
        TrackingError: If there is no such store, or it fails.
    """
    client = connect(uri)
    with translate_errors(uri):
        found = client.get_experiment_by_name(study)
    return None if found is None else runs_page(found.experiment_id)


def runs_page(experiment_id: str) -> str:
    """The page with an experiment's runs, in the mode that shows them: it is not MLflow's first."""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning"
