"""Weft's C interface (src/embed/embed.hpp) by ctypes: no compiler and no particular PyTorch is needed."""

import ctypes
import os
import sys
from pathlib import Path

from .errors import JobFailed, LaunchError, WeftError

NAME = "libweft_embed.so"
ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER = range(5)  # the collectives that Python calls
FP32, BF16, FP16, BYTES, I32, I64 = range(6)
SUM, AVERAGE, MAX, MIN = range(4)
_BAD_INPUT = 2


class Segment(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


class _Join(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int64), ("ranks", ctypes.c_int64), ("root", ctypes.c_char_p),
                ("secret", ctypes.c_char_p), ("root_listener", ctypes.c_int32),
                ("join_timeout_seconds", ctypes.c_double), ("timeout_seconds", ctypes.c_double),
                ("silence_seconds", ctypes.c_double), ("check", ctypes.c_int32), ("ended", ctypes.c_void_p),
                ("failed", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class _Call(ctypes.Structure):
    _fields_ = [("collective", ctypes.c_int32), ("type", ctypes.c_int32), ("op", ctypes.c_int32),
                ("elements", ctypes.c_int64), ("parts", ctypes.c_int64), ("segments", ctypes.c_int64),
                ("queue", ctypes.c_int64), ("label", ctypes.c_char_p), ("root", ctypes.c_int64), ("receiver", ctypes.c_int64),
                ("in_place", ctypes.c_int32), ("slices", ctypes.POINTER(ctypes.c_int64))]


def find() -> Path:
    """The library: where WEFT_LIBRARY says, inside the package (a wheel), or in the build folder of a source tree."""
    package = Path(__file__).resolve().parent.parent
    places = [Path(os.environ["WEFT_LIBRARY"]).absolute()] if "WEFT_LIBRARY" in os.environ else []
    places += [package / NAME, package.parent.parent / "build" / "release" / NAME]
    for place in places:
        if place.is_file():
            return place
    raise LaunchError(f"{NAME} is not here: build it with `cmake --build build/release --target weft_embed`, install the "
                      f"wheel, or set WEFT_LIBRARY (looked at {', '.join(map(str, places))})")


def _load():
    library = ctypes.CDLL(str(find()))  # its functions run without Python's lock, so waiting stops no other thread
    library.weft_last_error.restype = ctypes.c_char_p
    library.weft_join.restype = ctypes.c_void_p
    for name in ("weft_leave", "weft_prepare", "weft_release", "weft_start", "weft_start_apart", "weft_is_done", "weft_wait", "weft_times", "weft_at",
                 "weft_require_alive", "weft_fail"):
        getattr(library, name).argtypes = [ctypes.c_void_p, *{
            "weft_prepare": [ctypes.POINTER(_Call), ctypes.POINTER(ctypes.c_int64)],
            "weft_release": [ctypes.c_int64],
            "weft_start": [ctypes.c_int64, ctypes.POINTER(Segment), ctypes.c_int64],
            "weft_start_apart": [ctypes.c_int64, ctypes.POINTER(Segment), ctypes.c_int64, ctypes.POINTER(Segment),
                                 ctypes.c_int64],
            "weft_is_done": [ctypes.c_int64, ctypes.POINTER(ctypes.c_int32)],
            "weft_wait": [ctypes.c_int64],
            "weft_times": [ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64)],
            "weft_at": [ctypes.c_char_p],
            "weft_fail": [ctypes.c_char_p],
        }.get(name, [])]
    return library


class Group:
    """The ranks of a job, joined by TCP. Collectives are prepared once and started often."""

    def __init__(self, rank, ranks, root, secret, *, root_listener=-1, join_timeout=60.0, timeout=1800.0, silence=60.0):
        self._library = _load()
        options = _Join(rank, ranks, root.encode(), secret.encode(), root_listener, join_timeout, timeout, silence,
                        0, None, None, None)
        self._group = self._library.weft_join(ctypes.byref(options))
        if not self._group:
            raise LaunchError(self._words())
        self.rank, self.ranks = rank, ranks
        self._done = ctypes.c_int32()  # made once: is_done is asked often
        self._done_at = ctypes.byref(self._done)

    def _words(self):
        return self._library.weft_last_error().decode(errors="replace")

    def _check(self, result):
        if result:
            raise (WeftError if result == _BAD_INPUT else JobFailed)(self._words())

    def prepare(self, collective, element_type, op, elements, label, *, parts=1, segments=1, queue=0, slices=None) -> int:
        """The number by which the call is started and waited for. With `slices`, the elements of each rank, input and output of
        a reduce-scatter or all-gather lie apart; other collectives work in place."""
        number = ctypes.c_int64()
        call = _Call(collective, element_type, op, elements, parts, segments, queue, label.encode(), 0, 0, slices is None,
                     None if slices is None else (ctypes.c_int64 * len(slices))(*slices))
        self._check(self._library.weft_prepare(self._group, ctypes.byref(call), ctypes.byref(number)))
        return number.value

    def release(self, number):
        """The call has ended and will not be started again."""
        self._check(self._library.weft_release(self._group, number))

    def start(self, number, segments):
        """`segments` is an array of Segment; the memory that it names must stay until the call is done."""
        self._check(self._library.weft_start(self._group, number, segments, len(segments)))

    def start_apart(self, number, inputs, outputs):
        """The same for a call with slices."""
        self._check(self._library.weft_start_apart(self._group, number, inputs, len(inputs), outputs, len(outputs)))

    def is_done(self, number) -> bool:
        self._check(self._library.weft_is_done(self._group, number, self._done_at))
        return self._done.value != 0

    def wait(self, number):
        self._check(self._library.weft_wait(self._group, number))

    def times(self, number):
        """(began, ended) of its last execution in nanoseconds of time.monotonic_ns()."""
        began, ended = ctypes.c_int64(), ctypes.c_int64()
        self._check(self._library.weft_times(self._group, number, ctypes.byref(began), ctypes.byref(ended)))
        return began.value, ended.value

    def at(self, place: str):
        """Where this rank is in its work. From the first call on, the loss of a rank fails the job at once."""
        self._library.weft_at(self._group, place.encode())

    def fail(self, why: str):
        """Tells the other ranks that this one cannot go on."""
        if self._group:
            self._library.weft_fail(self._group, why.encode())

    def leave(self):
        if self._group and not sys.is_finalizing():
            group, self._group = self._group, None
            self._library.weft_leave(group)
