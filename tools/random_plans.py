#!/usr/bin/env python3
"""Plans random layouts with `weft plan --json` and checks what every answer must fulfil.

    tools/random_plans.py WEFT [--count N] [--seed S] [--jobs J] [--timeout SECONDS] [--budget SECONDS]

Each layout either gives a plan for every policy or is refused in words with exit code 2. In every plan the terms of
the accounting add up to the step, on the mean and on every stage; the bound is not above the step; what is live fits
into what is placed; `fits` says what the bytes say; `best` is the fastest that fits; `weft` is not slower than any
other. Every tenth layout also writes its files, and `weft verify` must agree; every tenth is planned twice and must
come out the same. The same seed gives the same layouts.

Prints a line for every failure with the command that shows it again, a progress line, and `N passed, N failed`.
Exits 1 where one failed.
"""
import argparse
import concurrent.futures
import json
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ["dp_grad", "param_gather", "tp", "pp", "cp", "ep", "other"]
TERMS = ["compute_s", "slowdown_s", "exposed_comm_s", "bubble_s", "idle_s"]
RELATIVE = 1e-9
BAD_INPUT = 2
EVERY = 10


class Violation(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Violation(what)


def near(a, b, scale):
    return abs(a - b) <= RELATIVE * max(abs(scale), 1e-12)


# --- Layouts ---------------------------------------------------------------------------------------------------------


def random_model(rng):
    """Flags, and the numbers that the layout must fit: small models, so that a plan takes a second."""
    layers = rng.choice([2, 3, 4, 5, 6, 8])
    experts = rng.random() < 0.25
    shape = rng.random()
    if experts and shape < 0.5:
        flags = ["--model", rng.choice(["gpt2-s-moe", "mixtral-8x7b"]), "--layers", layers]
        heads, seq, count = 4, rng.choice([256, 512, 1024]), 8
        flags += ["--experts", count]
    elif shape < 0.5:
        preset = rng.choice(["gpt2", "gpt2-medium", "llama2-7b", "llama3-8b", "megatron-1.7b"])
        flags = ["--model", preset, "--layers", layers]
        heads, seq, count = 4, rng.choice([256, 512, 1024]), 0
    else:
        heads = rng.choice([2, 4, 8, 16])
        hidden = heads * rng.choice([16, 32, 64, 128])
        seq, count = rng.choice([32, 64, 128, 512]), 0
        flags = ["--layers", layers, "--hidden", hidden, "--heads", heads, "--vocab", rng.choice([128, 1000, 32000])]
        if rng.random() < 0.3:
            flags += ["--kv-heads", rng.choice([n for n in (1, 2, 4, 8) if heads % n == 0])]
        if experts:
            count = rng.choice([4, 8, 16])
            flags += ["--experts", count]
    if count:
        if rng.random() < 0.5:
            flags += ["--top-k", rng.choice([1, 2])]
        if rng.random() < 0.5:
            flags += ["--capacity-factor", rng.choice([0, 1, 1.25, 2])]
        if rng.random() < 0.3:
            flags += ["--moe-every", rng.choice([1, 2])]
        if rng.random() < 0.3:
            flags += ["--token-drop-policy", rng.choice(["position", "gshard", "probs"])]
        if rng.random() < 0.2:
            flags += ["--shared-ffn", 256]
    return flags + ["--seq", seq], layers, heads, seq, count


def random_cluster(rng, devices_needed):
    """A cluster whose devices are a multiple of those needed: (flags, devices, emulated)."""
    machine = rng.choice(["dgx-a100", "dgx-a100", "dgx-h100", "dgx1-v100", "p4de", "a100-pcie", "local"])
    if machine == "local":
        ranks = devices_needed * rng.choice([1, 1, 2])
        extra = rng.choice(["", ",nic=200Mb/s", ",nic=1GB/s"])
        return ["--cluster", f"local:{ranks}{extra}"], ranks, True
    per_node = rng.choice([8, 8, 8, 4, 2, 1])
    times = rng.choice([1, 1, 1, 2, 2, 4, 64])
    devices = devices_needed * times
    while devices % per_node:
        devices += devices_needed
    text = f"{machine}:{devices // per_node}" + ("" if per_node == 8 else f",gpus={per_node}")
    if rng.random() < 0.15:
        text += ",nic=" + rng.choice(["25Gb/s", "800Gb/s"])
    return ["--cluster", text], devices, False


def random_stage_layers(rng, layers, chunks):
    cuts = sorted(rng.sample(range(1, layers), chunks - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, layers])]


