# weft export --to fsdp2: gpt, policy fsdp, tp 1, pp 1, dp 2
# Note: the embedding and the head are in the root's group unless apply() gets them as own_groups
# Left out: micro-batches of 1, a global batch of 8, sequences of 64: the job calls 4 micro-batches itself
# Left out: what fully_shard has no setting for: the shape of the model (gpt); no dropout; flash attention;
#  how collectives are carried out: ring
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

MICRO_BATCHES = 4
MESH = {"replicate": 1, "shard": 2}  # of init_device_mesh
RESHARD_AFTER_FORWARD = True
PREFETCH = 1  # groups gathered ahead
PARAM_DTYPE = torch.float32
REDUCE_DTYPE = torch.float32
# By model chunk in the order of the model: layers of the chunk that are gathered and reduced together.
GROUPS = [
    [[0], [1], [2], [3]],
]


def layers_of(model):
    """Finds the transformer layers of a model or of a pipeline stage's part of it."""
    for path in ("layers", "model.layers", "transformer.h", "decoder.layers"):
        found = model
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return list(found.values() if hasattr(found, "values") else found)
    raise ValueError("pass the transformer layers: apply(model, layers=[...])")


def apply(model, mesh=None, chunk=0, layers=None, own_groups=()):
    """Shards the model in place: a group for each entry of GROUPS[chunk], one for the rest.

    own_groups: modules such as the embedding, or lists of modules such as final norm and head, with groups of their own.
    """
    layers = layers_of(model) if layers is None else list(layers)
    policy = MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE)
    options = {"mp_policy": policy} if mesh is None else {"mp_policy": policy, "mesh": mesh}
    groups = [[layers[i] for i in group] for group in GROUPS[chunk]]
    if sum(map(len, groups)) != len(layers):
        raise ValueError(f"the plan has {sum(map(len, groups))} layers here, the model {len(layers)}")
    for group in groups:
        fully_shard(group[0] if len(group) == 1 else group, reshard_after_forward=RESHARD_AFTER_FORWARD, **options)
    for modules in own_groups:
        fully_shard(modules, reshard_after_forward=RESHARD_AFTER_FORWARD, **options)
    fully_shard(model, reshard_after_forward=False, **options)
    for i, group in enumerate(groups):
        later = [module for other in groups[i + 1 : i + 1 + PREFETCH] for module in other]
        if later:
            group[0].set_modules_to_forward_prefetch(later)
        earlier = [module for other in reversed(groups[max(0, i - PREFETCH) : i]) for module in other]
        if earlier:
            group[0].set_modules_to_backward_prefetch(earlier)
    return model


def before_backward(model, micro_batch):
    """ZeRO 2 keeps parameters gathered until the backward of the last micro-batch has ended."""
    if not RESHARD_AFTER_FORWARD:
        model.set_reshard_after_backward(micro_batch + 1 == MICRO_BATCHES)
