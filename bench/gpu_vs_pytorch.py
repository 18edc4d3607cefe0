#!/usr/bin/env python3
"""Steps of `weft run --device cuda` beside PyTorch's on the same GPU, in the same minutes.

    bench/gpu_vs_pytorch.py build/cuda/weft                 # one rank: GPT 1.3B against eager and torch.compile
    bench/gpu_vs_pytorch.py build/cuda/weft --family llama  # one rank: Llama 1.3B
    bench/gpu_vs_pytorch.py build/cuda/weft --ranks 2       # DP against DDP, ZeRO-3 against FSDP2, over NCCL

With several ranks one GPU is shared (tools/gpu_ranks.sh): NCCL talks over sockets on loopback, and the model is GPT
12 x 1024. Both sides train in bf16; Weft keeps an fp32 master copy everywhere. The peer runs first, then Weft's policies, then,
with several ranks, the peer again, because NCCL's times move: a peer's step is the shorter of its two medians. Goals are those
of one H200 (docs/gpu.md).
"""

import argparse
import json
import tempfile
from pathlib import Path

import bench_kit as kit

PEER = Path(__file__).with_name("peer_gpu.py")
ONE = {"layers": 24, "width": 2048, "heads": 16, "vocab": 50304, "seq": 2048, "batch": 8}
SHARED = {"layers": 12, "width": 1024, "heads": 16, "vocab": 8192, "seq": 1024, "batch": 16}
# Of one rank and of several: figure, numerator, denominator, goal.
GOALS = {
    1: [("over_eager", "serial", "eager", 1.0), ("over_compile", "serial", "compile", 1.08)],
    2: [("dp_over_ddp", "dp", "ddp25", 0.82), ("dp_over_larger", "dp", "larger", 1.12), ("zero3_over_fsdp", "zero3", "fsdp", 0.80)],
    4: [("dp_over_ddp", "dp", "ddp25", 0.92)],
}


def gpt_config(sizes):
    return {"model_type": "gpt2", "n_layer": sizes["layers"], "n_embd": sizes["width"], "n_head": sizes["heads"],
            "n_positions": sizes["seq"], "vocab_size": sizes["vocab"]}


def llama_config(sizes):
    return {"model_type": "llama", "num_hidden_layers": sizes["layers"], "hidden_size": sizes["width"],
            "num_attention_heads": sizes["heads"], "num_key_value_heads": sizes["heads"],
            "intermediate_size": -(-8 * sizes["width"] // 3 // 256) * 256, "max_position_embeddings": sizes["seq"],
            "vocab_size": sizes["vocab"], "tie_word_embeddings": True}


CONFIGS = {"gpt": gpt_config, "llama": llama_config}


class Comparison:
    def __init__(self, options, shell, folder):
        self.options, self.shell = options, shell
        self.sizes = dict(ONE if options.ranks == 1 else SHARED)
        if options.batch:
            self.sizes["batch"] = options.batch
        s = self.sizes
        self.model = Path(folder) / "model.json"
        self.model.write_text(json.dumps(CONFIGS[options.family](s)))

    def prefix(self):
        return [] if self.options.ranks == 1 else [kit.ROOT / "tools" / "gpu_ranks.sh", self.options.ranks]

    def peer(self):
        modes = "eager,compile" if self.options.ranks == 1 else "compute,ddp25,fsdp,all_reduce"
        flags = [word for name, value in {**self.sizes, "family": self.options.family}.items() for word in (f"--{name}", value)]
        return self.shell.json([*self.prefix(), self.options.python, "-B", PEER, *flags, "--modes", modes])

    def weft(self, policies, *flags):
        """Milliseconds of a step and what was predicted, by policy."""
        report = self.shell.json([*self.prefix(), self.options.weft, "run", "--device", "cuda", "--model", self.model, "--seq",
                                  self.sizes["seq"], "--micro-batch", self.sizes["batch"], "--grad-dtype", "bf16", "--policy",
                                  policies, "--steps", self.options.steps + 5, "--warm-up", 4, *flags, "--json"])
        found = {}
        for policy in policies.split(","):
            figures = kit.policy_of(report, policy)
            steps = sorted(figures["steps_s"])
            found[policy] = {"step": 1e3 * steps[len(steps) // 2], "predicted": 1e3 * figures["predicted_step_s"]}
        return found


def compare(comparison, ranks):
    before = comparison.peer()
    runs = {"": comparison.weft("serial" if ranks == 1 else "serial,ddp,priority,weft")}
    if ranks > 1:
        runs["zero3 "] = comparison.weft("serial,fsdp,weft", "--zero", 3)
    after = comparison.peer() if ranks > 1 else before
    peers = {mode: min(before[mode], after[mode]) for mode in before if isinstance(before[mode], float)}
    figures = dict(peers)
    rows = [[mode, f"{value:.1f}", "-", "-"] for mode, value in peers.items() if not mode.endswith("_gib")]
    for layout, found in runs.items():
        for policy, run in found.items():
            error = 100 * (run["predicted"] / run["step"] - 1)
            rows.append([f"weft {layout}{policy}", f"{run['step']:.1f}", f"{run['predicted']:.1f}", f"{error:+.1f} %"])
            figures[f"{layout.strip() or 'dp'}_{policy}" if ranks > 1 else policy] = run["step"]
            figures[f"{layout.strip()}{policy}_error_pct"] = error
    kit.print_table(["step of", "ms", "predicted", "error"], rows)
    if ranks > 1:
        figures["larger"] = max(peers["compute"], peers["all_reduce"])
        figures["dp"] = runs[""]["weft"]["step"]
        figures["zero3"] = runs["zero3 "]["weft"]["step"]
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--ranks", type=int, default=1, choices=sorted(GOALS))
    parser.add_argument("--family", default="gpt", choices=sorted(CONFIGS))
    parser.add_argument("--batch", type=int, help="sequences of a rank")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--python", default="python3")
    kit.add_common_flags(parser)
    options = parser.parse_args()
    kit.require_gpu()
    machine, shell = kit.Machine(), kit.Shell(timeout=300)
    with tempfile.TemporaryDirectory() as folder:
        figures = compare(Comparison(options, shell, folder), options.ranks)
    goals = []
    for name, above, below, goal in GOALS[options.ranks]:
        figures[name] = figures[above] / figures[below]
        goals.append(kit.verdict(name, figures[name], f"at most {goal}", figures[name] <= goal))
    return kit.finish("gpu_vs_pytorch", machine, shell, {"figures": figures, "goals": goals}, options)


if __name__ == "__main__":
    kit.run_main(main)
