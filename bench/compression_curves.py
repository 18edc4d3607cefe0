#!/usr/bin/env python3
"""What compressed gradients do to training: the same run in every format, losses step by step, drawn as one figure.

    bench/compression_curves.py build/release/weft                           # all formats, 100 steps, a figure in out/curves
    bench/compression_curves.py build/release/weft --formats int8,int4 --steps 300 --zero 1

Ranks are threads without paced links, on the generated corpus, so only the losses are of interest and not the times. The first
run leaves gradients as they are; each of the others prints how far its losses are from that one's (weft run --losses-of), and
how much of the gradients its last step held back. A format that diverges ends its run with words and is drawn up to there.
Every format but onebit, ternary, top-k and random-k, which need smaller learning rates, must end within --within percent of the uncompressed loss.
"""

import argparse
import json
import tempfile
from pathlib import Path

import bench_kit as kit

FORMATS = ["bf16", "fp16", "int8", "int8-stochastic", "fp8-e4m3", "fp8-e5m2", "int4", "int4-stochastic", "onebit", "ternary",
           "top-k", "random-k"]
COARSE = ["onebit", "ternary", "top-k", "random-k"]
SIZES = {"layers": 2, "hidden": 64, "heads": 4, "seq": 32, "micro-batch": 4}
PLAIN = "uncompressed"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--formats", default=",".join(FORMATS), help="with commas between (default: all)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--zero", type=int, default=0, choices=(0, 1))
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=5, metavar="PERCENT", help="of the uncompressed loss at the end (default: 5)")
    parser.add_argument("--folder", default="out/curves", help="for curves.json and curves.svg (default: out/curves)")
    for name, value in SIZES.items():
        parser.add_argument("--" + name, type=int, default=value)
    kit.add_common_flags(parser)
    options = parser.parse_args()
    options.formats = options.formats.split(",")
    for name in options.formats:
        if name not in FORMATS:
            parser.error(f"--formats {name}: must be of {', '.join(FORMATS)}")
    return options


class Curves:
    def __init__(self, options, shell, folder):
        self.options, self.shell, self.folder = options, shell, Path(folder)
        self.policies, self.rows, self.diverged = {}, [], {}

    def train(self, name, flags):
        """The figures of the run, or None where it diverged."""
        sizes = [word for size in SIZES for word in (f"--{size}", getattr(self.options, size.replace("-", "_")))]
        command = [self.options.weft, "run", *sizes, "--vocab", 256, "--cluster", f"local:{self.options.ranks},nic=100Gb/s",
                   "--zero", self.options.zero, "--lr", self.options.lr, "--seed", self.options.seed, "--steps",
                   self.options.steps, "--policy", "ddp", "--profile", self.profile(sizes), *flags, "--json"]
        try:
            said = self.shell.run(command)
        except kit.Broken as error:
            words = [line for line in str(error).splitlines() if "diverges" in line or "finite" in line]
            if not words:
                raise
            self.diverged[name] = words[-1].strip()
            print(f"{name}: {self.diverged[name]}", flush=True)
            return None
        (self.folder / f"{name}.json").write_text(said)
        figures = kit.policy_of(json.loads(said), "ddp")
        self.policies[name] = {"losses": figures["losses"]}
        if "compression_errors" in figures:
            self.policies[name]["compression_errors"] = figures["compression_errors"]
        return figures

    def profile(self, sizes):
        """Times do not matter here, so the machine is measured once and not for long."""
        path = self.folder / "profile" / "profile.json"
        if not path.exists():
            self.shell.run([self.options.weft, "calibrate", *sizes, "--vocab", 256, "--cluster",
                            f"local:{self.options.ranks},nic=100Gb/s", "--zero", self.options.zero, "--calibrate-seconds",
                            0.5, "--out", path.parent])
        return path

    def measure(self):
        plain = self.train(PLAIN, [])
        if plain is None:
            raise kit.Broken(f"{PLAIN}: {self.diverged[PLAIN]}")
        self.rows.append([PLAIN, f"{plain['losses'][0]:.4f}", f"{plain['losses'][-1]:.4f}", "-", "-", "-"])
        for name in self.options.formats:
            figures = self.train(name, ["--compress", f"gradients={name}", "--compress-min", 256, "--losses-of",
                                        self.folder / f"{PLAIN}.json"])
            if figures is None:
                self.rows.append([name, "-", "diverges", "-", "-", "-"])
                continue
            differences = figures["loss_differences_pct"]
            self.rows.append([name, f"{figures['losses'][0]:.4f}", f"{figures['losses'][-1]:.4f}",
                              f"{differences[-1]:+.2f} %", f"{max(differences, key=abs):+.2f} %",
                              f"{figures['compression_errors'][-1]:.4f}"])

    def draw(self):
        """Our own figures draw it: what `weft run --json` prints of policies, with formats in their place."""
        version = json.loads((self.folder / f"{PLAIN}.json").read_text())["version"]
        target = Path(self.options.folder)
        target.mkdir(parents=True, exist_ok=True)
        curves, figure = target / "curves.json", target / "curves.svg"
        curves.write_text(json.dumps({"version": version, "best": PLAIN, "policies": self.policies}, indent=1) + "\n")
        self.shell.run([self.options.weft, "report", curves, "--view", "losses", "--title",
                        f"Gradients in every format, {self.options.ranks} ranks, ZeRO {self.options.zero}", "--svg", figure])
        print(f"written: {curves}, {figure}")

    def goals(self):
        goals = []
        for name in self.options.formats:
            if name in COARSE:
                continue
            if name in self.diverged:
                goals.append(kit.verdict(f"{name}: loss against uncompressed in %", float("inf"),
                                         f"<= {self.options.within:g}", False))
                continue
            plain, own = self.policies[PLAIN]["losses"][-1], self.policies[name]["losses"][-1]
            off = 100 * (own / plain - 1)
            goals.append(kit.verdict(f"{name}: last loss against uncompressed in %", off, f"<= {self.options.within:g}",
                                     off <= self.options.within))
        return goals


def main():
    options = arguments()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    with tempfile.TemporaryDirectory() as folder:
        curves = Curves(options, shell, folder)
        curves.measure()
        print()
        kit.print_table(["gradients as", "first loss", "last loss", "against uncompressed", "furthest off", "held back"],
                        curves.rows)
        curves.draw()
        result = {"policies": curves.policies, "diverged": curves.diverged, "goals": curves.goals()}
    return kit.finish("compression_curves", machine, shell, result, options)


if __name__ == "__main__":
    kit.run_main(main)
