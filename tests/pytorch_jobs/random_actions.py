"""What random programs do beside a plain loop: each action is a line of a script at some place of a step."""

import copy
import pickle

import torch
from torch import nn
from torch.nn import functional as F


class Place:
    """What an action sees. `number` is the action's own random number: which module or parameter it is about."""

    def __init__(self, job, model, wrapped, optimizer):
        self.job, self.model, self.wrapped, self.optimizer = job, model, wrapped, optimizer
        self.parameters, self.modules = list(model.parameters()), [module for module in model.modules() if any(True for _ in module.parameters())]
        self.kept, self.averages, self.handles = {}, {}, {}

    def parameter(self, number):
        return self.parameters[number % len(self.parameters)]

    def module(self, number):
        return self.modules[number % len(self.modules)]


# --- between backward and step ---


def clip_norm(place, number, step):
    place.job.note("norm", nn.utils.clip_grad_norm_([p for p in place.parameters if p.grad is not None], 0.05 + 0.01 * (number % 7)))


def clip_value(place, number, step):
    nn.utils.clip_grad_value_(place.model.parameters(), 0.01)


def clip_some_by_data(place, number, step):
    for parameter in place.parameters[number % 3::3]:
        if parameter.grad is not None:
            parameter.grad.data.clamp_(-0.01, 0.01)


def read_gradient(place, number, step):
    gradient = place.parameter(number).grad
    place.job.note("gradient", None if gradient is None else gradient.norm().item())


def read_all_gradients(place, number, step):
    place.job.note("gradients", [float(p.grad.abs().sum()) for p in place.parameters if p.grad is not None])


def halve_gradient(place, number, step):
    gradient = place.parameter(number).grad
    if gradient is not None:
        gradient *= 0.5


def replace_gradient(place, number, step):
    parameter = place.parameter(number)
    if parameter.grad is not None:
        parameter.grad = 0.3 * parameter.grad


def drop_gradient(place, number, step):
    place.parameter(number).grad = None


def foreach_on_gradients(place, number, step):
    gradients = [p.grad for p in place.parameters if p.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, 0.7)


def decay_before_step(place, number, step):
    with torch.no_grad():
        place.parameter(number).mul_(0.99)


# --- after the step ---


def average(place, number, step):
    kept = place.averages.setdefault(number, [p.detach().clone() for p in place.parameters])
    with torch.no_grad():
        for mine, parameter in zip(kept, place.parameters):
            mine.mul_(0.8).add_(parameter, alpha=0.2)


def average_by_foreach(place, number, step):
    kept = place.averages.setdefault(number, [p.detach().clone() for p in place.parameters])
    torch._foreach_mul_(kept, 0.8)
    torch._foreach_add_(kept, [p.detach() for p in place.parameters], alpha=0.2)


def average_by_state(place, number, step):
    now = place.model.state_dict()
    kept = place.averages.setdefault(number, {name: entry.clone() for name, entry in now.items()})
    for name, entry in now.items():
        kept[name] = kept[name] * 0.5 + entry * 0.5


def read_weight(place, number, step):
    place.job.note("weight", place.parameter(number).norm().item())


def read_weights(place, number, step):
    place.job.note("weights", [float(p.data.sum()) for p in place.parameters])


def read_as_text(place, number, step):
    place.job.note("text", str(place.parameter(number).flatten()[0].item()))


def read_as_vector(place, number, step):
    place.job.note("vector", nn.utils.parameters_to_vector(place.parameters).detach().sum())


def read_as_array(place, number, step):
    place.job.note("array", float(place.parameter(number).detach().cpu().numpy().sum()))


def clamp_weight(place, number, step):
    place.parameter(number).data.clamp_(-0.2, 0.2)


def scale_weight(place, number, step):
    with torch.no_grad():
        place.parameter(number).mul_(0.9)


def scale_by_foreach(place, number, step):
    with torch.no_grad():
        torch._foreach_mul_(place.parameters[number % 2::2], 0.95)


def write_by_index(place, number, step):
    with torch.no_grad():
        place.parameter(number)[..., 0] = 0.1


def write_new_data(place, number, step):
    parameter = place.parameter(number)
    parameter.data = parameter.data * 0.9


def copy_weight(place, number, step):
    parameter = place.parameter(number)
    with torch.no_grad():
        parameter.copy_(torch.full_like(parameter, 0.05) + 0.5 * parameter)


def evaluate(place, number, step):
    """What is wrapped, because DDP repeats rank 0's statistics before that alone; Weft knows no difference between the two."""
    place.wrapped.eval()
    with torch.no_grad():
        place.job.note("evaluation", place.wrapped(torch.ones(2, 8)))
    place.wrapped.train()


def evaluate_wrapped(place, number, step):
    with torch.no_grad():
        place.job.note("evaluation", place.wrapped(torch.ones(3, 8)))


def evaluate_in_inference_mode(place, number, step):
    place.wrapped.eval()
    with torch.inference_mode():
        place.job.note("evaluation", place.wrapped(torch.ones(2, 8)))
    place.wrapped.train()


