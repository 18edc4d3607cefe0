"""Modules in which no Python of ours runs: compiled, scripted or traced. Each is one module to Weft, and is waited for from outside.

`layer.compile()` compiles the hooks of a layer with it, so its gate goes around the compiled call. A graph must not hold what a hook does:
it would be done once, when the graph is made."""

from typing import Iterable, List

import torch

CAN_COMPILE = hasattr(torch, "compile")
is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)


class _Gate:
    """A compiled call, and what comes before it."""

    def __init__(self, module: torch.nn.Module, call, session):
        self._module, self.call, self._session = module, call, session

    def __call__(self, *inputs, **named):
        self._session.begin_compiled(self._module, inputs)
        outputs = self.call(*inputs, **named)
        self._session.end_compiled(self._module, inputs, outputs)
        return outputs


def is_opaque(module: torch.nn.Module) -> bool:
    """Whether it holds modules whose forward nobody is told of."""
    return isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "OptimizedModule"


def is_compiled(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def runs_as_one(module: torch.nn.Module) -> bool:
    return is_opaque(module) or getattr(module, "_compiled_call_impl", None) is not None


def compiled_calls(modules: Iterable[torch.nn.Module]) -> List[int]:
    """Identities, by which one notices that a module is compiled since."""
    return [id(module.__dict__.get("_compiled_call_impl")) for module in modules]


def gate_compiled(modules: Iterable[torch.nn.Module], session) -> None:
    for module in modules:
        call = module.__dict__.get("_compiled_call_impl")
        if call is not None and not isinstance(call, _Gate):
            module._compiled_call_impl = _Gate(module, call, session)


def ungate_compiled(modules: Iterable[torch.nn.Module]) -> None:
    for module in modules:
        call = module.__dict__.get("_compiled_call_impl")
        if isinstance(call, _Gate):
            module._compiled_call_impl = call.call
