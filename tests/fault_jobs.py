"""Ranks of a job of the real program that are to be killed or stopped: finding them, hearing them, seeing them end."""

import os
import re
import signal
import subprocess
import threading
import time


class Failure(Exception):
    pass


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def is_running(pid):
    """False for a zombie too: it has ended, whoever has yet to hear of it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Job:
    """A launcher, its ranks, and what they say, with the time of every line."""

    def __init__(self, command, rank_variable):
        self.rank_variable = rank_variable
        self.mark = f"{os.getpid()}.{time.monotonic_ns()}"  # how its processes are told from those of other jobs
        self.lines = []
        environment = {**os.environ, "FAULTS_TEST": self.mark}
        self.launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True, env=environment)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.launcher.stderr:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def ranks(self):
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            variables = environment_of(name)
            if variables.get("FAULTS_TEST") == self.mark and self.rank_variable in variables:
                found[int(variables[self.rank_variable])] = int(name)
        return found

    def wait_for_ranks(self, wanted):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = self.ranks()
            if len(found) == wanted:
                return found
            if self.launcher.poll() is not None:
                break
            time.sleep(0.002)
        raise Failure(f"only ranks {sorted(self.ranks())} of {wanted} were started")

    def watch_end(self, pids, limit):
        """Seconds until each process has ended, by rank; those that have not are left out."""
        begin = time.monotonic()
        ended = {}
        while len(ended) < len(pids) and time.monotonic() < begin + limit:
            for rank, pid in pids.items():
                if rank not in ended and not is_running(pid):
                    ended[rank] = time.monotonic() - begin
            time.sleep(0.01)
        return ended

    def finish(self, limit):
        try:
            self.launcher.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"the launcher is still there after {limit} s") from None
        self.reader.join()
        return self.launcher.returncode

    def clean_up(self):
        """Leaves nothing behind, whatever went wrong."""
        leftover = list(self.ranks().values())
        if self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.wait()
        for pid in leftover:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.reader.join()

    def said_by(self, rank):
        return [(when, line) for when, line in self.lines if line.startswith(f"weft: rank {rank}: ")]

    def text(self):
        return "\n".join(f"    | {line}" for _, line in self.lines)


def expect_words(job, survivor, pattern, since):
    """Seconds from `since` until the survivor said what it must say."""
    for when, line in job.said_by(survivor):
        if re.search(pattern, line):
            return when - since
    raise Failure(f"rank {survivor} said nothing like '{pattern}'")
