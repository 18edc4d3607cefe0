"""Gradients that no plan carries, because they are sparse or of a type for which Weft has no program: averaged when backward ends, as DDP
does, from what every rank gives."""

from typing import List

import torch

from .wire import TYPES, storage_bytes


def sparse_parameters(model: torch.nn.Module) -> set:
    return {id(module.weight) for module in model.modules()
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse}


def is_odd(parameter: torch.nn.Parameter, sparse: set) -> bool:
    return parameter.dtype not in TYPES or id(parameter) in sparse


class OddGradients:
    """Averages the gradients of these parameters, which are the same on all ranks."""

    def __init__(self, parameters: List[torch.nn.Parameter], wire):
        self.parameters, self._wire = parameters, wire

    def average(self) -> None:
        """All ranks together. One that no rank has used keeps the gradient that it has."""
        if not self.parameters:
            return
        used = self._wire.largest([int(parameter.grad is not None) for parameter in self.parameters])
        for parameter, is_used in zip(self.parameters, used):
            if is_used:
                self._average(parameter)

    def _average(self, parameter: torch.nn.Parameter) -> None:
        gradient = parameter.grad
        (sparse,) = self._wire.largest([int(gradient is not None and gradient.is_sparse)])
        if sparse:
            parameter.grad = self._sum_of_sparse(parameter, gradient) / self._wire.ranks
            return
        if gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        with torch.no_grad():
            parts = self._gathered(gradient)
            gradient.copy_(sum(parts[1:], parts[0]) / self._wire.ranks)

    def _gathered(self, tensor: torch.Tensor) -> List[torch.Tensor]:
        mine = tensor.detach().contiguous()
        return [storage_bytes(data, mine.dtype).view(mine.shape).to(mine.device)
                for data in self._wire.gather_bytes(mine.cpu().view(-1).view(torch.uint8).numpy().tobytes())]

    def _sum_of_sparse(self, parameter: torch.nn.Parameter, gradient) -> torch.Tensor:
        if gradient is None:
            gradient = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64, device="cpu"),
                                               torch.zeros(0, *parameter.shape[1:], dtype=parameter.dtype, device="cpu"),
                                               parameter.shape)
        gradient = gradient.detach().coalesce()
        rows, values = gradient.indices().cpu(), gradient.values().cpu()
        all_rows = [storage_bytes(data, rows.dtype).view(rows.shape[0], -1) for data in self._wire.gather_bytes(_bytes(rows))]
        all_values = [storage_bytes(data, values.dtype).view(-1, *values.shape[1:]) for data in self._wire.gather_bytes(_bytes(values))]
        return torch.sparse_coo_tensor(torch.cat(all_rows, dim=1), torch.cat(all_values), parameter.shape).coalesce().to(parameter.device)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
