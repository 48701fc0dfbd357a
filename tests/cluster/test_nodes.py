"""Names of the nodes of a cluster."""

from __future__ import annotations

from cluster.connection import Machine
from cluster.nodes import node_names


def test_nodes_have_names_of_host_and_address_that_differ() -> None:
    alone, first, second = (
        Machine(1, 0, host=host, node=node, address=address)
        for host, node, address in (
            ("a", "1" * 56, "10.0.0.1"), ("b", "2" * 56, "10.0.0.2"), ("b", "3" * 56, "10.0.0.2"),
        )
    )  # fmt: skip
    assert node_names([alone, first, second]) == {
        alone: "a (10.0.0.1)",
        first: "b (10.0.0.2), 22222222",
        second: "b (10.0.0.2), 33333333",
    }
