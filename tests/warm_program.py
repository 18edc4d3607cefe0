"""Runs the program without loading its kernels each time: beside a build's `weft` lies tests/warm_weft, which has them and
forks for every command. Where it is missing, the program itself is started."""

import atexit
import os
import subprocess
import tempfile
import threading
from pathlib import Path


class Running:
    """What the tests use of subprocess.Popen."""

    def __init__(self, command, out, err):
        self.args, self.out, self.err = command, out, err
        self.pid = self.returncode = None
        self.begun, self.ended = threading.Event(), threading.Event()

    def poll(self):
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(9)

    def communicate(self, timeout=None):
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.out.read_text(), self.err.read_text()


class Server:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.folder = tempfile.TemporaryDirectory()
        self.lock, self.begun = threading.Lock(), []
        threading.Thread(target=self.listen, daemon=True).start()
        atexit.register(self.end)

    def start(self, command, variables):
        with self.lock:
            number = len(self.begun)
            out, err = (Path(self.folder.name) / f"{number}.{name}" for name in ("out", "err"))
            running = Running(command, out, err)
            self.begun.append(running)
            words = [out, err, len(variables), *(f"{name}={value}" for name, value in variables.items()), *command]
            text = b"".join(os.fsencode(str(word)) + b"\0" for word in words)
            self.process.stdin.write(b"%d %d\n" % (number, len(text)) + text)
            self.process.stdin.flush()
        if not running.begun.wait(60):
            raise RuntimeError(f"{self.process.args}: does not answer")
        return running

    def listen(self):
        for line in self.process.stdout:
            event, number, value = line.split()
            running = self.begun[int(number)]
            if event == b"started":
                running.pid = int(value)
                running.begun.set()
            else:
                running.returncode = os.waitstatus_to_exitcode(int(value))
                running.ended.set()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


servers = {}
servers_lock = threading.Lock()


def start(command, env=None):
    command = [str(word) for word in command]
    warm = Path(command[0]).parent / "tests" / "warm_weft"
    if not warm.exists():
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    with servers_lock:
        server = servers.get(warm) or servers.setdefault(warm, Server(str(warm)))
    return server.start(command, os.environ if env is None else env)


def run(command, timeout, env=None):
    """As subprocess.run(command, capture_output=True, text=True)."""
    running = start(command, env)
    try:
        out, err = running.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        raise
    return subprocess.CompletedProcess(running.args, running.returncode, out, err)
