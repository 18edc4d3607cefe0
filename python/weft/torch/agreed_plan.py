"""The plan of a job whose steps were measured: rank 0 makes it, and all do what it says."""

from typing import Optional, Tuple

from .plan import Plan, Profile, make_plan, plan_aside, read_plan
from .rehearsal import rehearse
from .shard_plan import make_sharded_plan
from .sharding import Sharding
from .step_trial import StepTrial

TRIED_CHOICES = 3  # of communicators, on GPUs


def agreed_plan(wire, profile: Profile, across: bool, passes: int,
                sharding: Optional[Sharding]) -> Tuple[Plan, Profile, Optional[StepTrial]]:
    """All ranks together. The plan, the profile as a rehearsal has changed it, and on GPUs the trial that the first steps are."""
    trial = None
    aside = None if sharding else plan_aside(profile, wire.ranks)
    if not aside and not wire.host_waits and wire.chooses_lanes:
        profile, choices = rehearse(wire, profile, TRIED_CHOICES if across else 1)
        if across:
            trial = StepTrial(wire, choices, ("", "gather") if sharding else ("",))
    text = ""
    if wire.rank == 0 and aside:
        text = aside.to_json()
    elif wire.rank == 0 and sharding and across:
        text = make_sharded_plan(profile, wire.ranks, sharding.level, sharding.unit_of, 1).to_json()
    elif wire.rank == 0:
        text = make_plan(profile, wire.ranks, across, passes if across else 1).to_json()
    return read_plan(wire.text_of_rank_0(text)), profile, trial
