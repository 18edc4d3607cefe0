#!/usr/bin/env python3
"""Names of files and folders, scripts and flags may hold any bytes: every command answers or refuses them in words.

    odd_bytes_test.py WEFT

No command ends by a signal, and what it prints with --json is JSON in UTF-8 with replacement characters.
"""

import json
import os
import subprocess
import sys
import tempfile

ODD = b"odd\xff\xfe"
MODEL = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256".split()
LOCAL = [*MODEL, "--cluster", "local:2,nic=200Mb/s"]
RUN = [*LOCAL, "--policy", "ddp", "--steps", "3", "--threads", "1", "--calibrate-seconds", "0.05"]
PLAN = [*LOCAL, "--policy", "ddp"]


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def weft(program, *words, code=None, says_json=False):
    command = [os.fsencode(word) for word in (program, *words)]
    done = subprocess.run(command, capture_output=True, timeout=120)
    if done.returncode < 0 or b"terminate called" in done.stderr or b"internal error" in done.stderr:
        fail(f"{command}: exit code {done.returncode}\n{done.stderr}")
    if code is not None and done.returncode != code:
        fail(f"{command}: exit code {done.returncode} instead of {code}\n{done.stderr}")
    if says_json:
        json.loads(done.stdout.decode("utf-8"))
    return done


def files_are_json(folder):
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            if name.endswith(b".json"):
                json.loads(file.read().decode("utf-8"))


def plans(program, folder):
    script = os.path.join(folder, ODD + b".sh")
    with open(script, "wb") as file:
        file.write(b"torchrun pretrain_gpt.py --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 "
                   b"--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 2 --no-such-flag v\xffw\n")
    weft(program, "plan", "--megatron-args", script, "--cluster", "local:2", "--policy", "ddp", "--json", code=0,
         says_json=True)
    weft(program, "plan", "--megatron-args", script, "--cluster", ODD, "--json", code=2)
    out = os.path.join(folder, b"plan" + ODD)
    weft(program, "plan", *PLAN, "--out", out, "--json", code=0, says_json=True)
    files_are_json(out)
    weft(program, "verify", os.path.join(out, b"plan.json"), "--json", code=0, says_json=True)
    weft(program, "plan", *PLAN, "--sweep", "zero=0,1", "--json", code=0, says_json=True)
    config = os.path.join(folder, ODD + b".json")
    with open(config, "wb") as file:
        file.write(b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers":'
                   b' 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 256,'
                   b' "max_position_embeddings": 16}')
    weft(program, "plan", "--model", config, "--cluster", "local:2", "--policy", "ddp", "--json", code=0, says_json=True)
    weft(program, "plan", "--config", config, "--json", code=2)
    for flag in ("--model", "--megatron-args", "--cluster", "--profile", "--config", "--policy", "--lengths", "--tp",
                 "--mesh-order", "--sweep", "--dropout", "--" + os.fsdecode(ODD)):
        weft(program, "plan", *MODEL, flag, ODD, "--json", code=2)
    return os.path.join(out, b"plan.json")


def others(program, folder):
    absent = os.path.join(folder, b"absent" + ODD)
    for command in (["verify"], ["analyze"], ["collective", "verify"], ["run"], ["collective", "bench", "--config"],
                    ["collective", "bench"], ["collective", "synthesize", "--topology"], ["cluster", "show"],
                    ["calibrate", "--config"], [ODD]):
        weft(program, *command, absent, "--json", code=2)
    weft(program, "collective", "list", "--cluster", ODD, "--json", code=2)
    trace = os.path.join(folder, b"trace" + ODD + b".json")
    with open(trace, "wb") as file:
        file.write(b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k\xff", "pid": 0, "tid": 7, "ts": 1, "dur": 2,'
                   b' "args": {"stream": 7}}]}')
    weft(program, "analyze", trace, "--json")
    wiring = os.path.join(folder, b"wiring" + ODD)
    with open(wiring, "wb") as file:
        file.write(b"\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n")
    saved = os.path.join(folder, b"saved" + ODD)
    weft(program, "cluster", "show", wiring, "--save", saved, "--json", code=0, says_json=True)
    weft(program, "collective", "synthesize", "--topology", wiring, "--json", code=0, says_json=True)
    out = os.path.join(folder, b"bench" + ODD)
    weft(program, "collective", "bench", "--size", "1KiB", "--repeat", "1", "--out", out, "--json", code=0, says_json=True)
    files_are_json(out)


def runs(program, folder, plan):
    data = os.path.join(folder, b"data" + ODD)
    with open(data, "wb") as file:
        file.write(b"a text to train on. " * 50)
    saves, out, record = (os.path.join(folder, name + ODD) for name in (b"saves", b"run", b"record"))
    done = weft(program, "run", *RUN, "--data", data, "--checkpoint", saves, "--out", out, "--json")
    if b"needs kernels" in done.stderr:
        return print("runs skipped: no kernels")
    if done.returncode != 0:
        fail(f"run: exit code {done.returncode}\n{done.stderr}")
    json.loads(done.stdout.decode("utf-8"))
    files_are_json(out)
    for resume in ([*RUN[:-6], "--steps", "4", *RUN[-4:]], RUN):
        weft(program, "run", *resume, "--data", data, "--checkpoint", saves, "--resume", "--json", code=0, says_json=True)
    weft(program, "run", *RUN, "--data", data, "--checkpoint", saves, "--json", code=2)  # has checkpoints already
    weft(program, "run", *RUN, "--data", data, "--record", record, "--json", code=0, says_json=True)
    files_are_json(record)
    weft(program, "run", plan, "--steps", "2", "--threads", "1", "--calibrate-seconds", "0.05", "--json", code=0,
         says_json=True)
    for flag in ("--data", "--profile", "--lr", "--transport"):
        weft(program, "run", *LOCAL, flag, os.path.join(folder, b"absent" + ODD), "--json", code=2)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = os.fsencode(folder)
        plan = plans(program, folder)
        others(program, folder)
        runs(program, folder, plan)
    print("ok")


if __name__ == "__main__":
    main()
