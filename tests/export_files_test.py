#!/usr/bin/env python3
"""Exported files against parsers that are not ours: bash, Python's json, tomllib, ast and csv, and a YAML reader where
there is one. tests/data/export holds the files that bench/export_check.py runs in PyTorch; they must be what weft writes.

    export_files_test.py WEFT [--update]
"""

import ast
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parent / "data/export"
TINY = "--layers 4 --hidden 64 --heads 4 --vocab 256 --seq 64 --global-batch 8 --no-dropout --precision fp32"
PLANS = {
    "pipeline": f"{TINY} --cluster local:2 --pp 2 --vpp 2 --global-batch 4 --policy serial",
    "zero3": f"{TINY} --cluster local:2 --zero 3 --policy fsdp",
    "zero2": f"{TINY} --cluster local:2 --zero 2 --policy fsdp",
    "ddp": f"{TINY} --cluster local:2 --bucket-mib 0.2 --policy ddp",
    "ddp_default": f"{TINY} --hidden 512 --cluster local:2 --policy ddp",
    "layers": "--model llama2-7b --layers 8 --cluster dgx-a100:2 --tp 4 --pp 2 --vpp 2 --zero 1 --sequence-parallel"
    " --tp-comm-overlap --global-batch 16 --policy megatron-param",
}
# What bench/export_check.py runs.
KEPT = {
    "schedule.csv": ("pipeline", "torch-pipeline"),
    "schedule_comms.csv": ("pipeline", "torch-pipeline-comms"),
    "fsdp2.py": ("zero3", "fsdp2"),
    "fsdp2_zero2.py": ("zero2", "fsdp2"),
    "ddp.py": ("ddp", "ddp"),
    "ddp_default.py": ("ddp_default", "ddp"),
    "inductor.py": ("zero3", "inductor"),
}
# The words of one action, from the documentation of torch.distributed.pipelining.
ACTION = re.compile(r"\d+(F|I|B|W|SEND_F|RECV_F|SEND_B|RECV_B)\d+|\d+(UNSHARD|RESHARD|REDUCE_GRAD)")


def run(weft, *words):
    done = subprocess.run([weft, *words], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) and "internal error" not in done.stderr, f"{words}: {done.stderr}"
    return done.stdout


def once(words):
    """Later flags win over earlier ones, which weft itself refuses."""
    flags = {}
    for flag, value in re.findall(r"(--[\w-]+)((?: (?!--)\S+)?)", words):
        flags[flag] = value.strip()
    return [word for flag, value in flags.items() for word in (flag, value) if word]


def check_bash(text):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    script = text + '\nprintf "%s\\n" "${MEGATRON_ARGS[@]}${MINDSPEED_ARGS[@]}"'
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\n")
    assert "--num-layers" in words and "--pipeline-model-parallel-size" in words, words


def check_toml(text):
    import tomllib

    config = tomllib.loads(text)
    assert config["parallelism"]["tensor_parallel_degree"] == 4
    assert len(config["parallelism"]["module_fqns_per_model_part"]) == 4


def check_yaml(text):
    """Two levels of `key: value` are all that the formats need; a real reader where there is one."""
    for line in text.splitlines():
        assert re.fullmatch(r"#.*|\w+:|  \w+: \w+", line), line
    try:
        import yaml
    except ImportError:
        return
    assert all(isinstance(group, dict) for group in yaml.safe_load(text).values())


def check_tuner(text):
    """The rules of NCCL's example tuner plugin: 8 to 10 fields, names that it knows, lines below 256 bytes."""
    for line in text.splitlines():
        assert len(line) < 255, line
        if line.startswith("#"):
            continue
        collective, least, most, algorithm, protocol, channels, nodes, ranks = line.split(",")
        assert collective in ("broadcast", "reduce", "allgather", "reducescatter", "allreduce"), line
        assert algorithm in ("ring", "tree") and protocol in ("ll", "ll128", "simple"), line
        assert 0 <= int(least) <= int(most) < 2**64 and int(channels) >= 1 and int(nodes) <= int(ranks), line


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """The fields of a protobuf message: (number, value) with numbers and bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2), key
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        yield key >> 3, value


def check_chakra(folder):
    """By the numbers of Chakra's et_def.proto: metadata, then nodes that wait for nodes before them in the same file."""
    groups = json.loads((pathlib.Path(folder) / "comm_groups.json").read_text())
    for file in sorted(pathlib.Path(folder).glob("*.et")):
        rank = int(file.suffixes[-2][1:])
        data, at, messages = file.read_bytes(), 0, []
        while at < len(data):
            size, at = varint(data, at)
            messages.append(list(fields(data[at : at + size])))
            at += size
        assert messages[0] == [(1, b"0.0.4")]
        nodes = {dict(node)[1]: node for node in messages[1:]}
        assert len(nodes) == len(messages) - 1 > 100
        assert {dict(node)[3] for node in nodes.values()} == {4, 5, 6, 7}  # compute, send, receive, collective
        for node in nodes.values():
            attributes = {dict(fields(value))[1].decode(): dict(fields(value)) for field, value in node if field == 10}
            # Chakra's own feeder reads these numbers, as int32 and int64, and a text.
            kinds = {"comm_src": 7, "comm_dst": 7, "comm_tag": 7, "comm_size": 9, "comm_type": 9, "pg_name": 29}
            assert all(kinds[name] in attributes[name] for name in kinds if name in attributes), attributes
            if dict(node)[3] == 7:
                assert rank in groups[attributes["pg_name"][29].decode()]
        waits = {i: {value for field, value in node if field in (4, 5)} for i, node in nodes.items()}
        done = set()
        while len(done) < len(nodes):
            ready = {i for i, needed in waits.items() if i not in done and needed <= done}
            assert ready, f"{file}: nodes wait for each other, or for none that is there"
            done |= ready


