#!/usr/bin/env python3
"""PyTorch's own pipeline schedules as CSV files, and whether Weft's are the same where they have the same name.

    python3 bench/pytorch_schedules.py write FOLDER                        # needs PyTorch, no GPU and no ranks
    python3 bench/pytorch_schedules.py check FOLDER build/release/weft     # needs Weft, no PyTorch

`write` makes a file for every class of torch.distributed.pipelining and several numbers of ranks, micro-batches and stages
a rank: the passes (compute_only), and with messages (compute_comms) where the class makes them. `check` has `weft verify`
prove every file, and compares the passes with those of Weft's schedule, where the two are the same schedule. Weft splits
each backward of such schedules: a whole backward of PyTorch is compared as an input gradient and its weight gradient. One
flaw of PyTorch's drawings is mended on the way (`from_zero`).
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Class: whether a rank has one stage, whether the stages of a rank lie on a V, Weft's schedule (None: it has no such one).
CLASSES = {
    "GPipe": (True, False, "gpipe"),
    "1F1B": (True, False, "1f1b"),
    "Interleaved1F1B": (False, False, "interleaved"),
    "LoopedBFS": (False, False, None),  # goes back through micro-batches from the last to the first
    "InterleavedZeroBubble": (False, False, None),
    "ZBVZeroBubble": (False, True, "zbv"),
    "DualPipeV": (False, True, "dualpipev"),
}
SHAPES = [(2, 4), (2, 8), (4, 8), (4, 16), (8, 16)]  # ranks, micro-batches
FILE = re.compile(r"(?P<name>\w+)-p(?P<ranks>\d+)-m(?P<micro_batches>\d+)-v(?P<chunks>\d+)-compute_(only|comms)\.csv")


def cells(actions):
    return ["" if action is None else str(action) for action in actions]


def from_zero(row, stage, micro_batches):
    """The row with its forwards counted from 0. Schedule1F1B of PyTorch 2.11 counts those of the last rank from 1 in the order
    that it draws (a rank without warm-up adds 1 before its first forward); what it runs is other code, and right."""
    drawn = [f"{stage}F{i + 1}" for i in range(micro_batches)]
    if [cell for cell in row if f"{stage}F" in cell] != drawn:
        return row
    return [f"{stage}F{int(cell.split('F')[1]) - 1}" if cell in drawn else cell for cell in row]


def orders_of(name, ranks, micro_batches, chunks):
    """What PyTorch makes: {"compute_only": rows, "compute_comms": rows or nothing}."""
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining.stage import _PipelineStageBase

    class Stage(_PipelineStageBase):
        """Knows its place; nothing is ever run."""

        def __init__(self, index, rank):
            self.stage_index, self.group_rank, self.group_size = index, rank, ranks
            self.num_stages, self.group, self.submod, self.has_backward = ranks * chunks, None, None, True

        def _create_grad_recv_info(self, *args, **kwargs):
            return None

        def _prepare_forward_infra(self, *args, **kwargs):
            return None

        def _prepare_backward_infra(self, *args, **kwargs):
            return None

    def loss(*_):
        return None

    make = schedules.get_schedule_class(name)
    single, on_v, _ = CLASSES[name]
    if single:  # each rank knows its own order only
        rows = {}
        for rank in range(ranks):
            rows.update(make(Stage(rank, rank), micro_batches, loss_fn=loss)._get_pipeline_order() or {})
        made = [cells(rows[rank]) for rank in range(ranks)]
        return {"compute_only": [*made[:-1], from_zero(made[-1], ranks - 1, micro_batches)]}
    mine = [0, 2 * ranks - 1] if on_v else [chunk * ranks for chunk in range(chunks)]
    schedule = make([Stage(index, 0) for index in mine], micro_batches, loss_fn=loss)
    made = {"compute_only": [cells(schedule.pipeline_order[rank]) for rank in range(ranks)]}
    with_messages = getattr(schedule, "pipeline_order_with_comms", None)
    if with_messages:
        made["compute_comms"] = [cells(with_messages[rank]) for rank in range(ranks)]
    return made


def write(folder):
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for name, (single, on_v, _) in CLASSES.items():
        for ranks, micro_batches in SHAPES:
            for chunks in [1] if single else [2] if on_v else [2, 3]:
                made = orders_of(name, ranks, micro_batches, chunks)
                for form, rows in made.items():
                    path = folder / f"{name}-p{ranks}-m{micro_batches}-v{chunks}-{form}.csv"
                    with path.open("w", newline="") as file:
                        csv.writer(file).writerows(rows)
                    written += 1
    (folder / "README").write_text(f"Written by bench/pytorch_schedules.py write, PyTorch {torch.__version__}.\n")
    print(f"{written} files by PyTorch {torch.__version__} in {folder}")


def passes(text):
    """The passes of a CSV file by rank, whole backwards in halves, without pauses, messages and what FSDP does."""
    rows = []
    for line in csv.reader(text.splitlines()):
        row = []
        for cell in line:
            for stage, kind, micro_batch in re.findall(r"(\d+)(F|I|B|W)(\d+)(?![_A-Z])", cell):
                for half in {"B": "IW"}.get(kind, kind):
                    row.append((int(stage), half, int(micro_batch)))
        rows.append(row)
    return rows


def passes_of_weft(weft, schedule, ranks, micro_batches, chunks):
    """The same of Weft's schedule, through a plan and `weft export`."""
    with tempfile.TemporaryDirectory() as folder:
        shape = ["--layers", ranks * chunks, "--hidden", 32, "--heads", 4, "--vocab", 256, "--seq", 32]
        layout = ["--pp", ranks, "--micro-batch", 1, "--global-batch", micro_batches, "--schedule", schedule]
        run([weft, "plan", *shape, "--cluster", f"local:{ranks}", *layout, *(["--vpp", chunks] if chunks > 1 else []),
             "--policy", "serial", "--out", folder])
        out = Path(folder) / "schedule.csv"
        run([weft, "export", Path(folder) / "plan.json", "--to", "torch-pipeline", "-o", out])
        return passes(out.read_text())


