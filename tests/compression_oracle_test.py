#!/usr/bin/env python3
"""Compressed gradients against numpy: every format, 2 to 8 ranks, ZeRO 0 and 1, several steps of error feedback.

    tests/compression_oracle_test.py build/release/tests/compression_chain

The formats are said again here, element by element from their definitions in docs/compression.md; what is applied in every
step, and the errors that are held back at the end, must be equal in every bit but the sign of zero. And what was applied
and is held back must be the sum of all gradients, to rounding. Exit code 77 without numpy.
"""

import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: needs numpy")
    sys.exit(77)

F32 = np.float32
MASK = (1 << 64) - 1
BLOCK, SPARSE_BLOCK, ONE_OF = 256, 4096, 100
STEPS = 3


def mix(x):
    """SplitMix64's step and finalizer."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def unit_random(draw, count):
    key = np.uint32((draw ^ (draw >> 32)) & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        x = key + np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(F32) * F32(2.0**-24)


def scale_of(values, largest):
    magnitude = np.max(np.abs(values))
    if magnitude < F32(2.0**-100):
        return F32(0), F32(0)
    return F32(magnitude / F32(largest)), F32(F32(largest) / magnitude)


def integers(largest, stochastic):
    def sent(values, draw):
        scale, inverse = scale_of(values, largest)
        if inverse == 0:
            return np.zeros_like(values)
        scaled = values * inverse
        codes = np.floor(scaled + unit_random(draw, len(values))) if stochastic else np.rint(scaled)
        return scale * np.clip(codes, -largest, largest).astype(F32)
    return sent


def bf16(values, _):
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return rounded.view(F32)


def fp16(values, _):
    return values.astype(np.float16).astype(F32)


def fp8(mantissa, bias, largest):
    """OCP's 8-bit floats: the nearest of all that there are, of two the one with an even code."""
    table = []
    for code in range(128):
        exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
        whole = fraction + (1 << mantissa) if exponent else fraction
        value = whole * 2.0 ** (max(exponent, 1) - bias - mantissa)
        if value <= largest:
            table.append(value)
    table = np.array(table)

    def sent(values, _):
        scale, inverse = scale_of(values, largest)
        if inverse == 0:
            return np.zeros_like(values)
        scaled = (values * inverse).astype(np.float64)
        above = np.clip(np.searchsorted(table, np.abs(scaled)), 1, len(table) - 1)
        below = above - 1
        up, down = table[above] - np.abs(scaled), np.abs(scaled) - table[below]
        code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
        return scale * np.copysign(table[code], scaled).astype(F32)
    return sent


def onebit(values, _):
    lanes, full = np.zeros(8, F32), len(values) // 8 * 8
    for row in np.abs(values[:full]).reshape(-1, 8):
        lanes += row
    lanes[:len(values) - full] += np.abs(values[full:])
    total = F32(0)
    for lane in lanes:
        total += lane
    return np.copysign(F32(total / F32(len(values))), values)


def ternary(values, draw):
    scale, inverse = scale_of(values, 1)
    kept = unit_random(draw, len(values)) < np.abs(values) * inverse
    return np.where(kept, np.where(values > 0, scale, -scale), F32(0)).astype(F32)


def sparse(values, chosen):
    sent = np.zeros_like(values)
    sent[chosen] = values[chosen]
    return sent


