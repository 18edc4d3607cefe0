"""Whole tensors out of a checkpoint of `weft run` (docs/checkpoint-format.md), with nothing but Python's own library.

    read_checkpoint.py DIR/step-00000100        names, shapes and checksums of the tensors
"""

import array
import json
import struct
import sys
import zlib
from pathlib import Path


def read_safetensors(path):
    """Name -> numbers, and the metadata; also checks that the file is as long as its header says."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length :]
    assert len(body) == max((entry["data_offsets"][1] for entry in header.values()), default=0), path
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", (path, name)
        numbers = array.array("f")
        numbers.frombytes(body[entry["data_offsets"][0] : entry["data_offsets"][1]])
        tensors[name] = numbers
    return tensors, metadata


def read_checkpoint(folder):
    """The manifest, and {(kind, tensor): {row: {column: number}}} flattened to sorted lists of numbers."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["weft_checkpoint"] in (1, 2), manifest["weft_checkpoint"]
    elements = {}
    for file in manifest["files"]:
        data = (folder / file["name"]).read_bytes()
        assert len(data) == file["bytes"], file["name"]
        assert zlib.crc32(data) == file["crc32"], file["name"]
        tensors, metadata = read_safetensors(folder / file["name"])
        if manifest["weft_checkpoint"] > 1:
            assert metadata["weft_run_id"] == manifest["run_id"], file["name"]
            assert metadata["weft_step"] == str(manifest["step"]), file["name"]
            assert file["name"] == f"rank-{int(metadata['weft_rank']):05}.safetensors", file["name"]
        assert tensors.keys() == {piece["name"] for piece in file["pieces"]}, file["name"]
        for piece in file["pieces"]:
            whole = elements.setdefault((piece["kind"], piece["tensor"]), {})
            (first_row, _), (first, end_column) = piece["rows"], piece["columns"]
            begin, end = piece["elements"]
            numbers = tensors[piece["name"]]
            assert len(numbers) == end - begin, piece
            at = piece["offset"]
            assert data[at : at + 4 * len(numbers)] == numbers.tobytes(), piece
            for i in range(begin, end):
                place = (first_row + i // (end_column - first), first + i % (end_column - first))
                adds_up = piece["kind"] in ("gradient_error", "sum_error")  # every rank has its own
                assert adds_up or place not in whole, (piece, place)
                whole[place] = whole.get(place, 0) + numbers[i - begin]
    tensors = {}
    for key, whole in elements.items():
        rows, columns = (1 + max(place[axis] for place in whole) for axis in (0, 1))
        is_factor = key[0] in ("input_factor", "output_factor")  # of which tensor-parallel ranks have blocks
        assert is_factor or len(whole) == rows * columns, key
        tensors[key] = array.array("f", (whole.get((r, c), 0) for r in range(rows) for c in range(columns)))
    return manifest, tensors


if __name__ == "__main__":
    said, found = read_checkpoint(sys.argv[1])
    print(f"step {said['step']}: {json.dumps(said['run'])}")
    for (kind, tensor), values in sorted(found.items()):
        print(f"{kind:14} {tensor:32} {len(values):10} elements  crc32 {zlib.crc32(values.tobytes()):08x}")
