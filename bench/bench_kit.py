"""What the benchmarks of `weft run` share: running commands and keeping them, facts of the machine, namespaces, tables."""

import json
import os
import platform
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETNS = ROOT / "tools" / "netns.sh"
RESULTS = ROOT / "bench" / "results"  # results_page.py makes docs/results.md of what is there
SKIPPED = 77  # exit code of what cannot run here


class Broken(Exception):
    """A command failed or said something else than it should: no figure is worth anything then."""


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    listed = subprocess.run(["lscpu"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    names = [line.split(":", 1)[1].strip() for line in listed.stdout.splitlines() if line.startswith("Model name")]
    return names[0] if names else platform.machine()


def cores():
    return len(os.sched_getaffinity(0))


def machine_name():
    return f"{platform.machine()}, {cores()} cores"


def commit():
    said = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True,
                          check=False)
    return said.stdout.strip() or "unknown"


class Machine:
    """Facts for the head of a report; figures measured beside other programs say so by the load."""

    def __init__(self):
        self.facts = {"cpu": cpu_name(), "architecture": platform.machine(), "cores": cores(),
                      "system": platform.platform(), "commit": commit(), "load_before": os.getloadavg()[0]}
        print(f"{self.facts['cpu']} ({self.facts['architecture']}), {self.facts['cores']} cores, "
              f"load {self.facts['load_before']:.2f}, commit {self.facts['commit']}", flush=True)

    def end(self):
        self.facts["load_after"] = os.getloadavg()[0]
        print(f"\nload before {self.facts['load_before']:.2f}, after {self.facts['load_after']:.2f}")
        return self.facts


class Others:
    """The cores that other programs (and, on a virtual machine, other guests) took while a command of ours ran."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy - ours.ru_utime - ours.ru_stime

    def cores(self):
        (begin, busy_before), (end, busy_after) = self.start, self.now()
        return max(0.0, (busy_after - busy_before) / (end - begin))


class Errors:
    """What a command writes to standard error; `hear` is called with each line when it is said."""

    def __init__(self, hear):
        source, self.sink = os.pipe()
        self.lines = []
        self.thread = threading.Thread(target=self._listen, args=(source, hear), daemon=True)
        self.thread.start()

    def _listen(self, source, hear):
        with os.fdopen(source, errors="replace") as said:
            for line in said:
                self.lines.append(line)
                hear(line)

    def text(self):
        self.thread.join(5)  # a daemon that the command left may hold the pipe
        return "".join(self.lines)


class Shell:
    """Runs commands, one at a time, and keeps them for the report."""

    def __init__(self, timeout=600, verbose=False):
        self.timeout, self.verbose, self.commands = timeout, verbose, []
        self.other_cores = None  # that others took during the last command; of no use under mpirun, whose ranks are not ours

    def run(self, command, env=None, accepted=(0,), hear=lambda line: None):
        """The command's standard output; Broken where it fails, with an exit code that is not accepted. `env` is added to
        the environment."""
        words = [str(word) for word in command]
        line = " ".join([*(f"{key}={value}" for key, value in (env or {}).items()), *map(shlex.quote, words)])
        self.commands.append(line)
        if self.verbose:
            print(f"$ {line}", file=sys.stderr, flush=True)
        others = Others()
        # Asked to end first: tools/netns.sh then removes its namespaces.
        errors = Errors(hear)
        try:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors.sink, text=True,
                                       env={**os.environ, **(env or {})})
        finally:
            os.close(errors.sink)
        try:
            out, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired as error:
            raise Broken(f"does not end within {self.timeout} s: {line}") from error
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=30)
        self.other_cores = others.cores()
        if process.returncode not in accepted:
            raise Broken(f"exit code {process.returncode}: {line}\n{errors.text()[-2000:]}")
        return out

    def json(self, command, env=None, hear=lambda line: None):
        out = self.run(command, env, hear=hear)
        try:
            return json.loads(out)
        except json.JSONDecodeError as error:
            raise Broken(f"says no JSON ({error}): {self.commands[-1]}\n{out[:500]}") from error


class Namespaces:
    """Prefix of a command that runs across namespaces of this machine, joined by links of a rate."""

    def __init__(self, rate):
        self.rate = rate

    def prefix(self, ranks, launcher):
        return [NETNS, "--ranks", ranks, "--rate", self.rate, *(["--no-mpi"] if launcher == "tcp" else []), "--"]

    def require(self):
        """Ends the program with 77 and the reason where namespaces are not permitted."""
        probe = subprocess.run([str(word) for word in [*self.prefix(1, "tcp"), "true"]], capture_output=True, text=True,
                               check=False)
        if probe.returncode != 0:
            print(f"skipped: {(probe.stderr.strip().splitlines() or ['namespaces are not permitted'])[-1]}")
            sys.exit(SKIPPED)


def require_gpu():
    """Ends the program with 77 where there is no NVIDIA GPU."""
    try:
        subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        print("skipped: nvidia-smi is not here or finds no GPU")
        sys.exit(SKIPPED)


def policy_of(report, policy):
    """The figures of one policy in a report of `weft run --json`."""
    try:
        return report["policies"][policy]
    except KeyError as error:
        raise Broken(f"the report has no policy {policy}: {list(report.get('policies', {}))}") from error


def print_table(head, rows):
    """Text to the left, numbers to the right."""
    cells = [head, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    left = [all(not row[column][:1].isdigit() and row[column][:1] not in "+-" for row in rows) for column in
            range(len(head))]
    for index, row in enumerate(cells):
        print("  ".join(cell.ljust(width) if to_left else cell.rjust(width)
                        for cell, width, to_left in zip(row, widths, left)).rstrip())
        if index == 0:
            print("-" * (sum(widths) + 2 * (len(widths) - 1)))
    sys.stdout.flush()


def verdict(name, value, goal, good):
    """One goal: its line for a person and its entry for the report."""
    print(f"{name}: {value:.3f} (goal {goal}): {'reached' if good else 'MISSED'}", flush=True)
    return {"name": name, "value": value, "goal": goal, "reached": bool(good)}


def record(claim, case, figures, command, machine):
    """Appends one run to what docs/results.md is made of."""
    run = {"claim": claim, "case": case, "figures": figures, "command": command, "machine": machine, "commit": commit(),
           "date": time.strftime("%Y-%m-%d", time.gmtime())}
    with (RESULTS / f"{claim}.jsonl").open("a") as file:
        file.write(json.dumps(run, ensure_ascii=False) + "\n")
    print(f"recorded: case {case} of bench/results/{claim}.jsonl; bench/results_page.py makes the page")


def this_command():
    return shlex.join([os.path.relpath(sys.argv[0], ROOT), *without_record(sys.argv[1:])])


def without_record(words):
    """The flags without --record CASE and --on MACHINE, which say nothing of what was measured."""
    kept = iter(words)
    for word in kept:
        if word in ("--record", "--on"):
            next(kept, None)
        else:
            yield word


def record_if_asked(claim, figures, options):
    if options.record:
        rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
        record(claim, options.record, rounded, this_command(), options.on)


def add_record_flags(parser):
    parser.add_argument("--record", metavar="CASE", help="append the main figures to bench/results/ as this case")
    parser.add_argument("--on", metavar="MACHINE", default=machine_name(),
                        help="with --record: the machine's name on the page (default: its architecture and cores)")


def finish(name, machine, shell, result, options):
    """The end of every benchmark: the commands, the JSON file, and the exit code."""
    facts = machine.end()
    if options.commands:
        print("\ncommands:", *shell.commands, sep="\n  ")
    report = {"bench": name, "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": facts, **result,
              "commands": shell.commands}
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(json.dumps(report, indent=1) + "\n")
        print(f"written: {options.out}")
    if "figures" in result:
        record_if_asked(name, result["figures"], options)
    missed = [goal["name"] for goal in result.get("goals", []) if not goal["reached"]]
    return 1 if missed and options.require else 0


def add_common_flags(parser):
    add_record_flags(parser)
    parser.add_argument("--out", metavar="FILE", help="write everything as JSON there")
    parser.add_argument("--require", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--no-commands", dest="commands", action="store_false", help="do not list the commands")
    parser.add_argument("--verbose", action="store_true", help="say every command when it starts")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for one command (default: 600)")


def run_main(main):
    """Broken commands end a benchmark with 1 and their message; a signal lets it end what it has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        sys.exit(main())
    except Broken as error:
        sys.exit(f"broken: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
