#!/usr/bin/env python3
"""Weft's order of DualPipeV against a re-statement of the rules of PyTorch's ScheduleDualPipeV, through `weft export`; and
every file that bench/pytorch_schedules.py wrote with PyTorch itself, where tests/data/pytorch_schedules has some.

    tests/pytorch_orders_test.py build/release/weft
"""

import sys
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import pytorch_schedules  # noqa: E402

SHAPES = [(2, 4), (2, 5), (3, 6), (4, 8), (4, 13)]  # ranks, micro-batches


def dual_pipe_v(ranks, micro_batches, rank):
    """The passes of a rank, (stage, kind, micro-batch): the rules of each phase in turn, whole backwards in halves."""
    stages = [rank, 2 * ranks - 1 - rank]
    done = {(kind, chunk): 0 for kind in "FB" for chunk in (0, 1)}
    later, order = deque(), []

    def forward(chunk):
        order.append((stages[chunk], "F", done["F", chunk]))
        done["F", chunk] += 1

    def backward(chunk, split=False):
        number = done["B", chunk]
        done["B", chunk] += 1
        order.append((stages[chunk], "I", number))
        (later if split else order).append((stages[chunk], "W", number))

    def weight():
        if later:
            order.append(later.popleft())

    behind, before = ranks - rank - 1, rank + 1
    for _ in range(2 * behind):
        forward(0)
    for _ in range(before):
        forward(0)
        forward(1)
    for _ in range(behind):
        backward(1, split=True)
        weight()
        forward(1)
    for _ in range(micro_batches - 2 * ranks + before):
        forward(0)
        backward(1)
        forward(1)
        backward(0)
    for _ in range(behind):
        backward(1)
        forward(1)
        backward(0)
    split = False
    for i in range(before):
        split = split or (i == before // 2 and rank % 2 == 1)
        backward(1, split)
        split = split or (i == before // 2 and rank % 2 == 0)
        backward(0, split)
    for _ in range(behind):
        weight()
        backward(0, split)
    for _ in range(before):
        weight()
    return order


def main():
    weft = Path(sys.argv[1])
    for ranks, micro_batches in SHAPES:
        wanted = [dual_pipe_v(ranks, micro_batches, rank) for rank in range(ranks)]
        for row in wanted:
            assert sorted(row) == sorted(set(row)) and len(row) == 6 * micro_batches
        found = pytorch_schedules.passes_of_weft(weft, "dualpipev", ranks, micro_batches, 2)
        assert found == wanted, f"{ranks} ranks, {micro_batches} micro-batches:\n{found}\n{wanted}"
    print(f"DualPipeV: the order of PyTorch's rules for {len(SHAPES)} shapes")
    folder = ROOT / "tests" / "data" / "pytorch_schedules"
    if not folder.is_dir():
        print("tests/data/pytorch_schedules is not there: nothing that PyTorch itself wrote was compared")
        return 0
    return 1 if pytorch_schedules.check(folder, weft) else 0


if __name__ == "__main__":
    sys.exit(main())
