"""The record folder of a run (docs/oracle.md): read and written with numpy alone."""

import json
import struct
from pathlib import Path

import numpy


class BadRecord(Exception):
    """What is wrong with a record, naming its file."""


def read_safetensors(path):
    """Name -> float32 array. Written from the format's description; it shares no code with the writer."""
    data = Path(path).read_bytes()
    if len(data) < 8:
        raise BadRecord(f"{path}: too short for a safetensors file")
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8:
        raise BadRecord(f"{path}: a header of {length} bytes does not fit in the file")
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    tensors, covered = {}, 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        count = int(numpy.prod(entry["shape"], dtype=numpy.int64))
        if entry["dtype"] != "F32" or end - begin != 4 * count or not 0 <= begin <= end <= len(body):
            raise BadRecord(f"{path}: tensor {name}: {entry} does not fit in {len(body)} bytes")
        tensors[name] = numpy.frombuffer(body[begin:end], "<f4").reshape(entry["shape"])
        covered += end - begin
    if covered != len(body):
        raise BadRecord(f"{path}: tensors cover {covered} of {len(body)} bytes")
    return tensors


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, array in tensors.items():
        raw = numpy.ascontiguousarray(array, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


class Record:
    """run.json as `run`, tensors by name, `batches` as steps x global_batch x (seq + 1) tokens, likewise those of every
    validation."""

    def __init__(self, run, initial, gradients, final, batches, validation=None):
        self.run, self.initial, self.gradients, self.final, self.batches = run, initial, gradients, final, batches
        self.validation = batches[:0] if validation is None else validation

    def write(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(self.run))
        write_safetensors(folder / "initial.safetensors", self.initial)
        write_safetensors(folder / "gradients.safetensors", self.gradients)
        write_safetensors(folder / "final.safetensors", self.final)
        (folder / "batches.bin").write_bytes(numpy.ascontiguousarray(self.batches, "<i8").tobytes())
        if self.validation.size:
            (folder / "validation.bin").write_bytes(numpy.ascontiguousarray(self.validation, "<i8").tobytes())


def read_record(folder):
    folder = Path(folder)
    try:
        run = json.loads((folder / "run.json").read_text())
        tensors = [read_safetensors(folder / f"{part}.safetensors") for part in ("initial", "gradients", "final")]
        batches = numpy.frombuffer((folder / "batches.bin").read_bytes(), "<i8")
        shape = (run["steps"], run["global_batch"], run["seq"] + 1)
        if batches.size != numpy.prod(shape):
            raise BadRecord(f"{folder / 'batches.bin'}: {batches.size} tokens are not {shape}")
        if len(run["losses"]) != run["steps"]:
            raise BadRecord(f"{folder / 'run.json'}: {len(run['losses'])} losses of {run['steps']} steps")
        if batches.size and not (0 <= batches.min() and batches.max() < run["model"]["vocab"]):
            raise BadRecord(f"{folder / 'batches.bin'}: a token is not in 0..{run['model']['vocab'] - 1}")
        validation = None
        if "validation" in run:
            tokens = numpy.frombuffer((folder / "validation.bin").read_bytes(), "<i8")
            validation = tokens.reshape(-1, *shape[1:])
    except (OSError, ValueError, KeyError) as error:
        raise BadRecord(f"{folder}: {type(error).__name__}: {error}") from error
    return Record(run, *tensors, batches.reshape(shape), validation)
