"""Checks that every node of a cluster has the data of a plan, by one Ray task per node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cluster.nodes import NoAnswer, node_names, on_every_node
from privnets.references import user_files
from privnets.references.user_files import portable_folder, set_portable_folder
from sweeps.errors import InputError, StudyError
from sweeps.planning.continuation import names_user_files
from sweeps.planning.plan import Plan, data_fingerprints
from sweeps.study.loader import read_study
from sweeps.study.spec import StudySource
from sweeps.study.validation import validate_study

LIST_SECONDS: Final = 120.0

_FETCH_ADVICE = (
    "`sweeps data fetch NAME --address ADDRESS` fetches a data set on every node; add --from DIR "
    "to copy it from a directory that all nodes see. A file of your own must have the same path "
    "on every node; `sweeps submit` ships those beside the study"
)


def check_data_on_nodes(plan: Plan) -> None:
    """Checks that every node has the data that a plan was made from; needs a connection to Ray.

    A node that does not answer is skipped: it fails its packs, with the reason, if data are absent.

    Raises:
        InputError: If a node lacks data, or has others under the same name.
    """
    study, source = plan.study.to_dict(), plan.study.source
    folder = portable_folder(source.folder)
    answers = on_every_node(local_fingerprints, study, folder, source.file, seconds=LIST_SECONDS)
    names = node_names(answers)
    lines = []
    for node, answer in answers.items():
        if not isinstance(answer, NoAnswer):
            others = sorted(name for name in plan.data if answer.get(name) != plan.data[name])
            if others:
                lines.append(
                    f"node {names[node]}: its {', '.join(others)} differs from the driver's"
                )
        elif not answer.is_lost:
            lines.append(f"node {names[node]}: {no_data_reason(answer).rstrip('.')}")
    if lines:
        raise InputError(f"{'; '.join(lines)}. {_FETCH_ADVICE}")


def local_fingerprints(
    study: Mapping[str, Any], folder: str = ".", file: str = "study"
) -> dict[str, str]:
    """Returns the fingerprint of each data set of a study; `DataError` if one is not intact.

    Args:
        study: The study as plain values.
        folder: Its folder, as `portable_folder` describes it.
        file: Its file, for error messages.
    """
    set_portable_folder(folder)
    loaded = read_study(study, StudySource(file, folder=user_files.folder()))
    validated = validate_study(loaded, data=False)
    if not validated.errors and names_user_files(loaded):
        validated = validate_study(loaded)
    if validated.errors:
        raise StudyError(validated.errors)
    return data_fingerprints(str(study["experiment"]), validated.configs)


def no_data_reason(answer: NoAnswer) -> str:
    """Returns why a node gave no answer, without the name of the error."""
    return answer.reason.removeprefix("DataError: ").removeprefix("StudyError: ")