def check_pbtxt(text):
    for line in text.splitlines():
        assert re.fullmatch(r"#.*|costs \{ name: \"[\w.-]+\" cost_us: \d+\.\d+ \}", line), line


def check_csv(text):
    rows = list(csv.reader(text.splitlines()))
    assert len(rows) == 2
    for row in rows:
        for cell in row:
            assert ACTION.fullmatch(cell), cell


def check_devices(weft, folder):
    """Launchers' files against the map itself: two nodes of two devices."""

    def exported(devices, form):
        flags = f"{TINY} --cluster dgx-a100:2,gpus=2 --device-map {devices} --policy serial"
        run(weft, "plan", *once(flags), "--out", f"{folder}/devices")
        words = [weft, "export", f"{folder}/devices/plan.json", "--to", form]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def rows(text):
        return [line for line in text.splitlines() if not line.startswith("#")]

    mixed = [3, 1, 0, 2]
    listed = ",".join(map(str, mixed))
    places = [f"rank {rank}=+n{device // 2} slot={device % 2}" for rank, device in enumerate(mixed)]
    assert rows(exported(listed, "rankfile").stdout) == places
    script = exported(listed, "cuda-visible-devices").stdout + 'echo "$CUDA_VISIBLE_DEVICES"'
    for node in (0, 1):
        seen = subprocess.run(["bash", "-c", script], env={"NODE": str(node)}, capture_output=True, text=True, check=True)
        assert seen.stdout.strip() == ",".join(str(d % 2) for d in mixed if d // 2 == node), seen.stdout
    refused = exported(listed, "hostfile")
    assert refused.returncode == 2 and "rankfile" in refused.stderr, refused.stderr
    assert rows(exported("2,3,1,0", "hostfile").stdout) == ["node1 slots=2", "node0 slots=2"]


CHECKS = {
    "megatron": check_bash,
    "mindspeed": check_bash,
    "deepspeed": json.loads,
    "torchtitan": ast.parse,
    "torchtitan-toml": check_toml,
    "chrome": json.loads,
    "ddp": ast.parse,
    "megatron-nccl": check_yaml,
    "te-userbuffers": check_yaml,
    "nccl-tuner": check_tuner,
    "torch-pipeline": check_csv,
    "torch-pipeline-comms": check_csv,
    "xla-pgle": check_pbtxt,
}


def main():
    weft, update = sys.argv[1], "--update" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in PLANS.items():
            run(weft, "plan", "--budget", "0.1", *once(flags), "--out", f"{folder}/{name}")
        for name, check in CHECKS.items():
            check(run(weft, "export", f"{folder}/layers/plan.json", "--to", name))
        run(weft, "export", f"{folder}/layers/plan.json", "--to", "chakra", "-o", f"{folder}/chakra")
        check_chakra(f"{folder}/chakra")
        check_devices(weft, folder)
        for name, (plan, form) in KEPT.items():
            text = run(weft, "export", f"{folder}/{plan}/plan.json", "--to", form)
            check_csv(text) if name.endswith(".csv") else ast.parse(text)
            if update:
                DATA.mkdir(exist_ok=True)
                (DATA / name).write_text(text)
            assert (DATA / name).read_text() == text, f"{DATA / name}: weft writes something else; --update writes it anew"
            if name.endswith(".csv"):
                assert "safe" in run(weft, "verify", str(DATA / name))
    print(f"{len(CHECKS) + len(KEPT) + 4} files read by other parsers")


if __name__ == "__main__":
    main()
