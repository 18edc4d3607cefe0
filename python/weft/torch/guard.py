"""Parameters whose value or gradient is not there yet, and whoever touches one of them.

Between the end of backward and the update of a parameter its class is `Guarded`, a subclass of nn.Parameter. Any call of PyTorch that
is given one, in whatever way (a method, an index, a list for a `foreach` call, `.data`, a copy), comes here first, and gets what it
would have got from DDP: it waits for the gradient or for the update. A module's forward settles its own parameters before they are
used, so an ordinary step never comes here.
"""

import ctypes
import sys
from typing import Callable, Dict, Iterator

import torch

VALUE, GRADIENT, NO_GRADIENT = "value", "gradient", "no gradient"  # what is asked for; the last: it is to be forgotten

# They tell or change nothing that an update changes. Names of attributes and of methods.
_HARMLESS_ATTRIBUTES = frozenset((
    "shape", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim", "name", "names", "output_nr", "grad_fn", "itemsize", "nbytes",
    "is_cuda", "is_cpu", "is_sparse", "is_sparse_csr", "is_quantized", "is_meta", "is_mkldnn", "is_mps", "is_xpu", "is_nested",
    "_backward_hooks", "_post_accumulate_grad_hooks", "_version", "_base", "_grad_fn"))
_HARMLESS_METHODS = frozenset((
    "numel", "nelement", "dim", "ndimension", "size", "stride", "storage_offset", "is_contiguous", "element_size", "is_floating_point", "is_complex",
    "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "is_shared", "is_pinned", "__len__",
    "get_device", "__hash__"))
_TAKES_ADDRESS = frozenset(("data_ptr",))
without_guards = getattr(torch._C, "DisableTorchFunctionSubclass", torch._C.DisableTorchFunction)
_disabled = getattr(getattr(torch, "_dynamo", None), "disable", None)

_watchers: Dict[int, Callable] = {}  # by identity of a guarded parameter: what is called when it is touched


def _guarded_in(values) -> Iterator[torch.nn.Parameter]:
    for value in values:
        if type(value) is Guarded:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _guarded_in(value)
        elif isinstance(value, dict):
            yield from _guarded_in(value.values())


def _asked_for(func, args) -> str:
    """VALUE, GRADIENT or NO_GRADIENT; empty where nothing is that could be late."""
    attribute = getattr(getattr(func, "__self__", None), "__name__", None)
    name = getattr(func, "__name__", "")
    if attribute is None or name not in ("__get__", "__set__", "__delete__"):
        return "" if name in _HARMLESS_METHODS else VALUE
    if attribute in ("grad", "_grad"):
        return NO_GRADIENT if name == "__delete__" or (name == "__set__" and args[1] is None) else GRADIENT
    return "" if attribute in _HARMLESS_ATTRIBUTES else VALUE


class Guarded(torch.nn.Parameter):
    """What a parameter is while somebody must be told of whoever touches it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        asked = _asked_for(func, args)
        if asked:
            for parameter in list(_guarded_in((*args, *kwargs.values()))):
                touch(parameter, asked, takes_address=getattr(func, "__name__", "") in _TAKES_ADDRESS)
        with without_guards():
            return func(*args, **kwargs)

    # A copy is one of a plain parameter.
    def __deepcopy__(self, memo):
        touch(self, VALUE)
        unguard(self)
        return self.__deepcopy__(memo)

    def __reduce_ex__(self, protocol):
        touch(self, VALUE)
        unguard(self)
        return self.__reduce_ex__(protocol)


if _disabled is not None:  # a compiled region must not trace what runs here
    Guarded.__torch_function__ = classmethod(_disabled(Guarded.__torch_function__.__func__))


def touch(parameter: torch.nn.Parameter, asked: str, takes_address: bool = False) -> None:
    watcher = _watchers.get(id(parameter))
    if watcher is not None:
        watcher(asked, takes_address)


def can_guard(parameter: torch.nn.Parameter) -> bool:
    """Parameters of classes of their own stay what they are."""
    return type(parameter) in (torch.nn.Parameter, Guarded)


def guard(parameter: torch.nn.Parameter, watcher: Callable) -> None:
    _watchers[id(parameter)] = watcher
    parameter.__class__ = Guarded


def unguard(parameter: torch.nn.Parameter) -> None:
    if type(parameter) is Guarded:
        parameter.__class__ = torch.nn.Parameter
        _watchers.pop(id(parameter), None)


class Aliases:
    """Whether anybody but a parameter itself holds its memory: an alias, a view, an array of NumPy, a state_dict that was kept. Whoever
    reads those is not seen by a guard."""

    def __init__(self, parameter: torch.nn.Parameter):
        self._parameter = parameter
        self.ours = 0  # further holders that are Weft's own
        self._hold()

    def _hold(self) -> None:
        self._storage = _bytes_of(self._parameter)
        self._count = _counter_of(self._storage)

    def there_are(self) -> bool:
        found = self._count()
        if found < _HOLDERS + self.ours:  # the parameter has other memory now
            self._hold()
            found = self._count()
        return found != _HOLDERS + self.ours


def aliased(tensor: torch.Tensor, names: int) -> bool:
    """Tells whether a tensor has other holders than the caller, who knows it by `names` names."""
    storage = _bytes_of(tensor)
    return sys.getrefcount(tensor) > names + 2 or _counter_of(storage)() != _HOLDERS


def _bytes_of(tensor: torch.Tensor):
    with without_guards():
        return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()


def _counter_of(storage) -> Callable[[], int]:
    """What tells how many hold the memory. PyTorch before 2.1 has no function for it: there the count is the second word of the object."""
    if hasattr(torch._C, "_storage_Use_Count"):
        address = storage._cdata
        return lambda: torch._C._storage_Use_Count(address)
    count = ctypes.c_size_t.from_address(storage._cdata + ctypes.sizeof(ctypes.c_void_p))
    return lambda: count.value


def _holders_of_fresh_memory() -> int:
    """As this PyTorch counts: the tensor, and the object by which we look at it. 0: counting is not to be relied on."""
    one = torch.zeros(2, device="cpu")
    storage = _bytes_of(one)
    count = _counter_of(storage)
    alone = count()
    alias = one.detach()
    shared = count()
    del alias
    return alone if 1 <= alone <= 2 and shared == alone + 1 and count() == alone else 0


_HOLDERS = _holders_of_fresh_memory()
COUNTS_ALIASES = _HOLDERS > 0