def random_layout(rng):
    """The flags of one `weft plan`. Most are possible; some are not, and must be refused in words."""
    flags, layers, heads, seq, experts = random_model(rng)
    tp = rng.choice([n for n in (1, 1, 2, 2, 4) if heads % n == 0])
    pp = rng.choice([n for n in (1, 1, 2, 3, 4) if n <= layers])
    vpp = rng.choice([n for n in (1, 1, 1, 2, 3) if n == 1 or (pp > 1 and pp * n <= layers)])
    cp = rng.choice([1, 1, 1, 1, 2])
    ep = rng.choice([n for n in (1, 2, 4, 8) if experts % n == 0]) if experts else 1
    needed = tp * pp * cp
    while (needed // pp) % ep:
        needed *= 2
    cluster, devices, emulated = random_cluster(rng, needed)
    dp = devices // (tp * pp * cp)
    for name, value in (("tp", tp), ("pp", pp), ("vpp", vpp), ("cp", cp), ("ep", ep)):
        if value > 1:
            flags += [f"--{name}", value]
    if rng.random() < 0.3:
        flags += ["--dp", dp]
    sequence_parallel = tp > 1 and (seq // cp) % tp == 0 and rng.random() < 0.5
    if sequence_parallel:
        flags.append("--sequence-parallel")
    if experts and sequence_parallel and rng.random() < 0.5:
        flags += ["--etp", 1]
    if experts and rng.random() < 0.3:
        flags += ["--expert-exchange", rng.choice(["padded", "uneven"] + ([] if emulated else ["gathered"]))]
    if sequence_parallel and rng.random() < 0.3:
        flags.append("--tp-comm-overlap")
    if ep > 1 and rng.random() < 0.3:
        flags += ["--overlap-moe-expert-parallel-comm"] + rng.choice([[], ["--delay-wgrad-compute"]])
    if experts and not emulated and rng.random() < 0.2:
        flags.append(rng.choice(["--dispatch-fp8", "--ep-forwarding"]))
    zero = rng.randrange(4)
    flags += ["--zero", zero]
    if zero and not experts and rng.random() < 0.3:
        flags += ["--zero-shards", rng.choice([n for n in range(1, dp * cp + 1) if dp * cp % n == 0])]
    micro_batch = rng.choice([1, 1, 2, 4])
    micro_batches = rng.choice([1, 2, 3, 4, 4, 8, 16, 32])
    if vpp > 1 and rng.random() < 0.3:
        flags += ["--schedule", rng.choice(["breadth-first", "auto", "auto-loops"] + (["zbv", "v-half", "v-min", "dualpipev"] if vpp == 2 else [])
                                             + (["hanayo"] if vpp % 2 == 0 else []))]
    elif vpp > 1:
        micro_batches = pp * rng.choice([1, 2, 4])
    elif pp > 1 and rng.random() < 0.25:
        flags += ["--schedule", rng.choice(["gpipe", "zb-h1", "zb-h2", "auto"])]
    if zero >= 2 and pp == 1 and not experts and rng.random() < 0.3:
        flags += ["--layer-group", rng.choice([n for n in (2, 3, 4, 8) if micro_batches % n == 0] or [1])]
    flags += ["--micro-batch", micro_batch, "--global-batch", micro_batch * dp * micro_batches]
    kinds = ["none", "none", "selective", "full"] + (["local"] if experts and not emulated else [])
    recompute = rng.choice(kinds)
    flags += ["--recompute", recompute]
    if recompute in ("full", "local") and rng.random() < 0.5:
        flags += ["--recompute-layers", rng.randint(1, layers)]
    if pp > 1 and rng.random() < 0.3:
        flags += ["--stage-layers", ",".join(map(str, random_stage_layers(rng, layers, pp * vpp)))]
    if rng.random() < 0.3:
        flags += ["--clip-grad", 1]
    if rng.random() < 0.3:
        flags += ["--precision", rng.choice(["fp32", "bf16", "fp16"])]
    if rng.random() < 0.2:
        flags += ["--grad-dtype", rng.choice(["fp32", "bf16"])]
    if rng.random() < 0.2:
        flags += ["--attention", "unfused"]
    if rng.random() < 0.1:
        flags += ["--mesh-order", rng.choice(["tp,dp,cp,pp", "pp,tp,cp,dp", "dp,tp,cp,pp", "tp,pp,cp,dp"])]
    if rng.random() < 0.1:
        flags += ["--prefetch", rng.choice([0, 2])]
    if not emulated and rng.random() < 0.25:
        flags += ["--memory", rng.choice([0.05, 0.2, 0.5, 1, 2, 4, 8])]
    may_slice = pp > 1 and vpp == micro_batch == 1 and zero < 3 and "--schedule" not in flags
    if may_slice and rng.random() < 0.3:
        flags += ["--slices", rng.choice(["auto", *(n for n in (2, 4, 8) if seq % (n * tp * cp) == 0)])]
    if rng.random() < 0.05:  # one that cannot be
        flags += rng.choice([["--vpp", 7], ["--ep", 3], ["--seq", 1000003], ["--tp", 5], ["--stage-layers", "1"]])
    return [str(flag) for flag in flags + cluster]


# --- What an answer must fulfil --------------------------------------------------------------------------------------


def check_account(account, step, where):
    terms = [account[term] for term in TERMS]
    require(all(term >= -RELATIVE * step for term in terms), f"{where}: a term of the step is negative: {terms}")
    require(near(sum(terms), step, step), f"{where}: its terms add up to {sum(terms)}, the step is {step}")
    kinds = account["exposed_by_kind"]
    require(sorted(kinds) == sorted(KINDS), f"{where}: exposed_by_kind has {sorted(kinds)}")
    exposed, comm, hidden = account["exposed_comm_s"], account["comm_s"], account["hidden_pct"]
    by_kind = sum(kinds.values())
    require(near(by_kind, exposed, step), f"{where}: exposed_by_kind adds up to {by_kind}, not {exposed}")
    require(exposed <= comm + RELATIVE * step, f"{where}: {exposed} s exposed of {comm} s of communication")
    if hidden is None:
        require(comm == 0, f"{where}: hidden_pct is null with {comm} s of communication")
    else:
        require(-1e-6 <= hidden <= 100 + 1e-6, f"{where}: hidden_pct is {hidden}")
        share = 100 * (1 - exposed / comm)
        require(abs(hidden - share) < 1e-6, f"{where}: hidden_pct is {hidden}, but {exposed} s of {comm} s are exposed")


def check_stages(policy, devices, where):
    stages = policy["stages"]
    require(sum(stage["ranks"] for stage in stages) == devices, f"{where}: the stages' ranks are not {devices}")
    for stage in stages:
        require(near(stage["step_s"], policy["step_s"], policy["step_s"]), f"{where}, {stage['stage']}: another step")
        check_account(stage, stage["step_s"], f"{where}, {stage['stage']}")
    figures = [(lambda of, term=term: of[term]) for term in TERMS + ["comm_s"]]
    figures += [(lambda of, kind=kind: of["exposed_by_kind"][kind]) for kind in KINDS]
    for figure in figures:
        mean, printed_mean = sum(stage["ranks"] * figure(stage) for stage in stages) / devices, figure(policy)
        require(near(mean, printed_mean, policy["step_s"]), f"{where}: the stages' mean is {mean}, not {printed_mean}")
        most, printed_most = max(figure(stage) for stage in stages), figure(policy["max"])
        require(near(most, printed_most, policy["step_s"]), f"{where}: the largest is {most}, not {printed_most}")


def check_memory(policy, where):
    memory = policy["memory"]
    for stage in memory:
        here = f"{where}, memory of {stage['stage']}"
        terms = sum(stage["terms"].values())
        require(terms == stage["bytes"], f"{here}: terms add up to {terms}, not {stage['bytes']}")
        require(all(term >= 0 for term in stage["terms"].values()), f"{here}: a term is negative: {stage['terms']}")
        live = stage["peak"]["live_bytes"]
        require(0 < live <= stage["bytes"], f"{here}: {live} live of {stage['bytes']} bytes")
    largest = max(stage["bytes"] for stage in memory)
    require(policy["memory_peak_bytes"] == largest, f"{where}: memory_peak_bytes is not the largest")
    fits = all(stage["bytes"] <= stage["device_bytes"] for stage in memory)
    require(policy["fits"] == fits, f"{where}: fits is {policy['fits']}, the bytes say {fits}")


def check_policy(answer, name):
    policy = answer["policies"][name]
    step, bound = policy["step_s"], answer["bound_s"]
    require(step > 0, f"{name}: the step is {step}")
    require(0 < bound <= step * (1 + RELATIVE), f"{name}: the bound {bound} is above the step {step}")
    require(policy["bound_s"] == bound, f"{name}: bound_s differs from the study's")
    require(abs(policy["gap_to_bound_pct"] - 100 * (step / bound - 1)) < 1e-6, f"{name}: gap_to_bound_pct")
    check_account(policy, step, name)
    path = policy["critical_path"]
    chain = path["compute_s"] + path["waiting_s"] + sum(path["transfer_s"].values())
    require(near(chain, step, step), f"{name}: the critical path is {chain}, the step {step}")
    mfu, hfu = policy["mfu"], policy["hfu"]
    require(0 < mfu <= hfu * (1 + RELATIVE) and hfu <= 1, f"{name}: mfu {mfu}, hfu {hfu}")
    check_stages(policy, answer["cluster"]["devices"], name)
    check_memory(policy, name)


def check_best(answer):
    policies = answer["policies"]

    def order(name):
        return not policies[name]["fits"], policies[name]["step_s"]

    best = min(policies, key=order)
    require(order(answer["best"]) == order(best), f"best is {answer['best']}, but {best} is better")
    if "weft" not in policies:
        return
    weft = policies["weft"]
    for name, policy in policies.items():
        require(weft["fits"] or not policy["fits"], f"weft does not fit, {name} does")
        slower = weft["step_s"] > policy["step_s"] * (1 + RELATIVE)
        require(not slower or weft["fits"] != policy["fits"], f"weft takes {weft['step_s']}, {name} {policy['step_s']}")


def check_answer(answer):
    require(len(answer["policies"]) >= 9, f"only {len(answer['policies'])} policies answered")
    for name in answer["policies"]:
        check_policy(answer, name)
    check_best(answer)


# --- Running ---------------------------------------------------------------------------------------------------------


class Planner:
    def __init__(self, options):
        self.weft, self.timeout, self.budget = options.weft, options.timeout, options.budget

    def run(self, arguments):
        command = [self.weft, *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            raise Violation(f"no answer in {self.timeout} s") from None

    def command(self, flags):
        return ["plan", *flags, "--budget", str(self.budget), "--json"]

    def plan(self, flags, more=()):
        """The answer, or None where it was refused in words."""
        result = self.run([*self.command(flags), *more])
        require(result.returncode >= 0, f"ended by signal {-result.returncode}: {result.stderr.strip()}")
        require("fault of Weft" not in result.stderr, result.stderr.strip())
        if result.returncode == BAD_INPUT:
            lines = result.stderr.strip().splitlines()
            require(lines and lines[-1].startswith("weft: "), f"refused without a word: {result.stderr.strip()}")
            return None
        has_answer = result.returncode in (0, 1) and result.stdout.strip()
        require(has_answer, f"exit code {result.returncode}: {result.stderr.strip()}")
        answer = json.loads(result.stdout)
        require("failed" not in answer, f"no plan: {answer.get('failed')}")
        fits = any(policy["fits"] for policy in answer["policies"].values())
        require(result.returncode == (0 if fits else 1), f"exit code {result.returncode}, and fits: {fits}")
        return answer

    def check_files(self, flags, answer):
        with tempfile.TemporaryDirectory() as folder:
            self.plan(flags, ["--out", folder])
            for name, policy in answer["policies"].items():
                file = Path(folder) / ("plan.json" if name == answer["best"] else f"plan-{name}.json")
                result = self.run(["verify", str(file)])
                said = f"exit code {result.returncode}: {result.stdout.strip()} {result.stderr.strip()}"
                require(result.returncode == (0 if policy["fits"] else 1), f"weft verify of {name}: {said}")

    def check(self, index, flags):
        """'planned' or 'refused'; throws Violation."""
        answer = self.plan(flags)
        if answer is None:
            return "refused"
        check_answer(answer)
        if index % EVERY == 0:
            self.check_files(flags, answer)
        if index % EVERY == EVERY // 2:
            require(self.plan(flags) == answer, "planned again it comes out differently")
        return "planned"


def outcome_of(planner, index, flags):
    try:
        return planner.check(index, flags), ""
    except Violation as violation:
        return "failed", str(violation)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one command")
    parser.add_argument("--budget", type=float, default=0.1, help="seconds of search for policy weft")
    options = parser.parse_args()
    planner = Planner(options)
    layouts = [random_layout(random.Random(f"{options.seed} {index}")) for index in range(options.count)]
    outcomes = {"planned": 0, "refused": 0, "failed": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda item: outcome_of(planner, *item), enumerate(layouts))
        for index, (outcome, message) in enumerate(results):
            outcomes[outcome] += 1
            if outcome == "failed":
                print(f"\n{index}: {message}\n  weft {shlex.join(planner.command(layouts[index]))}", flush=True)
            done = f"{index + 1} of {options.count}: " + ", ".join(f"{n} {what}" for what, n in outcomes.items())
            if sys.stdout.isatty():
                print(f"\r{done}", end="", flush=True)
            elif (index + 1) % 50 == 0:
                print(done, flush=True)
    passed = outcomes["planned"] + outcomes["refused"]
    print(f"{options.count} layouts, {outcomes['planned']} planned, {outcomes['refused']} refused in words")
    print(f"{passed} passed, {outcomes['failed']} failed")
    return 1 if outcomes["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
