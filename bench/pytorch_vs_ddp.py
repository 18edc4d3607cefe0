#!/usr/bin/env python3
"""A GPT in plain PyTorch: its steps with weft.torch against those with DistributedDataParallel at its best bucket size.

    bench/pytorch_vs_ddp.py                 # 2 ranks in namespaces with 200 Mbit links (root); 4 minutes
    bench/pytorch_vs_ddp.py --gpu           # 2 ranks that share a GPU by MPS, 12 layers of 1024; 1 minute

All of it is one job of two ranks (bench/peer_pytorch.py): first a short search for DDP's bucket size, then rounds in which
DDP and Weft take turns, with as many steps as --seconds leave. Goals: at most 0.82 x DDP, on a GPU 0.85 x.

Needs build/release/libweft_embed.so (not with --gpu) and a Python with PyTorch (--python; Debian's is /usr/bin/python3).
Exit code 1 where something fails, or with --require where a goal is missed; 77 where namespaces are not permitted.
"""

import argparse
import sys
from pathlib import Path

import bench_kit as kit

PEER = Path(__file__).with_name("peer_pytorch.py")
ON_LINKS = {"layers": 4, "width": 512, "batch": 9, "seq": 128, "vocab": 256, "heads": 8}
ON_GPU = {"layers": 12, "width": 1024, "batch": 16, "seq": 1024, "vocab": 8192, "heads": 16}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="two ranks on one GPU instead of namespaces")
    parser.add_argument("--rate", default="200mbit", help="of the links between namespaces (default: 200mbit)")
    parser.add_argument("--buckets", help="MiB to try for DDP (default: 25,8,4,2,1; on a GPU 25,50)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="that count, of every turn, at most (default: 10)")
    parser.add_argument("--search-steps", type=int, default=2, help="for each bucket size tried (default: 2)")
    parser.add_argument("--seconds", type=float, default=240, help="for all of it, about (default: 240)")
    parser.add_argument("--communicators", default="0", help="of weft.torch on a GPU, with commas between; the goal is for the first (default: 0)")
    parser.add_argument("--python", help="with PyTorch (default: /usr/bin/python3; on a GPU this one)")
    for name in ON_LINKS:
        parser.add_argument("--" + name, type=int)
    kit.add_common_flags(parser)
    parser.set_defaults(timeout=900)
    return parser.parse_args()


def command(options):
    """The words that start both ranks, and what is added to their environment."""
    sizes = {name: getattr(options, name) or value for name, value in (ON_GPU if options.gpu else ON_LINKS).items()}
    flags = [word for name, value in sizes.items() for word in (f"--{name}", value)]
    flags += ["--rounds", options.rounds, "--steps", options.steps, "--search-steps", options.search_steps,
              "--seconds", options.seconds, "--communicators", options.communicators, "--buckets", options.buckets or ("25,50" if options.gpu else "25,8,4,2,1")]
    if options.gpu:
        return [kit.ROOT / "tools" / "gpu_ranks.sh", 2, options.python or sys.executable, "-B", PEER, "--device", "cuda", *flags], {}
    prefix = kit.Namespaces(options.rate).prefix(2, "tcp")
    return [*prefix, options.python or "/usr/bin/python3", "-B", PEER, *flags], {"GLOO_SOCKET_IFNAME": "eth0"}


def show(report):
    print("DDP by bucket: " + ", ".join(f"{name[4:]} MiB {1e3 * step:.0f} ms" for name, step in report["ddp_by_bucket_s"].items()))
    lines = [[f"PyTorch DDP, {report['best_bucket_mib']:g} MiB", f"{1e3 * report['ddp_s']:.1f}", "-", "1.000"]]
    for name, ratio in report["over_ddp_of"].items():
        ours = report["facts"][name]
        lanes = f", {ours['report']['communicators']} communicators" if "communicators" in ours["report"] else ""
        plan = f"{ours['transfers']} transfers" if "transfers" in ours else "no plan"
        predicted = ours["report"].get("predicted_step_s")
        lines.append([f"weft.torch, {plan}{lanes}{'' if name == 'weft' else ' (given)'}", f"{1e3 * ratio * report['ddp_s']:.1f}",
                      f"{1e3 * predicted:.1f}" if predicted else "-", f"{ratio:.3f}"])
    kit.print_table(["who", "median ms", "predicted ms", "x DDP"], lines)
    for name, seconds in report["facts"]["weft"]["report"].get("tried", {}).items():
        print(f"its own choice tried {name}: {1e3 * seconds:.1f} ms a step")


def main():
    options = arguments()
    kit.require_gpu() if options.gpu else kit.Namespaces(options.rate).require()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    words, environment = command(options)
    report = shell.json(words, environment)
    show(report)
    losses = [report["facts"][who]["loss"] for who in ("ddp", "weft")]
    if not abs(losses[1] - losses[0]) <= (2e-2 if options.gpu else 1e-5) * abs(losses[0]):  # bf16 on a GPU
        raise kit.Broken(f"DDP and Weft train to losses of {losses[0]} and {losses[1]}")
    goal = 0.85 if options.gpu else 0.82
    goals = [kit.verdict("weft.torch over DDP", report["over_ddp"], f"<= {goal}", report["over_ddp"] <= goal)]
    figures = {"step_ms": 1e3 * report["weft_s"], "ddp_ms": 1e3 * report["ddp_s"], "over_ddp": report["over_ddp"]}
    return kit.finish("pytorch_vs_ddp", machine, shell, {"report": report, "losses": losses, "goals": goals, "figures": figures}, options)


if __name__ == "__main__":
    kit.run_main(main)
