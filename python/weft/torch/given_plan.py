"""A plan that the user gives: read, and checked to be one for this job."""

from pathlib import Path
from typing import Optional

from .errors import PlanMismatch
from .plan import Plan, read_plan, require_whole_parameters
from .wire import type_name


def plan_from(plan) -> Plan:
    """`plan` is a Plan or the path of one."""
    if isinstance(plan, Plan):
        return plan
    try:
        text = Path(plan).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanMismatch(f"{plan}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return read_plan(text, str(plan))


def plan_given(plan, model, ranks: int, shard: str) -> Optional[Plan]:
    """`plan` is a Plan, the path of one, or None."""
    if plan is None:
        return None
    name = "plan" if isinstance(plan, Plan) else str(plan)
    found = plan_from(plan)
    require_fitting(found, name, [(name, parameter.numel(), type_name(parameter.dtype)) for name, parameter
                                  in model.named_parameters() if parameter.requires_grad], ranks, shard)
    return found


def require_fitting(plan: Plan, name: str, slots_of_model, ranks: int, shard: str = "") -> None:
    """Raises PlanMismatch where a plan from a file is for another job."""
    if plan.across_steps and plan.shard != shard:
        raise PlanMismatch(f"{name}: a plan for shard={plan.shard or None!r}; the job has {shard or None!r}")
    if plan.shard:
        require_whole_parameters(plan, name)
    if plan.ranks != ranks:
        raise PlanMismatch(f"{name}: a plan for {plan.ranks} ranks; the job has {ranks}")
    if [(p.name, p.elements, p.element_type) for p in plan.parameters] != list(slots_of_model):
        raise PlanMismatch(f"{name}: a plan for another model: its parameters have other names, sizes or types")
