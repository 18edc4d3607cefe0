#!/usr/bin/env python3
"""`weft run` as processes, while strangers connect to every port that its ranks listen on, trains what it trains alone.

    strangers_test.py WEFT

Strangers stand idle, send bytes that are no messages, announce 2^28 bytes, or greet as rank 1 and prove nothing. The losses
are those of an undisturbed run, the ranks listen on loopback alone, and no stranger hears the job's secret. Exit code 77
where there are no kernels.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import time

from fault_jobs import environment_of

RUN = ("run --layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 --global-batch 8 --policy ddp --steps 5 "
       "--threads 1 --calibrate-seconds 0.1 --json").split()
TOLERANCE = 1e-6
MOST_CONNECTIONS = 400
MAGIC = 0x7765667400000002
GREETING = b"rendezvous 1 0 2 " + b"0" * 64


def message(kind, text):
    return struct.pack("=QQQ", MAGIC, kind, len(text)) + text


ATTACKS = [b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack("=QQQ", MAGIC, 1, 1 << 28), message(1, GREETING) + message(3, b"0" * 64),
           message(1, GREETING.replace(b"rendezvous", b"mesh")), message(1, GREETING.replace(b"rendezvous", b"probe"))]


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def losses(output):
    (policy,) = json.loads(output)["policies"].values()
    return policy["losses"]


def ranks_of(mark):
    """The processes of the job that are ranks, with their environment."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            variables = environment_of(name)
            if variables.get("STRANGERS_TEST") == mark and "WEFT_RANK" in variables:
                found[name] = variables
    return found


def listening(pids):
    """Addresses that these processes listen on."""
    inodes = set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            pass
    addresses = set()
    with open("/proc/net/tcp") as file:
        for line in list(file)[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                host, port = words[1].split(":")
                addresses.add((socket.inet_ntoa(struct.pack("=I", int(host, 16))), int(port, 16)))
    return addresses


class Strangers:
    """Connections to a job, kept open; what they hear is kept too."""

    def __init__(self):
        self.open = []
        self.heard = b""
        self.count = 0
        self.met = set()

    def attack(self, address):
        self.met.add(address)
        for bytes_sent in ATTACKS:
            if self.count >= MOST_CONNECTIONS:
                return
            try:
                stranger = socket.create_connection((address[0] if address[0] != "0.0.0.0" else "127.0.0.1", address[1]), 0.5)
                stranger.setblocking(False)
                self.open.append(stranger)
                self.count += 1
                stranger.sendall(bytes_sent)
            except OSError:
                pass  # the port is closed by now, or we were sent away
        self.listen()

    def listen(self):
        for stranger in self.open:
            try:
                self.heard += stranger.recv(65536)
            except OSError:
                pass

    def leave(self):
        self.listen()
        for stranger in self.open:
            stranger.close()


def run_among_strangers(weft):
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    job = subprocess.Popen([weft, *RUN, "--processes", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env={**os.environ, "STRANGERS_TEST": mark})
    strangers, secrets = Strangers(), set()
    try:
        deadline = time.monotonic() + 60
        while job.poll() is None and time.monotonic() < deadline:
            ranks = ranks_of(mark)
            secrets |= {variables.get("WEFT_JOB_SECRET", "") for variables in ranks.values()}
            for address in listening(ranks):
                if address[0] != "127.0.0.1":
                    fail(f"a rank listens on {address[0]}, though all are on one machine")
                strangers.attack(address)
            time.sleep(0.002)
        output, errors = job.communicate(timeout=60)
    finally:
        strangers.leave()
        if job.poll() is None:
            job.kill()
            job.wait()
    if job.returncode != 0:
        fail(f"exit code {job.returncode} among strangers\n{errors}")
    if not strangers.met:
        fail("no stranger found where the ranks listen")
    if len(secrets) != 1 or min(map(len, secrets)) < 32:
        fail(f"the ranks have {len(secrets)} secrets, or a short one")
    if any(secret.encode() in strangers.heard for secret in secrets):
        fail("a stranger heard the job's secret")
    print(f"{strangers.count} strangers at {len(strangers.met)} ports heard {len(strangers.heard)} bytes")
    return losses(output)


def main():
    weft = sys.argv[1]
    os.environ.pop("WEFT_RANK", None)
    alone = subprocess.run([weft, *RUN, "--cluster", "local:2"], capture_output=True, text=True, timeout=120)
    if "needs kernels" in alone.stderr:
        print(f"skipped: {alone.stderr.strip()}")
        sys.exit(77)
    expected, found = losses(alone.stdout), run_among_strangers(weft)
    off = max(abs(a / b - 1) for a, b in zip(found, expected, strict=True))
    if not off <= TOLERANCE:
        fail(f"losses {expected} alone, {found} among strangers: {off:.2g} apart")
    print(f"losses {off:.1g} apart\nok")


if __name__ == "__main__":
    main()
