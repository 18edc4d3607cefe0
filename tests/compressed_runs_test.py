#!/usr/bin/env python3
"""Runs with compressed gradients and weights against numpy and PyTorch: PowerSGD, formats between nodes only, gathered weights.

    tests/compressed_runs_test.py build/release/weft

With a learning rate of 0 the gradients of a step do not depend on what was applied before, and with a momentum of 1 the first
moments in a checkpoint are the sum of all that was applied. So checkpoints of every step say what each step applied, and what
is held back.

PowerSGD: what it applies follows from the sum of gradients over ranks, which a run without compression gives, from the errors
held back and from the basis. Steps behind the first begin with those of the checkpoint; numpy computes them in double
precision, and PyTorch's own powerSGD_hook in two processes that share out the same sums. The first step begins with random
numbers; what it applies must be the projection of the gradients onto its own columns.

Between nodes only: every sequence is the same, so that all ranks have the same gradient, which a run of one rank gives. It is
said again here what must be applied, bit by bit, with the formats of compression_oracle_test.py.

Weights: a run without compression goes on from a checkpoint whose weights numpy has put through the format, shard by shard. One
that gathers weights encoded goes on from the checkpoint as it was, and must apply the same gradients, bit by bit, at ZeRO 1, 2
and 3, and leave weights as they were.

Exit code 77 without numpy. Without PyTorch its part is left out, with a remark.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

try:
    import numpy as np
    from compression_oracle_test import F32, Encoder
except ImportError:
    print("skipped: needs numpy")
    sys.exit(77)

SEQ, HIDDEN, LEAST = 8, 32, 1000
STEPS = 4


def two_levels(folder, nodes, per_node):
    path = os.path.join(folder, f"nodes-{nodes}x{per_node}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"name": "nodes", "device": "cpu", "nodes": nodes, "devices_per_node": per_node, "emulated": True,
                   "levels": [{"name": "shm", "joins": "node", "bandwidth": "40Gb/s", "latency": "10us"},
                              {"name": "nic", "joins": "cluster", "bandwidth": "4Gb/s", "latency": "20us"}]}, file)
    return path


def run(weft, checkpoints, cluster, steps, *more):
    command = [weft, "run", "--layers", "1", "--hidden", str(HIDDEN), "--heads", "2", "--seq", str(SEQ), "--micro-batch",
               "1", "--cluster", cluster, "--optimizer", "sgd", "--momentum", "1", "--lr", "0", "--steps", str(steps),
               "--warm-up", "0", "--checkpoint", checkpoints, "--checkpoint-every", "1", "--keep-checkpoints", "99", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")


class Checkpoint:
    """All pieces of one step, by kind and tensor."""

    def __init__(self, checkpoints, step):
        self.folder = folder = os.path.join(checkpoints, f"step-{step:08d}")
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            self.files = json.load(file)["files"]
        self.pieces = []
        for file in self.files:
            with open(os.path.join(folder, file["name"]), "rb") as shard:
                data = shard.read()
            for piece in file["pieces"]:
                count = piece["elements"][1] - piece["elements"][0]
                numbers = np.frombuffer(data, F32, count, piece["offset"])
                self.pieces.append((piece, numbers))

    def change(self, weights):
        """Writes other numbers to the places of weights, and the checksums that follow from them."""
        for file in self.files:
            path = os.path.join(self.folder, file["name"])
            with open(path, "r+b") as shard:
                for piece in file["pieces"]:
                    if piece["kind"] != "weight":
                        continue
                    (top, bottom), (left, right) = piece["rows"], piece["columns"]
                    part = weights[piece["tensor"]][top:bottom, left:right].ravel()
                    shard.seek(piece["offset"])
                    shard.write(part[piece["elements"][0]:piece["elements"][1]].astype(F32).tobytes())
            with open(path, "rb") as shard:
                file["crc32"] = zlib.crc32(shard.read())
        path = os.path.join(self.folder, "manifest.json")
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        manifest["files"] = self.files
        del manifest["crc32"]
        manifest["crc32"] = zlib.crc32(json.dumps(manifest, separators=(",", ":"), ensure_ascii=False).encode())
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file)

    def shapes(self):
        shapes = {}
        for piece, _ in self.pieces:
            if piece["kind"] == "weight":
                rows, columns = shapes.get(piece["tensor"], (0, 0))
                shapes[piece["tensor"]] = (max(rows, piece["rows"][1]), max(columns, piece["columns"][1]))
        return shapes

    def sums(self, *kinds, dtype=np.float64):
        """Tensors of these kinds, added up over all pieces."""
        found = {name: np.zeros(shape, dtype) for name, shape in self.shapes().items()}
        for piece, numbers in self.pieces:
            if piece["kind"] not in kinds:
                continue
            (top, bottom), (left, right) = piece["rows"], piece["columns"]
            part = np.zeros((bottom - top) * (right - left), dtype)
            part[piece["elements"][0]:piece["elements"][1]] = numbers
            found[piece["tensor"]][top:bottom, left:right] += part.reshape(bottom - top, right - left)
        return found

    def bases(self):
        return {piece["tensor"]: numbers.reshape(-1, piece["columns"][1]).T.astype(np.float64)
                for piece, numbers in self.pieces if piece["kind"] == "basis"}


def by_parameter(shapes):
    """Tensors of one parameter lie one after the other: a matrix and its bias."""
    parameters = {}
    for name in shapes:
        parameters.setdefault(name.rsplit(".", 1)[0], []).append(name)
    return parameters


def applied_in(checkpoints, steps):
    moments = [Checkpoint(checkpoints, step).sums("first_moment") for step in range(1, steps + 1)]
    return [moments[0]] + [{name: now[name] - before[name] for name in now} for before, now in zip(moments, moments[1:])]


def expect_near(found, expected, tolerance, what):
    scale = np.abs(expected).max()
    off = np.abs(found - expected).max() / scale
    assert off <= tolerance, f"{what}: off by {off:.2e} of the largest, more than {tolerance:.0e}"
    return off


def has_factors(shape, rank):
    rank = min(rank, *shape)
    return min(shape) > 1 and (shape[0] + shape[1]) * rank * 2 < shape[0] * shape[1]


def check_power_sgd(weft, folder, rank, ranks, zero, policy, stops_at):
    """A run that stops and goes on must apply the same: errors and basis are those of the checkpoint."""
    plain, factored = os.path.join(folder, "plain"), os.path.join(folder, "factored")
    more = ["--policy", policy, "--zero", str(zero)]
    run(weft, plain, f"local:{ranks}", STEPS, *more)
    more += ["--compress", f"gradients=power-sgd:{rank}", "--compress-min", str(LEAST)]
    run(weft, factored, f"local:{ranks}", stops_at, *more)
    if stops_at < STEPS:
        run(weft, factored, f"local:{ranks}", STEPS, *more, "--resume")
    gradients, applied = applied_in(plain, STEPS), applied_in(factored, STEPS)
    saved = [Checkpoint(factored, step) for step in range(1, STEPS + 1)]
    held = [one.sums("gradient_error", "sum_error") for one in saved]
    worst, cases = 0, []
    for names in by_parameter(saved[0].shapes()).values():
        shapes = {name: gradients[0][name].shape for name in names}
        large = sum(rows * columns for rows, columns in shapes.values()) >= LEAST
        compressed = large and any(has_factors(shape, rank) for shape in shapes.values())
        for name in names:
            if not (compressed and has_factors(shapes[name], rank)):
                assert name not in saved[0].bases(), f"{name} has a basis"
                for step in range(STEPS):
                    expect_near(applied[step][name], gradients[step][name], 3e-5, f"{name}, step {step}, as it is")
                continue
            columns, _, _ = np.linalg.svd(applied[0][name], full_matrices=False)
            columns = columns[:, :rank]
            expect_near(columns @ (columns.T @ gradients[0][name]), applied[0][name], 1e-4, f"{name}, projection")
            for step in range(1, STEPS):
                total = gradients[step][name] + held[step - 1][name]
                left, _ = np.linalg.qr(total @ saved[step - 1].bases()[name])
                expected = left @ (left.T @ total)
                worst = max(worst, expect_near(applied[step][name], expected, 1e-4, f"{name}, step {step}"))
                expect_near(held[step][name], total - expected, 1e-4, f"{name}, errors of step {step}")
            cases.append((name, [gradients[s][name] for s in range(1, STEPS)], held[0][name], saved[0].bases()[name],
                          [applied[s][name] for s in range(1, STEPS)]))
    assert cases, "no tensor has factors"
    print(f"power-sgd:{rank}, {ranks} ranks, ZeRO {zero}, {policy}, stopped after {stops_at}: {len(cases)} matrices, {STEPS} steps, off by at most "
          f"{worst:.1e}")
    return cases


HOOK = '''
import os, sys, numpy as np, torch, torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + folder + "/store", rank=rank, world_size=2)
case = np.load(folder + "/case.npz")
shape, columns = case["held"].shape, case["basis"].shape[1]
weight = torch.nn.Parameter(torch.zeros(*shape))
module = torch.nn.Module(); module.weight = weight
module.forward = lambda share: (module.weight * share).sum()
ddp = torch.nn.parallel.DistributedDataParallel(module)
state = power.PowerSGDState(None, matrix_approximation_rank=columns, start_powerSGD_iter=2)
state.iter = state.start_powerSGD_iter
state.p_memory_dict[0] = torch.zeros(shape[0] * columns)
state.q_memory_dict[0] = torch.tensor(case["basis"], dtype=torch.float32).reshape(-1).contiguous()
share = (0.25, 0.75)[rank]  # of what both have; the hook takes the mean, so each has twice its share of the sum
state.error_dict[0] = torch.tensor(2 * share * case["held"], dtype=torch.float32).reshape(-1)
ddp.register_comm_hook(state, power.powerSGD_hook)
generator = np.random.default_rng(7)
found = []
for gradient in case["gradients"]:
    apart = generator.standard_normal(shape) * np.abs(gradient).max() * (1, -1)[rank]
    weight.grad = None
    ddp(torch.tensor(2 * (share * gradient + apart), dtype=torch.float32)).backward()
    found.append(weight.grad.numpy().copy())
if rank == 0: np.save(folder + "/found.npy", np.array(found))
dist.barrier()
os._exit(0)  # threads of PyTorch 1.13's DDP may end the process with an error while Python closes down
'''


def check_against_pytorch(python, folder, case):
    name, gradients, held, basis, applied = case
    np.savez(os.path.join(folder, "case.npz"), gradients=np.array(gradients), held=held, basis=basis)
    script = os.path.join(folder, "hook.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(HOOK)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([python, script, str(rank), folder], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(said)
    found = np.load(os.path.join(folder, "found.npy"))
    worst = max(expect_near(ours, theirs, 2e-4, f"{name} against PyTorch") for ours, theirs in zip(applied, found))
    print(f"PyTorch's powerSGD_hook, {name} {held.shape}: {len(applied)} steps, off by at most {worst:.1e}")


def expected_between_nodes(encoder, gradient, nodes, per_node, zero, steps):
    """What each step applies of one parameter. All ranks have the same gradient, so members of all nodes do alike."""
    ranks, elements = nodes * per_node, len(gradient)
    shard = -(-elements // ranks)
    share = gradient / F32(ranks)  # of a rank, exact for powers of two
    of_node = share.copy()
    for _ in range(per_node - 1):
        of_node = of_node + share
    errors, sum_errors, applied = np.zeros_like(gradient), np.zeros_like(gradient), []
    for _ in range(steps):
        total = np.empty_like(gradient)
        for begin in range(0, elements, shard):
            part = slice(begin, min(begin + shard, elements))
            decoded, left = encoder.sent(of_node[part], errors[part], 0, 0)
            if zero < 2:  # ZeRO 2 and 3 keep no errors
                errors[part] = left
            total[part] = decoded
            for _ in range(nodes - 1):
                total[part] = total[part] + decoded
            if zero == 0 and nodes > 2:
                total[part], sum_errors[part] = encoder.sent(total[part], sum_errors[part], 0, 0)
        applied.append(total)
    return applied


def check_between_nodes(weft, folder, name, nodes, zero, policy):
    per_node, text = 2, os.path.join(folder, "text")
    with open(text, "w", encoding="utf-8") as file:
        file.write("weaving " * 4096)
    one, levels = os.path.join(folder, "one"), os.path.join(folder, "levels")
    run(weft, one, "local:1", 1, "--data", text, "--policy", "serial")
    run(weft, levels, two_levels(folder, nodes, per_node), STEPS, "--data", text, "--policy", policy, "--zero", str(zero),
        "--compress", f"gradients={name}@node", "--compress-min", str(LEAST))
    gradients = Checkpoint(one, 1).sums("first_moment", dtype=F32)
    saved = [Checkpoint(levels, step).sums("first_moment", dtype=F32) for step in range(1, STEPS + 1)]
    compared = 0
    for parameter, names in by_parameter(gradients).items():
        gradient = np.concatenate([gradients[tensor].ravel() for tensor in names])
        if len(gradient) < LEAST or (zero > 1 and parameter == "embedding"):  # its two gradients travel apart there
            continue
        moment = np.zeros_like(gradient)
        for step, applied in enumerate(expected_between_nodes(Encoder(name), gradient, nodes, per_node, zero, STEPS)):
            moment = moment + applied
            found = np.concatenate([saved[step][tensor].ravel() for tensor in names])
            differ = np.flatnonzero(found != moment)
            assert len(differ) == 0, (f"{parameter}, step {step}: {len(differ)} of {len(found)} differ, the first at "
                                      f"{differ[0]}: {found[differ[0]]!r}, numpy has {moment[differ[0]]!r}")
            compared += len(found)
        assert np.any(moment != STEPS * gradient), f"{parameter}: nothing was rounded"
    assert compared, "nothing was compressed"
    print(f"{name}@node, {nodes} nodes of {per_node}, ZeRO {zero}, {policy}: {compared} sums equal to numpy's bit by bit")


def check_weights(weft, folder, name, ranks, zero, policy):
    text = os.path.join(folder, "text")
    with open(text, "w", encoding="utf-8") as file:
        file.write("weaving " * 4096)
    encoded, rounded = os.path.join(folder, "encoded"), os.path.join(folder, "rounded")
    always = ["--data", text, "--global-batch", str(ranks)]
    run(weft, encoded, "local:1", 1, *always, "--policy", "serial")
    shutil.copytree(encoded, rounded)
    saved, encoder, changed = Checkpoint(rounded, 1), Encoder(name), 0
    weights = saved.sums("weight", dtype=F32)
    for names in by_parameter(weights).values():
        whole = np.concatenate([weights[tensor].ravel() for tensor in names])
        if len(whole) < LEAST:
            continue
        shard = -(-len(whole) // ranks)
        for begin in range(0, len(whole), shard):
            part = slice(begin, min(begin + shard, len(whole)))
            decoded, _ = encoder.sent(whole[part], np.zeros_like(whole[part]), 0, 0)
            changed += np.count_nonzero(decoded != whole[part])
            whole[part] = decoded
        at = 0
        for tensor in names:
            size = weights[tensor].size
            weights[tensor] = whole[at:at + size].reshape(weights[tensor].shape)
            at += size
    assert changed, "nothing was rounded"
    saved.change(weights)
    steps = 2 + (zero < 3)  # at ZeRO 1 and 2 the second step behind the checkpoint reads what the first one gathered
    always += ["--zero", str(zero), "--resume"]
    run(weft, rounded, f"local:{ranks}", steps, *always, "--policy", "serial")
    run(weft, encoded, f"local:{ranks}", steps, *always, "--policy", policy, "--compress", f"weights={name}",
        "--compress-min", str(LEAST))
    expected = Checkpoint(rounded, steps).sums("first_moment", dtype=F32)
    found = Checkpoint(encoded, steps)
    for tensor, numbers in found.sums("first_moment", dtype=F32).items():
        differ = np.count_nonzero(numbers != expected[tensor])
        assert differ == 0, f"{tensor}: {differ} of {numbers.size} differ"
    kept, before = found.sums("weight", dtype=F32), Checkpoint(encoded, 1).sums("weight", dtype=F32)
    assert all(np.array_equal(kept[tensor], before[tensor]) for tensor in kept), "shards were rounded"
    print(f"weights {name}, {ranks} ranks, ZeRO {zero}, {policy}: {changed} weights rounded as numpy does, equal gradients")


def main():
    weft = sys.argv[1]
    cases = []
    for rank, ranks, zero, policy, stops_at in ((2, 2, 0, "serial", STEPS), (4, 3, 0, "ddp", 2), (1, 4, 1, "priority", 1),
                                                (3, 2, 1, "weft", STEPS)):
        with tempfile.TemporaryDirectory() as folder:
            cases = check_power_sgd(weft, folder, rank, ranks, zero, policy, stops_at) or cases
    for name, nodes, zero, policy in (("int8", 2, 0, "serial"), ("int8", 2, 1, "ddp"), ("int4", 4, 0, "priority"),
                                      ("fp8-e4m3", 4, 1, "serial"), ("bf16", 2, 0, "weft"), ("onebit", 4, 0, "ddp"),
                                      ("int8", 2, 2, "serial"), ("int4", 4, 3, "fsdp")):
        with tempfile.TemporaryDirectory() as folder:
            check_between_nodes(weft, folder, name, nodes, zero, policy)
    for name, ranks, zero, policy in (("int8", 2, 1, "serial"), ("int4", 4, 1, "priority"), ("fp8-e4m3", 2, 2, "weft"),
                                      ("int8", 4, 2, "megatron-param"), ("bf16", 2, 3, "fsdp"), ("int8", 4, 3, "serial")):
        with tempfile.TemporaryDirectory() as folder:
            check_weights(weft, folder, name, ranks, zero, policy)
    if subprocess.run([sys.executable, "-c", "import torch.distributed"], capture_output=True, check=False).returncode:
        print("PyTorch's hook is left out: this Python has no torch")
        return 0
    for case in cases[:2]:
        with tempfile.TemporaryDirectory() as folder:
            check_against_pytorch(sys.executable, folder, case)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(error)
        sys.exit(1)