def evaluate_on_rank_0(place, number, step):
    if place.job.rank == 0:
        place.model.eval()
        with torch.no_grad():
            place.job.note("evaluation", place.model(torch.ones(2, 8)))
        place.model.train()


def run_a_module(place, number, step):
    module = place.model[number % len(place.model)]
    was = module.training
    module.eval()
    with torch.no_grad():
        place.job.note("part", module(torch.ones(2, 8)))
    module.train(was)


def deep_copy(place, number, step):
    copied = copy.deepcopy(place.model).eval()
    with torch.no_grad():
        place.job.note("copy", copied(torch.ones(2, 8)))


def pickle_model(place, number, step):
    place.job.note("pickled", [float(p.sum()) for p in pickle.loads(pickle.dumps(place.model)).parameters()])


def keep_state(place, number, step):
    place.kept["model"] = {name: parameter.detach().clone() for name, parameter in place.model.named_parameters()}
    place.kept["optimizer"] = copy.deepcopy(place.optimizer.state_dict())


def go_back(place, number, step):
    if place.kept:
        place.model.load_state_dict(place.kept["model"], strict=False)
        if number % 2:
            place.optimizer.load_state_dict(place.kept["optimizer"])


def load_a_part(place, number, step):
    module = place.module(number)
    module.load_state_dict({name: 0.5 * parameter.detach() for name, parameter in module.named_parameters()}, strict=False)


def begin_a_layer_anew(place, number, step):
    module = place.module(number)
    if hasattr(module, "reset_parameters") and not hasattr(module, "parametrizations") and "weight" in module._parameters:
        module.reset_parameters()


def read_optimizer_state(place, number, step):
    state = [place.optimizer.state.get(parameter, {}) for parameter in place.parameters]
    place.job.note("state", [float(entries[name].float().sum()) for entries in state for name in sorted(entries)
                             if isinstance(entries[name], torch.Tensor)])


def change_rate(place, number, step):
    for group in place.optimizer.param_groups:
        group["lr"] *= 0.8


def zero_gradients(place, number, step):
    place.optimizer.zero_grad(set_to_none=bool(number % 2))


def read_gradients_after_step(place, number, step):
    read_gradient(place, number, step)


# --- that end with the next action of their kind ---


def hook_on_gradient(place, number, step):
    if number in place.handles:
        place.handles.pop(number).remove()
    elif place.parameter(number).requires_grad:
        place.handles[number] = place.parameter(number).register_hook(lambda gradient: 0.8 * gradient)


def reading_pre_hook(place, number, step):
    if number in place.handles:
        place.handles.pop(number).remove()
    else:
        other = place.parameter(number // 7)
        place.handles[number] = place.module(number).register_forward_pre_hook(
            lambda module, inputs: (inputs[0] * (1 + 0.1 * other.detach().mean()),) if torch.is_tensor(inputs[0]) else None)


def reading_forward_hook(place, number, step):
    if number in place.handles:
        place.handles.pop(number).remove()
    else:
        other = place.parameter(number // 7)
        place.handles[number] = place.module(number).register_forward_hook(lambda module, inputs, found: found + 0.1 * other.detach().mean())


def freeze(place, number, step):
    for parameter in place.model[number % len(place.model)].parameters():
        parameter.requires_grad_(not parameter.requires_grad)


# --- in the loss ---


def penalty(place, number, step):
    return 1e-2 * place.parameter(number).square().sum()


def penalty_on_all(place, number, step):
    return 1e-3 * sum(p.abs().sum() for p in place.parameters)


def second_forward(place, number, step):
    return 0.1 * place.wrapped(torch.ones(4, 8)).square().mean()


def functional_use(place, number, step):
    layer = place.model[0]
    return 0.1 * F.linear(torch.ones(1, 8), layer.weight, layer.bias).square().mean()


ACTIONS = {
    "gradients": (clip_norm, clip_value, clip_some_by_data, read_gradient, read_all_gradients, halve_gradient, replace_gradient, drop_gradient,
                  foreach_on_gradients, decay_before_step, read_weight, hook_on_gradient, evaluate),
    "weights": (average, average_by_foreach, average_by_state, read_weight, read_weights, read_as_text, read_as_vector, read_as_array,
                clamp_weight, scale_weight, scale_by_foreach, write_by_index, write_new_data, copy_weight, evaluate, evaluate_wrapped,
                evaluate_in_inference_mode, evaluate_on_rank_0, run_a_module, deep_copy, pickle_model, keep_state, go_back, load_a_part,
                begin_a_layer_anew, read_optimizer_state, change_rate, zero_gradients, read_gradients_after_step, hook_on_gradient,
                reading_pre_hook, reading_forward_hook, freeze),
    "begin": (read_weights, scale_weight, evaluate, run_a_module, average, clamp_weight, read_gradient),
    "before forward": (penalty, penalty_on_all, functional_use),
    "after forward": (penalty, penalty_on_all, second_forward, functional_use),
}
BY_NAME = {action.__name__: action for actions in ACTIONS.values() for action in actions}
