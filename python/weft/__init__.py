"""Weft: communication woven into the computation of distributed training.

`weft.torch` applies it to a PyTorch job of your own; see `help(weft.torch)`.
"""

__version__ = "0.1.0"
