"""Names of the nodes of a cluster."""

from __future__ import annotations

from cluster.connection import Machine
from cluster.nodes import node_names


def test_nodes_of_one_host_have_different_names() -> None:
    alone, first, second = (
        Machine(1, 0, host=host, node=node)
        for host, node in (("a", "1" * 56), ("b", "2" * 56), ("b", "3" * 56))
    )
    assert node_names([alone, first, second]) == {
        alone: "a",
        first: "b (22222222)",
        second: "b (33333333)",
    }
