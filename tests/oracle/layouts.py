"""The layouts and models of the matrix, and the flags that ask `weft run` for them."""

from dataclasses import dataclass

GLOBAL_BATCH = 24
DEFAULT_ORDER = "tp,cp,dp,pp"


@dataclass(frozen=True)
class ParallelLayout:
    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    vpp: int = 1
    sequence_parallel: bool = False
    schedule: str = "1f1b"  # `weft run` says this without a pipeline too
    uneven: bool = False
    seq: int = 16  # zigzag: twice the context-parallel ranks divide it

    @property
    def ranks(self):
        return self.tp * self.cp * self.dp * self.pp

    @property
    def axes(self):
        """Those with several ranks."""
        return sum(size > 1 for size in (self.tp, self.cp, self.dp, self.pp))


ODD = 15  # no even number of ranks divides it, nor does twice any: stretches without zigzag, stages that send no slices

LAYOUTS = {
    "dp2": ParallelLayout(dp=2),
    "dp4": ParallelLayout(dp=4),
    "tp2": ParallelLayout(tp=2),
    "tp2sp": ParallelLayout(tp=2, sequence_parallel=True),
    "tp4": ParallelLayout(tp=4),
    "cp2": ParallelLayout(cp=2),
    "cp3-stretches": ParallelLayout(cp=3, seq=ODD),
    "cp4": ParallelLayout(cp=4),
    "pp2-gpipe": ParallelLayout(pp=2, schedule="gpipe"),
    "pp2": ParallelLayout(pp=2),
    "pp2-interleaved": ParallelLayout(pp=2, vpp=2, schedule="interleaved"),
    "pp2-uneven": ParallelLayout(pp=2, uneven=True),
    "pp4": ParallelLayout(pp=4),
    "tp2-pp2": ParallelLayout(tp=2, pp=2),
    "tp2-pp2-odd": ParallelLayout(tp=2, pp=2, seq=ODD),
    "tp2sp-pp2-interleaved": ParallelLayout(tp=2, pp=2, vpp=2, sequence_parallel=True, schedule="interleaved"),
    "tp2-dp2": ParallelLayout(tp=2, dp=2),
    "tp2sp-dp2": ParallelLayout(tp=2, dp=2, sequence_parallel=True),
    "cp2-dp2": ParallelLayout(cp=2, dp=2),
    "cp2-pp2-gpipe": ParallelLayout(cp=2, pp=2, schedule="gpipe"),
    "pp2-dp2-gpipe": ParallelLayout(pp=2, dp=2, schedule="gpipe"),
    "pp2-dp2": ParallelLayout(pp=2, dp=2),
    "pp2-dp2-interleaved": ParallelLayout(pp=2, dp=2, vpp=2, schedule="interleaved"),
    "tp2-pp2-dp2": ParallelLayout(tp=2, pp=2, dp=2),
    "tp2sp-cp2-dp2": ParallelLayout(tp=2, cp=2, dp=2, sequence_parallel=True),
}
# One rank alone, for every length of sequences.
ALONE = {layout.seq: f"one-seq{layout.seq}" for layout in LAYOUTS.values()}
LAYOUTS.update((name, ParallelLayout(seq=seq)) for seq, name in ALONE.items())

# Dropout of GPT-2's rates, each its own, so that none is taken for another.
RATES = {"embd_pdrop": 0.05, "attn_pdrop": 0.1, "resid_pdrop": 0.15}
# Heads and feed-forward sizes that four ranks divide. A vocabulary of which four ranks get 128, 128, 44 and no rows (128,
# 128, none, none), heads wider than hidden, sizes that three (four) ranks do not divide, so that shards have padding,
# layers that four chunks do not.
CONFIGS = {
    "gpt": {"model_type": "gpt2", "n_layer": 4, "n_embd": 28, "n_head": 4, "n_inner": 52, "n_positions": 18,
            "vocab_size": 300},
    "llama": {"model_type": "llama", "num_hidden_layers": 5, "hidden_size": 29, "num_attention_heads": 8,
              "num_key_value_heads": 4, "head_dim": 6, "intermediate_size": 52, "max_position_embeddings": 64,
              "vocab_size": 256, "tie_word_embeddings": False},
    # Norms on queries and keys; four tensor-parallel ranks have two copies of each key/value head.
    "qwen3": {"model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 26, "num_attention_heads": 8,
              "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 44, "max_position_embeddings": 64,
              "vocab_size": 256, "tie_word_embeddings": True},
    # All tensor-parallel ranks have copies of the only key/value head, with biases.
    "qwen2": {"model_type": "qwen2", "num_hidden_layers": 4, "hidden_size": 26, "num_attention_heads": 8,
              "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 44, "max_position_embeddings": 64,
              "vocab_size": 256, "tie_word_embeddings": True},
    # Multi-head latent attention; no two sizes are the same.
    "latent": {"model_type": "deepseek_v2", "num_hidden_layers": 4, "hidden_size": 26, "num_attention_heads": 4,
               "q_lora_rank": 10, "kv_lora_rank": 7, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6,
               "intermediate_size": 44, "max_position_embeddings": 64, "vocab_size": 256, "tie_word_embeddings": False,
               "n_routed_experts": None},
}
CONFIGS["dropout"] = {**CONFIGS["gpt"], **RATES}
UNEVEN_STAGES = {name: "4,1" if name == "llama" else "1,3" for name in CONFIGS}


def micro_batch_size(layout, micro_batches):
    """Sequences of a micro-batch, or None where the global batch has no such parts."""
    parts = layout.dp * micro_batches
    return GLOBAL_BATCH // parts if GLOBAL_BATCH % parts == 0 else None


def layout_flags(layout, model, micro_batches, mesh_order):
    flags = ["--tp", layout.tp, "--cp", layout.cp, "--pp", layout.pp, "--dp", layout.dp, "--seq", layout.seq,
             "--global-batch", GLOBAL_BATCH, "--micro-batch", micro_batch_size(layout, micro_batches)]
    if layout.sequence_parallel:
        flags.append("--sequence-parallel")
    if layout.pp > 1:
        flags += ["--vpp", layout.vpp, "--schedule", layout.schedule]
    if layout.uneven:
        flags += ["--stage-layers", UNEVEN_STAGES[model]]
    if mesh_order != DEFAULT_ORDER:
        flags += ["--mesh-order", mesh_order]
    return flags
