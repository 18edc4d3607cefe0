#!/usr/bin/env python3
"""Training steps of a small GPT by Weft and by PyTorch eager, in turns, on one machine with the same threads.

    bench/compute_vs_pytorch.py build/release/bench/training_step_bench [--layers 4 --width 512 --batch 9 --seq 128]
    bench/compute_vs_pytorch.py build/release/weft --runtime [--rounds 3]

The first form times Weft's kernels, one after the other; the losses of every step must agree, or it exits with 1. The
second times `weft run` on one rank, so the executor is in it, and says what the executor takes: the share of a step in
which nothing is computed; the losses are tests/run_oracle_test.py's business. `speed` is PyTorch's median step over
Weft's, so above 1 Weft is faster; `speed_by_processor_time` says the same where other programs are running. Goals of the
second form: speed >= 0.95, executor < 1 %; exit code 1 with --require where one is missed. It ends with a line of JSON.
Needs a Python with PyTorch (Debian: /usr/bin/python3 with python3-torch).
"""
import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_kit as kit

try:
    import peer_gpt
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} has no PyTorch ({error}); Debian's is /usr/bin/python3 with python3-torch")
    sys.exit(kit.SKIPPED)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    peer_gpt.add_size_flags(parser)
    for name, value in (("threads", 1), ("steps", 10), ("warm", 3)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--runtime", action="store_true", help="the program is weft: `weft run` on one rank")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both with --runtime (default: 3)")
    kit.add_common_flags(parser)
    return parser.parse_args()


class Peer:
    def __init__(self, a):
        peer_gpt.limit_threads(a.threads)
        torch.manual_seed(0)
        self.model = peer_gpt.Gpt(a)
        self.tokens, self.targets = torch.randint(0, a.vocab, (2, a.batch, a.seq))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self):
        """Seconds, seconds of processor time, loss."""
        start, busy_start = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad(set_to_none=True)
        loss = peer_gpt.loss_of(self.model, self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, time.process_time() - busy_start, loss.item()

    def write(self, file):
        flat = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        for values in (flat, self.tokens.reshape(-1), self.targets.reshape(-1)):
            values.numpy().tofile(file)
        file.flush()


def compare_kernels(a, peer):
    """Times of Weft's and PyTorch's steps, wall and processor, step by step in turns."""
    with tempfile.NamedTemporaryFile() as file:
        peer.write(file)
        sizes = [str(size) for size in (a.threads, a.layers, a.width, a.batch, a.seq, a.vocab, a.heads)]
        weft = subprocess.Popen([a.program, file.name, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def weft_step():
            weft.stdin.write("\n")
            weft.stdin.flush()
            return [float(word) for word in weft.stdout.readline().split()]

        ours, theirs = [], []
        for step in range(a.warm + a.steps):
            (*our_times, our_loss), (*peer_times, peer_loss) = weft_step(), peer.step()
            if not abs(our_loss - peer_loss) <= 1e-4 * peer_loss:
                sys.exit(f"step {step}: Weft's loss is {our_loss}, PyTorch's {peer_loss}")
            if step >= a.warm:
                ours.append(our_times)
                theirs.append(peer_times)
        weft.stdin.close()
        weft.wait()
    our_step, our_busy = (statistics.median(times) for times in zip(*ours))
    peer_step, peer_busy = (statistics.median(times) for times in zip(*theirs))
    return {"loss": our_loss, "weft_s": round(our_step, 4), "pytorch_s": round(peer_step, 4),
            "speed": round(peer_step / our_step, 3), "speed_by_processor_time": round(peer_busy / our_busy, 3)}


def weft_turn(a, shell, model):
    """The report of one `weft run`."""
    # One step more: the last has no next one to be timed by.
    return shell.json([a.program, "run", "--model", model, "--cluster", "local:1", "--seq", a.seq, "--micro-batch",
                       a.batch, "--policy", "serial", "--threads", a.threads, "--steps", a.warm + a.steps + 1,
                       "--warm-up", a.warm, "--calibrate-seconds", 1, "--json"])


def compare_runtime(a, peer, shell):
    parameters = sum(parameter.numel() for parameter in peer.model.parameters())
    ours, theirs, idle = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.json"
        model.write_text(json.dumps({"model_type": "gpt2", "n_layer": a.layers, "n_embd": a.width, "n_head": a.heads,
                                     "n_positions": a.seq, "vocab_size": a.vocab}))
        for _ in range(a.rounds):
            report = weft_turn(a, shell, model)
            figures = kit.policy_of(report, "serial")
            if report["model"]["parameters"] != parameters:
                raise kit.Broken(f"Weft trains {report['model']['parameters']} parameters, PyTorch {parameters}")
            ours += figures["steps_s"]
            computing = figures["compute_s"] + figures["slowdown_s"]  # the spans of compute, however long they took
            idle.append(1 - computing / figures["step_s"])
            times = [peer.step()[0] for _ in range(a.warm + a.steps)]
            theirs += times[a.warm:]
    our_step, peer_step = statistics.median(ours), statistics.median(theirs)
    overhead = 100 * statistics.median(idle)
    kit.print_table(["who", "steps", "median ms", "min", "max"],
                    [[name, str(len(times)), *(f"{1e3 * value:.1f}" for value in
                                               (statistics.median(times), min(times), max(times)))]
                     for name, times in (("weft run", ours), ("PyTorch", theirs))])
    print()
    goals = [kit.verdict("speed, PyTorch's step over Weft's", peer_step / our_step, ">= 0.95",
                         peer_step / our_step >= 0.95),
             kit.verdict("executor's share of a step in %", overhead, "< 1", overhead < 1)]
    headline = {"weft_ms": 1e3 * our_step, "pytorch_ms": 1e3 * peer_step, "speed": peer_step / our_step,
                "executor_pct": overhead}
    return {"figures": headline, "weft_s": our_step, "pytorch_s": peer_step, "speed": peer_step / our_step, "executor_pct": overhead,
            "weft_steps_s": ours, "pytorch_steps_s": theirs, "goals": goals}


def main():
    a = arguments()
    peer = Peer(a)
    facts = {"torch": torch.__version__, "attention": peer_gpt.ATTENTION,
             **{name: getattr(a, name) for name in ("layers", "width", "batch", "seq", "vocab", "heads", "threads", "steps",
                                                    "warm")}}
    if not a.runtime:
        result = {"bench": "compute_vs_pytorch", "machine": platform.machine(), **facts, **compare_kernels(a, peer)}
        print(json.dumps(result))
        if a.out:
            Path(a.out).write_text(json.dumps(result) + "\n")
        return 0
    machine, shell = kit.Machine(), kit.Shell(a.timeout, a.verbose)
    result = compare_runtime(a, peer, shell)
    code = kit.finish("compute_vs_pytorch", machine, shell, {"settings": facts, **result}, a)
    print(json.dumps({"bench": "compute_vs_pytorch --runtime", "machine": machine.facts["cpu"], **facts,
                      **{key: round(result[key], 4) for key in ("weft_s", "pytorch_s", "speed", "executor_pct")}}))
    return code


if __name__ == "__main__":
    kit.run_main(main)