def run(command):
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise SystemExit(f"exit code {said.returncode}: {' '.join(map(str, command))}\n{said.stdout}{said.stderr}")
    return said.stdout


def check(folder, weft):
    """Returns the number of files that were refused or have another order."""
    found = [(path, match) for path in sorted(folder.glob("*.csv")) if (match := FILE.fullmatch(path.name))]
    if not found:
        raise SystemExit(f"{folder}: has no file such as GPipe-p2-m4-v1-compute_only.csv; run `write` where PyTorch is")
    faults = 0
    for path, match in found:
        ranks, micro_batches, chunks = (int(match[key]) for key in ("ranks", "micro_batches", "chunks"))
        said = subprocess.run([str(weft), "verify", str(path)], capture_output=True, text=True, check=False)
        verdict = "safe" if said.returncode == 0 else f"REFUSED: {(said.stdout + said.stderr).strip()}"
        faults += said.returncode != 0
        schedule = CLASSES[match["name"]][2]
        if schedule and path.name.endswith("compute_only.csv"):
            same = passes(path.read_text()) == passes_of_weft(weft, schedule, ranks, micro_batches, chunks)
            verdict += f", the order of {schedule}" if same else f", NOT the order of {schedule}"
            faults += not same
        print(f"{path.name}: {verdict}", flush=True)
    print(f"{len(found)} files, {faults} faults")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("weft", type=Path, nargs="?")
    options = parser.parse_args()
    if options.what == "write":
        write(options.folder)
        return 0
    if options.weft is None:
        parser.error("check: needs the path of weft")
    return 1 if check(options.folder, options.weft) else 0


if __name__ == "__main__":
    sys.exit(main())
