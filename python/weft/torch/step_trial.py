"""The first steps under a plan on GPUs are trained with each of the choices of communicators that a rehearsal found good, and the rest with
the fastest. A rehearsal has neither the job's own kernels nor its transfers, so what it finds best is often not best."""

import statistics
from typing import Dict, List, Sequence, Tuple

from .torch_wire import TorchWire, words_of

SETTLING, COUNTED = 1, 3  # steps with each choice; what is under way when a step begins was started with the choice before


class StepTrial:
    def __init__(self, wire: TorchWire, choices: Sequence[Tuple[int, int]], kinds: Sequence[str]):
        self._wire, self._choices = wire, choices
        self._begins: List[object] = []  # moments of all steps
        for choice in choices:
            wire.make_lanes(choice, kinds)

    def begin_step(self) -> bool:
        """At the first forward of a step. True: each choice has had its steps, and `decide` is next."""
        number, step = divmod(len(self._begins), SETTLING + COUNTED)
        self._begins.append(self._wire.now())
        if number == len(self._choices):
            return True
        if step == 0:
            self._wire.choose(self._choices[number])
        return False

    def decide(self) -> Dict[str, float]:
        """All ranks together, with nothing under way: takes the fastest choice. Returns the seconds of a step with each."""
        since = self._wire.seconds_since(self._begins[0])
        moments = [since(begin) for begin in self._begins]
        steps = [later - earlier for earlier, later in zip(moments, moments[1:])]
        each = SETTLING + COUNTED
        seconds = self._wire.average([statistics.median(steps[number * each + SETTLING:(number + 1) * each])
                                      for number in range(len(self._choices))])
        self._wire.use_lanes(self._choices[seconds.index(min(seconds))])
        return {words_of(choice): taken for choice, taken in zip(self._choices, seconds)}

    def end(self) -> None:
        """Before it has come to a decision, with nothing under way: goes on with what the rehearsal found best."""
        self._wire.use_lanes(self._choices[0])
