#!/usr/bin/env python3
"""Outputs that cannot be written to their end leave nothing: `weft plan --out` under a limit on the size of files.

    output_limits_test.py WEFT
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 8 * 512  # bytes, as `ulimit -f 8` has it; plan.json has more
CANNOT_BE_WRITTEN = 3


def main():
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.argv[1], "plan", "--model", "gpt2", "--cluster", "dgx-a100:1", "--policy", "serial", "--out", folder]
        result = subprocess.run(
            command, capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)))
        left = [path.name for path in Path(folder).iterdir()]
    name = str(Path(folder) / "plan.json")
    if result.returncode != CANNOT_BE_WRITTEN or name not in result.stderr or "File too large" not in result.stderr or left:
        print(f"exit code {result.returncode}, left: {left}, said: {result.stderr}")
        return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
