"""What Weft hangs on a user's model and optimizer, and takes away again.

Modules carry nothing of it: one hook of PyTorch's for all modules looks up whose forward begins. So copies, pickles and scripts of a
model, or of a part of it, are those of a plain one; and Weft's waiting comes before all hooks of a module's own.
"""

import inspect
import types
from typing import Callable, Iterable, List

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from . import uneven
from .engine import Slot
from .guard import without_guards
from .watched_state import WatchedState, keep_raw_state

_ON_OPTIMIZER = ("step", "zero_grad", "state_dict", "load_state_dict", "weft")
_ON_MODEL = ("zero_grad", "state_dict", "weft", "no_sync", "__reduce_ex__", "__deepcopy__", *uneven.ON_MODEL)


class Attachment:
    """What one job has hung on its model and optimizer."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, slots: List[Slot]):
        self.model, self.optimizer, self._slots = model, optimizer, slots
        self._handles: list = []
        self.step_handles: list = []
        self._accumulators: list = []
        self.own_step = optimizer.step  # as a scheduler or a library may have wrapped it
        self._step_before = optimizer.__dict__.get("step")
        self.counts_steps = getattr(optimizer.step, "_with_counter", False)

    def install(self, session, step: Callable, synchronized: Callable, zero: Callable, before_forward: Callable, settle: Callable, shards=None) -> None:
        """step(closure) becomes the optimizer's; synchronized(method) is called instead of methods that read or load the optimizer's
        state, zero(set_to_none, method) instead of zero_grad, before_forward(module, inputs) before any module's forward."""
        model, optimizer = self.model, self.optimizer
        optimizer.step = types.MethodType(lambda _, closure=None: step(closure), optimizer)
        optimizer.step.__func__._with_counter = self.counts_steps
        for name in ("state_dict", "load_state_dict"):
            setattr(optimizer, name, types.MethodType(self._through(getattr(optimizer, name), synchronized), optimizer))
        optimizer.zero_grad = types.MethodType(self._zeroing(optimizer.zero_grad, zero), optimizer)
        self._settle, self._shards = settle, shards
        self.watch_state()
        optimizer.weft = session
        self._handles.append(register_module_forward_pre_hook(before_forward))
        own = {"zero_grad": types.MethodType(self._zeroing(model.zero_grad, zero), model), "weft": session, "no_sync": session.no_sync,
               "__reduce_ex__": types.MethodType(self._reduced, model)}
        if hasattr(type(model), "__deepcopy__"):
            own["__deepcopy__"] = types.MethodType(self._copied, model)
        for name, value in own.items():  # not as a sub-module or parameter: they are the same with and without Weft
            object.__setattr__(model, name, value)

    def replace_on_model(self, name: str, method: Callable) -> None:
        object.__setattr__(self.model, name, types.MethodType(method, self.model))

    def after_forward(self, hook: Callable) -> None:
        self._handles.append(register_module_forward_hook(hook))

    def keep(self, handles: Iterable) -> None:
        self._handles += handles

    def watch_state(self) -> None:
        """Also after others have put a plain dictionary in its place."""
        if not isinstance(self.optimizer.state, WatchedState):
            self.optimizer.state = WatchedState(self.optimizer.state, self._settle, self._shards)

    def hook_gradients(self, slots: Iterable[Slot], on_gradient: Callable, other_slots: Iterable[Slot], on_other: Callable) -> None:
        """What backward runs through from now on, instead of what it ran through before."""
        self.unhook_gradients()
        for slot in slots:
            self._hook_gradient(slot, on_gradient)
        for slot in other_slots:
            self._hook_gradient(slot, on_other)

    def unhook_gradients(self) -> None:
        for handle in self.step_handles:
            handle.remove()
        self.step_handles, self._accumulators = [], []

    def _hook_gradient(self, slot: Slot, on_gradient: Callable) -> None:
        if not slot.parameter.requires_grad:
            return  # frozen at the moment; Watch tells when it is trained again
        if hasattr(slot.parameter, "register_post_accumulate_grad_hook"):
            self.step_handles.append(slot.parameter.register_post_accumulate_grad_hook(lambda _: on_gradient(slot)))
            return
        with torch.inference_mode(False), torch.enable_grad(), without_guards():
            accumulator = slot.parameter.expand_as(slot.parameter).grad_fn.next_functions[0][0]
        self.step_handles.append(accumulator.register_hook(lambda *_: on_gradient(slot)))
        self._accumulators.append(accumulator)  # or it would go with its hook

    @staticmethod
    def _through(method: Callable, synchronized: Callable) -> Callable:
        return lambda _, *values, **named: synchronized(lambda: method(*values, **named))

    @staticmethod
    def _zeroing(method: Callable, zero: Callable) -> Callable:
        usual = inspect.signature(method).parameters["set_to_none"].default

        def zero_grad(_, set_to_none: bool = usual):
            zero(set_to_none, lambda: method(set_to_none=set_to_none))
        return zero_grad

    # --- copies and pickles of the model ---

    def _reduced(self, model: torch.nn.Module, protocol):
        """As without Weft: what pickle and copy ask for."""
        self._settle()
        taken = self._take_away()
        try:
            function, arguments, *rest = type(model).__reduce_ex__(model, protocol)
            if rest and isinstance(rest[0], dict):
                rest[0] = dict(rest[0])
        finally:
            model.__dict__.update(taken)
        return (function, arguments, *rest)

    def _copied(self, model: torch.nn.Module, memo):
        self._settle()
        taken = self._take_away()
        try:
            return type(model).__deepcopy__(model, memo)
        finally:
            model.__dict__.update(taken)

    def _take_away(self) -> dict:
        return {name: self.model.__dict__.pop(name) for name in _ON_MODEL if name in self.model.__dict__}

    def remove(self) -> None:
        """Model and optimizer are as they were."""
        for handle in self._handles:
            handle.remove()
        self.unhook_gradients()
        keep_raw_state(self.optimizer)
        for name in _ON_OPTIMIZER:
            self.optimizer.__dict__.pop(name, None)
        self._take_away()
        if self._step_before is not None:
            self.optimizer.step = self._step_before
