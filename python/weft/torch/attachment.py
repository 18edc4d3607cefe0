"""What Weft hangs on a user's model and optimizer, and takes away again."""

import inspect
import types
from typing import Callable, Iterable, List

import torch

from .engine import Slot


class Attachment:
    """Of one job. `on_module(name)` makes what runs before a module's forward, `on_gradient` is told of a parameter's gradient."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, slots: List[Slot]):
        self.model, self.optimizer, self._slots = model, optimizer, slots
        self._handles: list = []
        self.step_handles: list = []
        self._accumulators: list = []
        self._step_before = optimizer.__dict__.get("step")  # as a scheduler has wrapped it
        self.counts_steps = getattr(optimizer.step, "_with_counter", False)

    def install(self, session, step: Callable, synchronized: Callable, read_state: Callable) -> None:
        """step(closure) becomes the optimizer's; synchronized(method) is called instead of methods that read or load the optimizer's state,
        and read_state after each module's state was collected."""
        model, optimizer = self.model, self.optimizer
        optimizer.step = types.MethodType(lambda _, closure=None: step(closure), optimizer)
        optimizer.step.__func__._with_counter = self.counts_steps
        for name in ("state_dict", "load_state_dict"):
            setattr(optimizer, name, types.MethodType(self._through(getattr(optimizer, name), synchronized), optimizer))
        optimizer.zero_grad = types.MethodType(self._zeroing(optimizer.zero_grad), optimizer)
        object.__setattr__(model, "zero_grad", types.MethodType(self._zeroing(model.zero_grad), model))
        self._handles += [module._register_state_dict_hook(read_state) for module in model.modules()]
        self._handles.append(model._register_load_state_dict_pre_hook(lambda *_: session.synchronize()))
        optimizer.weft = session
        # Not as a sub-module or parameter: they are the same with and without Weft.
        object.__setattr__(model, "weft", session)
        object.__setattr__(model, "no_sync", session.no_sync)

    def keep(self, handles: Iterable) -> None:
        self._handles += handles

    def hook_step(self, modules: Iterable, on_module: Callable, slots: Iterable[Slot], on_gradient: Callable) -> None:
        """What a step runs through from now on, instead of what it ran through before."""
        for handle in self.step_handles:
            handle.remove()
        self._accumulators = []
        self.step_handles = [module.register_forward_pre_hook(on_module(name)) for name, module in modules]
        for slot in slots:
            self._hook_gradient(slot, on_gradient)

    def _hook_gradient(self, slot: Slot, on_gradient: Callable) -> None:
        if hasattr(slot.parameter, "register_post_accumulate_grad_hook"):
            self.step_handles.append(slot.parameter.register_post_accumulate_grad_hook(lambda _: on_gradient(slot)))
            return
        accumulator = slot.parameter.expand_as(slot.parameter).grad_fn.next_functions[0][0]
        self.step_handles.append(accumulator.register_hook(lambda *_: on_gradient(slot)))
        self._accumulators.append(accumulator)  # or it would go with its hook

    @staticmethod
    def _through(method: Callable, synchronized: Callable) -> Callable:
        return lambda _, *values, **named: synchronized(lambda: method(*values, **named))

    def _zeroing(self, method: Callable) -> Callable:
        """Gradients that are on their way are out of zero_grad's reach; what it would leave is remembered."""
        usual = inspect.signature(method).parameters["set_to_none"].default

        def zero_grad(_, set_to_none: bool = usual):
            for slot in self._slots:
                slot.keeps_zeros = not set_to_none
            method(set_to_none=set_to_none)
        return zero_grad

    def remove(self) -> None:
        """Model and optimizer are as they were."""
        for handle in (*self._handles, *self.step_handles):
            handle.remove()
        for holder, names in ((self.optimizer, ("step", "zero_grad", "state_dict", "load_state_dict", "weft")),
                              (self.model, ("zero_grad", "weft", "no_sync"))):
            for name in names:
                holder.__dict__.pop(name, None)
        if self._step_before is not None:
            self.optimizer.step = self._step_before
