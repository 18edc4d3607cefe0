"""Makes faults visible in small jobs on a fast link: plans that always cross steps, with many transfers, and transfers that seem to
take up to some milliseconds, so that whatever is not waited for is not there yet."""

import random
import time


def force_plans() -> None:
    """On fast links a job has nothing to gain from Weft, which then stands aside, and small models travel in one transfer."""
    from weft.torch import plan
    plan.NOTHING_TO_GAIN = -1.0
    plan.TRANSFER_SIZES = (1024,)
    plan.LEAST_TRANSFERS = (1,)
    plan.HOST_PER_TRANSFER = 0.0


def delay_transfers(seed: str, longest: float = 0.003) -> None:
    """Every collective of Weft's seems to land up to `longest` seconds after it was started, and some are started late."""
    from weft.torch import library
    draw = random.Random(seed)
    lands = {}

    def started(method):
        def start(group, number, *more):
            if draw.random() < 0.15:
                time.sleep(longest * draw.random())
            method(group, number, *more)
            if draw.random() < 0.7:
                lands[id(group), number] = time.monotonic() + longest * draw.random()
        return start

    kind = library.Group
    is_done, wait = kind.is_done, kind.wait

    def seems_done(group, number):
        return time.monotonic() >= lands.get((id(group), number), 0.0) and is_done(group, number)

    def wait_for(group, number):
        time.sleep(max(0.0, lands.pop((id(group), number), 0.0) - time.monotonic()))
        wait(group, number)

    kind.start, kind.start_apart = started(kind.start), started(kind.start_apart)
    kind.is_done, kind.wait = seems_done, wait_for