def kept_of(values):
    return -(-len(values) // ONE_OF)


def top_k(values, _):
    return sparse(values, np.argsort(-np.abs(values), kind="stable")[:kept_of(values)])


def random_k(values, draw):
    kept, size = kept_of(values), len(values)
    chosen = []
    for i in range(kept):
        begin, end = i * size // kept, (i + 1) * size // kept
        chosen.append(begin + mix((draw + i) & MASK) % (end - begin))
    return sparse(values, chosen)


FORMATS = {"bf16": bf16, "fp16": fp16, "int8": integers(127, False), "int8-stochastic": integers(127, True),
           "int4": integers(7, False), "int4-stochastic": integers(7, True), "fp8-e4m3": fp8(3, 7, 448),
           "fp8-e5m2": fp8(2, 15, 57344), "onebit": onebit, "ternary": ternary, "top-k": top_k, "random-k": random_k}


class Encoder:
    def __init__(self, name):
        self.sent_of_block, self.block = FORMATS[name], SPARSE_BLOCK if name.endswith("-k") else BLOCK

    def sent(self, values, errors, seed, first_block):
        """What is decoded, and the errors that are left; one shard."""
        wanted, decoded = values + errors, np.empty_like(values)
        for number, begin in enumerate(range(0, len(values), self.block)):
            part = slice(begin, begin + self.block)
            decoded[part] = self.sent_of_block(wanted[part], mix(seed ^ mix(first_block + number)))
        return decoded, wanted - decoded

    def blocks(self, elements):
        return -(-elements // self.block)


def chain(name, ranks, zero, gradients, seed):
    """What each step applies, and what every rank holds back at the end."""
    encoder, elements = Encoder(name), gradients.shape[2]
    once = zero == 0 and ranks == 2
    shard = elements if once else -(-elements // ranks)
    shards = [slice(b, min(b + shard, elements)) for b in range(0, shard * (1 if once else ranks), shard)]
    errors, sum_errors = np.zeros(gradients.shape[1:], F32), np.zeros(elements, F32)
    applied = []
    for step, of_ranks in enumerate(gradients):
        decoded = np.zeros_like(of_ranks)
        for rank in range(ranks):
            for number, part in enumerate(shards):
                decoded[rank][part], errors[rank][part] = encoder.sent(
                    of_ranks[rank][part], errors[rank][part], seed + 1000 * step + 2 * rank,
                    number * encoder.blocks(shard))
        total = decoded[0].copy()
        for rank in range(1, ranks):
            total += decoded[rank]
        if zero == 0 and not once:
            for rank, part in enumerate(shards):
                total[part], sum_errors[part] = encoder.sent(total[part], sum_errors[part],
                                                             seed + 1000 * step + 2 * rank + 1, 0)
        applied.append(total)
    held = errors.copy()
    if zero == 0 and not once:
        for rank, part in enumerate(shards):
            held[rank][part] += sum_errors[part]
    return np.array(applied), held


def check(program, name, ranks, zero, elements, seed):
    generator = np.random.default_rng(seed)
    gradients = generator.standard_normal((STEPS, ranks, elements)).astype(F32)
    gradients *= F32(10) ** generator.integers(-6, 3, (1, 1, elements)).astype(F32)
    gradients[:, :, : min(elements, 300)] *= F32(0) if seed % 2 else F32(1)  # a block of zeros
    said = subprocess.run([program, name, str(ranks), str(zero), str(elements), str(STEPS), str(seed)],
                          input=gradients.tobytes(), capture_output=True, check=True).stdout
    found = np.frombuffer(said, F32)
    assert found.size == (STEPS + ranks) * elements, f"{found.size} numbers"
    applied, held = found[: STEPS * elements].reshape(STEPS, elements), found[STEPS * elements:].reshape(ranks, elements)
    expected, expected_held = chain(name, ranks, zero, gradients, seed)
    for what, one, other in (("applied", applied, expected), ("held back", held, expected_held)):
        if not np.array_equal(one, other):
            places = np.argwhere(one != other)
            raise AssertionError(f"{what}: {len(places)} differ, the first at {places[0]}: {one[tuple(places[0])]!r}, "
                                 f"numpy has {other[tuple(places[0])]!r}")
    whole = gradients.astype(np.float64).sum((0, 1))
    left = np.abs(applied.astype(np.float64).sum(0) + held.astype(np.float64).sum(0) - whole)
    # A sum of STEPS * ranks numbers, each rounded by half a unit of what block and step have largest.
    bound = 4 * STEPS * ranks * 2.0**-24 * np.max(np.abs(gradients)) * ranks
    assert np.all(left <= bound), f"applied and held back miss the sum of gradients by {left.max()}, above {bound}"


def main():
    program, cases = sys.argv[1], 0
    for name in FORMATS:
        for ranks in range(2, 9):
            for zero in (0, 1):
                elements = (5000 if name.endswith("-k") else 2000) + 7 * ranks + zero
                for seed in (ranks, ranks + 1):
                    try:
                        check(program, name, ranks, zero, elements, seed)
                    except AssertionError as error:
                        print(f"{name}, {ranks} ranks, ZeRO {zero}, {elements} elements, seed {seed}: {error}")
                        return 1
                    cases += 1
    print(f"{cases} cases of {len(FORMATS)} formats, 2 to 8 ranks, ZeRO 0 and 1: equal to numpy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
