"""The elements that dropout keeps, as docs/oracle.md has the hash: of seed, step, layer, site and the element's place."""

import numpy
import torch

SITES = {"embedding": 0, "attention": 1, "attention_residual": 2, "ffn_residual": 3}


def mix_bits(x):
    """SplitMix64's step and finalizer, of uint64 arrays (which wrap around)."""
    x = numpy.asarray(x, numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def mix_word(x):
    """Of uint32 arrays."""
    x = (x ^ (x >> numpy.uint32(16))) * numpy.uint32(0x7FEB352D)
    x = (x ^ (x >> numpy.uint32(15))) * numpy.uint32(0x846CA68B)
    return x ^ (x >> numpy.uint32(16))


def factors(rate, key, rows, columns):
    """What elements are multiplied by: 0, or 1 / (1 - rate). `rows`: their numbers; columns count from 0."""
    bits = mix_bits(numpy.asarray(key, numpy.uint64) + numpy.asarray(rows, numpy.uint64))[:, None]
    low, high = bits.astype(numpy.uint32), (bits >> numpy.uint64(32)).astype(numpy.uint32)
    place = numpy.arange(columns, dtype=numpy.uint32)[None, :] * numpy.uint32(0x9E3779B9)
    kept = mix_word(mix_word(place + low) ^ high) >= numpy.uint32(int(rate * 2**32))
    return torch.tensor(kept * numpy.float32(1 / (1 - rate)))


class Dropout:
    """Of one step. Without rates, nothing."""

    def __init__(self, rates, seed, step):
        self.rates, self.seed, self.step = rates, seed, step

    def _key(self, layer, site):
        with numpy.errstate(over="ignore"):
            of_step = mix_bits(mix_bits(self.seed) + numpy.uint64(self.step))
            return mix_bits(of_step + numpy.uint64(4 * (layer + 1) + SITES[site]))

    def _apply(self, x, rate, layer, site):
        with numpy.errstate(over="ignore"):
            rows = numpy.arange(x.numel() // x.shape[-1])
            return x * factors(rate, self._key(layer, site), rows, x.shape[-1]).view_as(x).to(x)

    def of_tokens(self, x, layer, site):
        """x is samples x positions x columns: row (sample * seq + position)."""
        if not self.rates:
            return x
        return self._apply(x, self.rates["embedding" if site == "embedding" else "hidden"], layer, site)

    def of_softmax(self, p, layer):
        """p is samples x heads x queries x keys: row ((sample * heads + head) * seq + query)."""
        return self._apply(p, self.rates["attention"], layer, "attention") if self.rates else p
