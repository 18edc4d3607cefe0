"""Wirings for synthesized_links.py: ranks, switches and cables as topologies, and as cables and routes of namespaces."""

import json
from collections import deque

FAST, SLOW = 200, 50  # Mbit/s
GOODPUT = 0.957  # TCP's and IP's headers take the rest of a packet on the wire


class Wiring:
    """Cables between ranks 0, 1, ... and switches, whose names begin with a letter."""

    def __init__(self, name, ranks, cables):
        self.name, self.ranks, self.cables = name, ranks, cables  # (end, end, Mbit/s)

    def ends(self):
        named = {end for a, b, _ in self.cables for end in (a, b) if isinstance(end, str)}
        return list(range(self.ranks)) + sorted(named)

    def neighbours(self, end):
        found = [b for a, b, _ in self.cables if a == end] + [a for a, b, _ in self.cables if b == end]
        return sorted(found, key=str)

    def steps_to(self, rank):
        """How many cables every end is away from the rank. Other ranks pass packets on like switches."""
        steps, open_ends = {rank: 0}, deque([rank])
        while open_ends:
            end = open_ends.popleft()
            for other in self.neighbours(end):
                if other not in steps:
                    steps[other] = steps[end] + 1
                    open_ends.append(other)
        return steps

    def namespaces(self):
        """The file of `tools/netns.sh --wiring`; of two ways that are as short, the first neighbour's is taken."""
        lines = [f"link {a} {b} {rate}mbit" for a, b, rate in self.cables]
        for rank in range(self.ranks):
            steps = self.steps_to(rank)
            for end in self.ends():
                if end != rank:
                    nearer = next(other for other in self.neighbours(end) if steps[other] < steps[end])
                    lines.append(f"route {end} {rank} {nearer}")
        return "\n".join(lines) + "\n"

    def topology(self):
        vertices = [{"name": str(end), "kind": "switch" if isinstance(end, str) else "device"} for end in self.ends()]
        links = [{"from": str(a), "to": str(b), "bandwidth": f"{GOODPUT * rate / 8}MB/s", "latency": "50us"}
                 for a, b, rate in self.cables]
        return {"topology": self.name, "vertices": vertices, "links": links}

    def cluster(self):
        """The level is only for what asks for one: messages take the topology's links."""
        level = {"name": "nic", "joins": "cluster", "bandwidth": f"{GOODPUT * FAST / 8}MB/s", "latency": "50us"}
        return json.dumps({"name": self.name, "device": "cpu", "nodes": self.ranks, "devices_per_node": 1, "emulated": True,
                           "levels": [level], "topology": self.topology()})


def slow_link(ranks):
    """All at one switch, the last rank's cable at a quarter of the others' rate."""
    return Wiring(f"slow-link-{ranks}", ranks, [(r, "s", SLOW if r == ranks - 1 else FAST) for r in range(ranks)])


def line(ranks):
    return Wiring(f"line-{ranks}", ranks, [(r, r + 1, FAST) for r in range(ranks - 1)])


def cube_mesh(ranks):
    """Four: a quad of a DGX-1, every pair joined, two pairs at twice the rate. Six: two triangles, joined corner by
    corner at half the rate. A ring over consecutive ranks has a cable for each of its messages."""
    if ranks == 4:
        cables = [(a, b, FAST if b == a ^ 1 else FAST // 2) for a in range(4) for b in range(a + 1, 4)]
    else:
        cables = [(0, 1, FAST), (1, 2, FAST), (0, 2, FAST), (3, 4, FAST), (4, 5, FAST), (3, 5, FAST),
                  (2, 3, FAST // 2), (1, 4, FAST // 2), (0, 5, FAST // 2)]
    return Wiring(f"cube-mesh-{ranks}", ranks, cables)


def two_cards(ranks):
    """Two hosts with one network card each, which half of the ranks share."""
    cables = [(r, "a" if r < ranks // 2 else "b", FAST) for r in range(ranks)]
    return Wiring(f"two-cards-{ranks}", ranks, cables + [("a", "b", SLOW)])


WIRINGS = [make(ranks) for make in (slow_link, line, cube_mesh, two_cards) for ranks in (4, 6)]
