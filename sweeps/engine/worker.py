"""What Ray Tune runs: an actor that trains one pack after another."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from socket import gethostname
from typing import Any

import ray
from ray import tune

import privnets
from privnets.data import DataError
from sweeps.engine.early_stopping import StoppingRule
from sweeps.engine.pack_trainer import PackProgress, PackTrainer
from sweeps.planning.devices import select_device
from sweeps.planning.packing import Pack
from sweeps.planning.plan import PlannedReplicate
from sweeps.store.lease import RunSupersededError
from sweeps.store.ledger import Ledger

# Every report passes through the driver's one loop, and stages may be as short as a point.
_REPORT_SECONDS = 0.5
_HOPELESS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class Worker(tune.Trainable):
    """A pack per trial, half a second or more of it per step; torch stays loaded between packs.

    What it reports is a few numbers of progress. Results go to the ledger and nowhere else, and
    so do checkpoints: Tune's own would unpickle what they find.
    """

    _run: PackTrainer | None = None

    def setup(  # type: ignore[override]
        self,
        config: dict[str, Any],
        *,
        packs: Mapping[str, str],
        storage: str,
        sweep: str,
        run: str | None,
        stopping: StoppingRule | None,
    ) -> None:
        """Take the first pack.

        Args:
            config: `pack`, the id of one.
            packs: Id to pack, as `dumps` gives it.
            storage: Absolute path or URI of the storage.
            sweep: The sweep's name.
            run: The run of it that this is for.
            stopping: When points leave their packs before the end; never if None.
        """
        self._node = ray.get_runtime_context().get_node_id()
        self._device = select_device(self._assigned("GPU"), self._assigned("CPU"))
        self._packs = packs
        self._ledger = Ledger(storage, sweep, run)
        self._stopping = stopping
        self.reset_config(config)

    def step(self) -> dict[str, Any]:
        """Train for half a second, or a longer stage.

        A storage that takes nothing more fails the pack at once, and so does the end of the run
        that it is for: trying again would only train again. Whatever else is raised, Tune has the
        pack retried by a fresh actor.
        """
        try:
            self._run = self._run or self._begun()
            advance = _advanced(self._run)
        except (OSError, RunSupersededError) as error:
            if isinstance(error, OSError) and error.errno not in _HOPELESS:
                raise
            self._run = None
            return {"share": 1.0, "done": True, "failure": f"{type(error).__name__}: {error}"}
        except DataError as error:
            # Another node may have them, or this one by then.
            raise DataError(f"node {gethostname()} ({self._node[:8]}): {error}") from error
        return {
            "share": advance.share,
            "done": advance.committed,
            "problem": advance.problem,
            "node": self._node,
        }

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next pack, which the next step loads.

        Tune gives a pack up, whatever its number of tries, when its actor dies in here: it notes
        the failure twice, as that of an actor and as that of a task that had not begun to train.
        """
        self._run, self._pack_id = None, str(new_config["pack"])
        return True

    def cleanup(self) -> None:
        """Keep what is in hand when the sweep is stopped."""
        if self._run is not None:
            with suppress(RunSupersededError):
                self._run.save()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Keep the pack's state in the sweep's own checkpoints; nothing goes to Tune."""
        self.cleanup()

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing: a pack always starts from the sweep's own checkpoint."""

    def _begun(self) -> PackTrainer:
        pack = loads(self._packs[self._pack_id])
        experiment = privnets.experiment(pack.experiment)
        return PackTrainer(
            pack, experiment, self._ledger, device=self._device, stopping=self._stopping
        )

    def _assigned(self, resource: str) -> float:
        context = ray.get_runtime_context()
        assigned = context.get_assigned_resources()  # type: ignore[no-untyped-call]
        return float(assigned.get(resource, 0))


def _advanced(run: PackTrainer) -> PackProgress:
    """As many stages as a report's time allows, one at least; the first problem among them."""
    until = time.monotonic() + _REPORT_SECONDS
    problem = None
    while True:
        advance = run.advance()
        problem = problem or advance.problem
        if advance.committed or time.monotonic() >= until:
            return PackProgress(advance.share, advance.committed, problem)


def dumps(pack: Pack) -> str:
    """A pack as text, which is cheaper to hand to every worker than objects are."""
    members = [
        [replicate.point_id, replicate.seed, replicate.config.model_dump(mode="json")]
        for replicate in pack.replicates
    ]
    return json.dumps([pack.pack_id, pack.experiment, members])


def loads(text: str) -> Pack:
    """The pack that `dumps` wrote."""
    pack_id, name, members = json.loads(text)
    config = privnets.experiment(name).Config
    replicates = tuple(
        PlannedReplicate(point_id, seed, config.model_validate(values))
        for point_id, seed, values in members
    )
    return Pack(pack_id, name, replicates)
