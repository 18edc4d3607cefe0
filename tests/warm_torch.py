"""Ranks of PyTorch jobs without importing PyTorch in each of them: this process imports it once, and forks for every rank. What jobs
read from their environment when PyTorch is imported must be set before; such ranks are started as programs of their own."""

import atexit
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from pathlib import Path

import torch
import torch.distributed  # noqa: F401


class Forked:
    """What the tests use of subprocess.Popen, for a Python script with its arguments."""

    def __init__(self, command, variables):
        self.args, self.returncode = [str(word) for word in command], None
        self.output = tempfile.TemporaryFile("w+")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.become_script(variables)

    def become_script(self, variables):
        """Never returns: what this process was doing before is not this rank's."""
        code = 1
        weakref.finalize._registry.clear()  # folders of the process before stay
        try:
            for stream in (1, 2):
                os.dup2(self.output.fileno(), stream)
            os.environ.update(variables)
            if "OMP_NUM_THREADS" in variables:  # which was read when PyTorch was loaded
                torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
            sys.argv = self.args
            sys.path.insert(0, str(Path(self.args[0]).resolve().parent))
            runpy.run_path(self.args[0], run_name="__main__")
            code = 0
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            # As the interpreter ends: threads, then what was registered, without the objects of the process before.
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return self.returncode

    def communicate(self, timeout=None):
        self.wait(timeout)
        self.output.seek(0)
        return self.output.read(), None

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
