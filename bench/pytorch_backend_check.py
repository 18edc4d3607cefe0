#!/usr/bin/env python3
"""`init_process_group("weft")` under what PyTorch itself has for several ranks: DDP, FSDP, FSDP2, DTensor, tensor parallelism, functional
collectives, checkpoints, tensors of a GPU, and NCCL beside it. Prints PASS, FAIL or SKIP for each case, and never hangs.

    bench/pytorch_backend_check.py [CASE...] [--at-once N]

Trainings must have the losses of the same job over gloo to 1e-6, and of one process that trains with all data to 1e-5 (bf16: of gloo to
2e-3). Calls must give what they mean. Needs libweft_embed (build/release, or WEFT_LIBRARY); compiles the backend if this PyTorch has not
yet (about a minute). Exit code 1 where a case fails.
"""

import argparse
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOB = ROOT / "bench" / "pytorch_backend_case.py"
CASE_SECONDS = 60
# Ranks, and where a training's losses may be apart: from gloo's, from one process's.
TRAININGS = {"ddp": (2, 1e-6, 1e-5), "fsdp1": (2, 1e-6, 1e-5), "fsdp2": (2, 1e-6, 1e-5), "fsdp2_bf16": (2, 2e-3, None),
             "hsdp": (4, 1e-6, 1e-5), "tensor_parallel": (2, 1e-6, 1e-5), "fsdp2_and_tensor_parallel": (4, 1e-6, 1e-5),
             "ddp_on_gpu": (2, None, 1e-4), "fsdp2_on_gpu": (2, None, 1e-4)}
CALLS = {"functional": (2, "weft"), "dtensor": (2, "weft"), "coalesced": (2, "weft"), "checkpoint": (2, "weft"),
         "calls_on_gpu": (2, "weft"), "beside_nccl": (2, "cpu:weft,cuda:nccl")}


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end(process):
    """With all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def outputs(commands, seconds, words):
    """Of processes that must all end well in time."""
    processes = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, start_new_session=True) for command, variables in commands]
    limit, found = time.monotonic() + seconds, []
    try:
        for process in processes:
            found.append(process.communicate(timeout=max(0.1, limit - time.monotonic()))[0])
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{words}: not over after {seconds:.0f} s") from late
    finally:
        for process in processes:
            end(process)
    codes = [process.returncode for process in processes]
    if 77 in codes:
        raise Skipped(found[codes.index(77)].strip().splitlines()[-1])
    for rank, (code, output) in enumerate(zip(codes, found)):
        if code:
            raise Failed(f"{words}, rank {rank}: exit code {code}: " + " | ".join(output.strip().splitlines()[-6:]))
    return found


def results(case, backend, ranks):
    """What each rank printed."""
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
              "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-B", str(JOB), case, backend]
    if case == "beside_nccl":  # NCCL wants a GPU for each rank, or MPS and hosts that seem different
        words = "RANK=$WEFT_RANK exec " + " ".join(f"'{word}'" for word in command)
        lines = outputs([([str(ROOT / "tools" / "gpu_ranks.sh"), str(ranks), "bash", "-c", words], shared)], CASE_SECONDS, case)
        return [json.loads(line) for line in lines[0].splitlines() if line.startswith("{")]
    found = outputs([(command, {**shared, "RANK": str(rank)}) for rank in range(ranks)], CASE_SECONDS, f"{case} over {backend}")
    return [json.loads(next(line for line in output.splitlines() if line.startswith("{"))) for output in found]


def mean_losses(found):
    return [sum(of_step) / len(found) for of_step in zip(*(one["losses"] for one in found))]


def apart(found, expected, allowed, what):
    far = max(abs(one - other) / abs(other) for one, other in zip(found, expected))
    if not far <= allowed:
        raise Failed(f"losses {far:.2g} from {what}; {allowed:g} is allowed: {found} and {expected}")
    return f"losses {far:.1g} from {what}"


def training(case, compiled, pool):
    ranks, of_gloo, of_one = TRAININGS[case]
    gloo = pool.submit(results, case, "gloo", ranks) if of_gloo is not None else None
    compiled.result()
    found = results(case, "weft", ranks)
    losses, words = mean_losses(found), []
    if of_one is not None:
        words.append(apart(losses, found[0]["alone"], of_one, "one process's"))
    if gloo is not None:
        try:
            words.append(apart(losses, mean_losses(gloo.result()), of_gloo, "gloo's"))
        except Failed as error:
            if of_one is None or "from gloo's" in str(error):
                raise
            words.append(f"gloo itself fails: {error}"[:200])
    return f"{ranks} ranks, " + ", ".join(words)


def called(case, compiled):
    ranks, backend = CALLS[case]
    compiled.result()
    found = results(case, backend, ranks)
    if len(found) != ranks:
        raise Failed(f"{len(found)} of {ranks} ranks said what they found")
    return f"{ranks} ranks, {found[0]['agree']} results agree with what they mean"


def compile_backend():
    """Once, for all jobs."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import weft.torch.backend as b; b.module(); import torch; " \
           "print(torch.__version__)"
    begin = time.monotonic()
    words = outputs([([sys.executable, "-B", "-c", code], {})], 170, "compiling the backend")[0].split()[-1]
    print(f"PyTorch {words}, the backend is there after {time.monotonic() - begin:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*TRAININGS, *CALLS, []], default=[], help="all unless some are named")
    parser.add_argument("--at-once", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="cases (default: half of the processors)")
    options = parser.parse_args()
    cases, failures = options.cases or [*TRAININGS, *CALLS], 0
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool, concurrent.futures.ThreadPoolExecutor(options.at_once + 1) as second:
        compiled = second.submit(compile_backend)
        jobs = {case: pool.submit(training, case, compiled, second) if case in TRAININGS else pool.submit(called, case, compiled)
                for case in cases}
        for case, job in jobs.items():
            try:
                print(f"PASS {case}: {job.result()}", flush=True)
            except Skipped as why:
                print(f"SKIP {case}: {why}", flush=True)
            except Exception as why:  # also of the driver itself: the other cases go on
                failures += 1
                print(f"FAIL {case}: {why}", flush=True)
    print(f"{failures} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
