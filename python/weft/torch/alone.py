"""A job of one rank: nothing is hooked, and what a script asks of `optimizer.weft` is there all the same."""

import contextlib
from typing import Optional

from .errors import NotSupported
from .plan import Plan


class Alone:
    """`optimizer.weft` of a job of one rank. The model and the optimizer are as they were, but for the names they are given here."""

    plan: Optional[Plan] = None
    measuring = False

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        optimizer.weft = self
        object.__setattr__(model, "weft", self)
        object.__setattr__(model, "no_sync", contextlib.nullcontext)

    def report(self) -> dict:
        """As Session.report. Nothing is measured, and Weft's code takes no time of a step."""
        return {"steps": None, "across_steps": False, "predicted_step_s": None, "measured_step_s": None, "waited_s": 0.0, "own_s": 0.0,
                "aside": True, "plans": 0}

    def synchronize(self) -> None:
        """Every parameter is updated when `optimizer.step()` returns."""

    def record_timelines(self) -> None:
        raise NotSupported("timelines of a job of one rank: nothing travels")

    def save_timelines(self, folder) -> None:
        raise NotSupported("timelines of a job of one rank: nothing travels")

    def close(self) -> None:
        """Gives model and optimizer back as they were."""
        del self.optimizer.weft
        for name in ("weft", "no_sync"):
            object.__delattr__(self.model, name)
