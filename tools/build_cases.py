"""The commands that tools/compare_builds.py gives to both builds: every policy, every axis and flag of a layout, dense,
expert and latent-attention models, GPU clusters and `local`, text and JSON, files, and input that must be refused.

A case is a name and a list of commands, which run one after the other in a folder of their own. Every command is the list
of arguments of `weft`. Models are small: what differs between two builds shows in two layers as well as in eighty.
"""

import json
import shlex
from pathlib import Path
from typing import NamedTuple

TRACES = Path(__file__).resolve().parent.parent / "tests" / "data" / "traces"


class Case(NamedTuple):
    name: str
    commands: list
    is_training: bool = False  # times are measured: only what training computes is compared
    is_refused: bool = False  # exit code 2 is the answer


TINY = "--layers 4 --hidden 256 --heads 8 --vocab 1024 --seq 128"
EXPERTS = "--layers 4 --hidden 256 --heads 8 --vocab 1024 --seq 128 --experts 8 --top-k 2"
SEARCH = "--budget 0.2"
HUGGING_FACE = {
    "latent.json": {
        "model_type": "deepseek_v3", "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 64,
        "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
        "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "tie_word_embeddings": False},
    "dense_latent.json": {
        "model_type": "deepseek_v2", "num_hidden_layers": 2, "hidden_size": 26, "intermediate_size": 44,
        "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 64, "q_lora_rank": 10, "kv_lora_rank": 7,
        "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": None,
        "tie_word_embeddings": False},
    "llama.json": {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64,
        "tie_word_embeddings": False},
}
MEGATRON_SCRIPT = """
GPUS=16
MODEL=(--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256)
torchrun --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}" --tensor-model-parallel-size 2 --sequence-parallel \\
  --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size $((GPUS * 2)) --bf16 --vocab-size 1024 \\
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --use-flash-attn
"""
CLUSTER = {
    "name": "uneven", "device": "a100-80", "nodes": 4, "devices_per_node": 4, "nodes_per_leaf": 2,
    "levels": [
        {"name": "nvlink", "joins": "node", "bandwidth": "300GB/s", "latency": "1us"},
        {"name": "nic", "joins": "leaf", "bandwidth": "200Gb/s", "latency": "5us", "shared_by": 2},
        {"name": "spine", "joins": "cluster", "via": ["nic"], "bandwidth": "400Gb/s", "latency": "2us",
         "oversubscription": 2, "shared_by": 8}],
    "overrides": [{"node": 3, "level": "nic", "bandwidth": "50Gb/s"}],
}
PROFILE = {
    "weft_profile": 1,
    "devices": {"a100-80": {"matrix_efficiency": 0.5, "launch_us": 9, "compute_slowdown": 0.2,
                            "operations": [{"kind": "gemm", "phase": "forward", "dtype": "bf16",
                                            "dims": [128, 768, 256, 1], "seconds": 0.00012}]}},
    "links": {"nic": {"efficiency": 0.7}},
}

LINKS = {
    "weft_links": 1,
    "collectives": [{"collective": "all_reduce", "members": 8, "bytes": [1048576, 1073741824], "bus_gb_per_s": [40, 400]},
                    {"collective": "all_reduce", "members": 16, "bytes": [1073741824], "bus_gb_per_s": [180]}],
}
MEASURED_RUNS = """nodes,layers,hidden,heads,vocab,seq,tp,zero,global_batch,step_s,allreduce_gbs,allreduce_intra_gbs
1,2,1024,16,1024,512,1,0,32,0.05,430,450
1,4,1024,16,1024,512,2,0,32,0.12,440,450
2,4,1024,16,1024,512,4,1,64,0.2,200,450
2,4,2048,16,1024,512,8,1,64,0.3,210,450
"""


EVALUATION = {"name": "evaluate", "stage": 0, "seconds": 0.0001, "release": "layer 0 ffn_residual forward",
              "deadline": "layer 0 ffn_residual forward", "deadline_step": "next"}


def write_inputs(folder):
    """The files that cases name, into the folder that their commands run in."""
    for name, content in [*HUGGING_FACE.items(), ("uneven.json", CLUSTER), ("profile.json", PROFILE),
                          ("links.json", LINKS),
                          ("any_machine.json", {"weft_profile": 1}),
                          ("flags.json", {"cluster": "dgx-a100:1", "layers": 2, "hidden": 128, "heads": 4,
                                          "policy": "serial,ddp", "json": True})]:
        (folder / name).write_text(json.dumps(content))
    (folder / "extra.json").write_text(json.dumps({"weft_extra": 1, "tasks": [EVALUATION], "may_wait": ["weight_grads"]}))
    (folder / "runs.csv").write_text(MEASURED_RUNS)
    (folder / "launch.sh").write_text(MEGATRON_SCRIPT)
    (folder / "broken.json").write_text('{"version": 1, "plan": [')
    (folder / "text.txt").write_text("to be or not to be, that is the question: " * 40)


# Layouts of 16 devices and more: (name, model, flags). Each is planned with every policy that applies.
LAYOUTS = [
    ("dp", TINY, "--global-batch 32"),
    ("tp", TINY, "--tp 4 --global-batch 16"),
    ("tp-sequence-parallel", TINY, "--tp 4 --sequence-parallel --global-batch 16"),
    ("pp", TINY, "--pp 4 --global-batch 32"),
    ("pp-gpipe", TINY, "--pp 2 --schedule gpipe --global-batch 32"),
    ("pp-breadth-first", TINY, "--pp 2 --vpp 2 --schedule breadth-first --global-batch 24"),
    ("pp-zb-h1", TINY, "--pp 4 --schedule zb-h1 --global-batch 32"),
    ("pp-zbv", TINY, "--pp 2 --schedule zbv --global-batch 32"),
    ("pp-slices", TINY, "--pp 4 --slices 4 --global-batch 8"),
    ("pp-slices-gpipe", TINY, "--pp 2 --tp 2 --sequence-parallel --slices 64,40,24 --schedule gpipe --global-batch 8"),
    ("pp-slices-auto", TINY, "--pp 4 --slices auto --global-batch 4"),
    ("pp-slices-cp", TINY, "--pp 2 --cp 2 --slices 64,40,24 --schedule zb-h1 --zero 1 --global-batch 8"),
    ("pp-stage-layers", TINY, "--pp 2 --stage-layers 1,3 --global-batch 32"),
    ("pp-recompute-layers", TINY, "--pp 2 --recompute full --recompute-layers 1,0 --global-batch 32"),
    ("pp-recompute-layers-auto", TINY,
     "--pp 4 --micro-batch 4 --recompute full --recompute-layers auto --stage-layers auto --memory 0.042 --global-batch 64"),
    ("vpp", TINY, "--pp 2 --vpp 2 --global-batch 32"),
    ("vpp-stage-layers", "--layers 6 --hidden 256 --heads 8 --seq 128",
     "--pp 2 --vpp 2 --stage-layers 1,2,2,1 --global-batch 64 --dp 8"),
    ("cp", TINY, "--cp 2 --global-batch 16"),
    ("all-axes", TINY, "--tp 2 --sequence-parallel --pp 2 --vpp 2 --cp 2 --global-batch 16 --zero 1"),
    ("mesh-order", TINY, "--tp 2 --pp 2 --cp 2 --mesh-order dp,tp,cp,pp --global-batch 16"),
    ("mesh-order-pipeline-inside", TINY, "--tp 2 --pp 4 --mesh-order pp,tp,cp,dp --global-batch 16"),
    ("zero1", TINY, "--zero 1 --global-batch 32"),
    ("zero2", TINY, "--zero 2 --global-batch 64"),
    ("zero3", TINY, "--zero 3 --global-batch 32"),
    ("zero3-layer-group", TINY, "--zero 3 --layer-group 2 --global-batch 64"),
    ("zero0-reduce-every", TINY, "--reduce-every 2 --global-batch 64"),
    ("zero2-reduce-step", TINY, "--zero 2 --reduce-every step --global-batch 64"),
    ("zero2-reduce-auto", TINY, "--zero 2 --reduce-every auto --global-batch 64"),
    ("zero2-layer-group", TINY, "--zero 2 --layer-group 4 --tp 2 --global-batch 64"),
    ("pp-zb-h2", TINY, "--pp 2 --schedule zb-h2 --global-batch 32"),
    ("pp-v-min", TINY, "--pp 2 --vpp 2 --schedule v-min --clip-grad 1 --global-batch 32"),
    ("pp-v-half", TINY, "--pp 2 --vpp 2 --schedule v-half --global-batch 32"),
    ("pp-hanayo", TINY, "--pp 2 --vpp 2 --schedule hanayo --global-batch 32"),
    ("pp-dualpipev", TINY, "--pp 2 --vpp 2 --schedule dualpipev --global-batch 64"),
    ("pp-auto-waves", TINY, "--pp 2 --vpp 2 --schedule auto-waves --global-batch 32"),
    ("pp-auto-loops", TINY, "--pp 2 --vpp 2 --schedule auto-loops --global-batch 24"),
    ("pp-dualpipe", TINY, "--pp 2 --vpp 2 --schedule dualpipe --global-batch 64"),
    ("pp-warm-up-depth", TINY, "--pp 2 --warm-up-depth 3 --global-batch 64"),
    ("pp-extra", TINY, "--pp 4 --extra extra.json --global-batch 32"),
    ("pp-kfac", TINY, "--pp 4 --kfac-interval 3 --global-batch 32"),
    ("pp-kfac-auto", TINY, "--pp 4 --kfac-interval auto --global-batch 32"),
    ("zero3-secondary-node", TINY, "--zero 3 --zero-secondary node --global-batch 32"),
    ("zero3-pp", TINY, "--zero 3 --pp 2 --global-batch 32"),
    ("zero2-vpp", TINY, "--zero 2 --pp 2 --vpp 2 --global-batch 32"),
    ("zero1-shards", TINY, "--zero 1 --zero-shards 4 --clip-grad 1 --global-batch 32"),
    ("zero3-replicas", TINY, "--zero 3 --zero-replicas 2 --tp 2 --global-batch 32"),
    ("zero3-tp-prefetch", TINY, "--zero 3 --tp 2 --prefetch 2 --global-batch 16"),
    ("recompute-selective", TINY, "--tp 2 --recompute selective --attention unfused --global-batch 16"),
    ("recompute-full", TINY, "--pp 2 --recompute full --global-batch 32"),
    ("clip-grad", TINY, "--tp 2 --pp 2 --zero 1 --clip-grad 1 --global-batch 16"),
    ("clip-grad-zero0", TINY, "--clip-grad 0.5 --global-batch 32"),
    ("fp16", TINY, "--precision fp16 --grad-dtype fp16 --zero 1 --global-batch 32"),
    ("fp32", TINY, "--precision fp32 --grad-dtype fp32 --tp 2 --global-batch 16"),
    ("bf16-gradients", TINY, "--grad-dtype bf16 --tp 2 --global-batch 16"),
    ("compress", TINY, "--compress gradients=int8 --global-batch 32"),
    ("compress-zero1", TINY, "--compress gradients=top-k --compress-min 1024 --zero 1 --pp 2 --clip-grad 1 --global-batch 32"),
    ("dropout", "--model gpt2 --layers 2", "--dropout 0.2 --tp 2 --sequence-parallel --global-batch 16"),
    ("no-dropout", "--model gpt2 --layers 2", "--no-dropout --seq 256 --micro-batch 2 --global-batch 64"),
    ("buckets", TINY, "--bucket-size 100000 --bucket-mib 0.5 --part-mib 0.25 --zero 1 --global-batch 32"),
    ("memory", TINY, "--memory 0.05 --pp 2 --global-batch 32"),
    ("reserve", "--model llama2-7b --layers 4", "--reserve 60 --seq 1024 --tp 2 --zero 1 --global-batch 16"),
    ("tp-comm-overlap-cfg", TINY, "--tp 4 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-cfg recipes --global-batch 16"),
    ("tp-comm-overlap", TINY, "--tp 4 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-cfg default --pp 2 --global-batch 16"),
    ("llama3", "--model llama3-8b --layers 4", "--seq 1024 --tp 4 --sequence-parallel --pp 2 --global-batch 16"),
    ("llama2-70b-zero3", "--model llama2-70b --layers 2", "--seq 512 --tp 8 --zero 3 --global-batch 8"),
    ("qwen3", "--model qwen3-30b-a3b --layers 2", "--seq 512 --ep 8 --global-batch 16"),
    ("experts-dp", EXPERTS, "--global-batch 32"),
    ("experts-ep", EXPERTS, "--ep 8 --global-batch 32"),
    ("experts-ep-etp", EXPERTS, "--tp 2 --sequence-parallel --ep 4 --etp 1 --global-batch 16"),
    ("experts-etp2", EXPERTS, "--tp 2 --sequence-parallel --ep 2 --etp 2 --global-batch 16 --zero 1"),
    ("experts-dropless", EXPERTS, "--ep 4 --capacity-factor 0 --global-batch 32"),
    ("experts-slices", EXPERTS, "--pp 2 --ep 4 --slices 4 --expert-exchange uneven --zero 1 --global-batch 16"),
    ("experts-uneven", EXPERTS, "--ep 4 --expert-exchange uneven --capacity-factor 1.25 --global-batch 32"),
    ("experts-gathered", EXPERTS, "--ep 4 --expert-exchange gathered --global-batch 32"),
    ("experts-fp8", EXPERTS, "--ep 8 --dispatch-fp8 --global-batch 32"),
    ("experts-fp8-pp", EXPERTS, "--ep 4 --pp 2 --dispatch-fp8 --zero 1 --global-batch 32"),
    ("experts-forwarding", EXPERTS.replace("--experts 8", "--experts 16"), "--ep 16 --ep-forwarding --global-batch 32"),
    ("experts-recompute-local", EXPERTS, "--ep 4 --recompute local --global-batch 32"),
    ("experts-every-2", EXPERTS, "--moe-every 2 --ep 4 --shared-ffn 256 --token-drop-policy probs --global-batch 32"),
    ("experts-moe-overlap", EXPERTS,
     "--ep 4 --pp 2 --vpp 2 --overlap-moe-expert-parallel-comm --delay-wgrad-compute --global-batch 32"),
    ("mixtral-zero3", "--model mixtral-8x7b --layers 2", "--seq 512 --ep 8 --zero 3 --global-batch 16"),
    ("latent", "--model latent.json --layers 4", "--ep 4 --tp 2 --sequence-parallel --etp 1 --global-batch 16"),
    ("latent-pp-zero1", "--model latent.json --layers 4", "--ep 4 --pp 2 --zero 1 --clip-grad 1 --global-batch 32"),
]

# Answers in other forms, on other machines, and files.
ANSWERS = [
    ("text", [f"plan {TINY} --cluster dgx-a100:2 --tp 2 --pp 2 --global-batch 32 {SEARCH}"]),
    ("text-experts", [f"plan {EXPERTS} --cluster dgx-h100:2 --ep 8 --global-batch 32 {SEARCH}"]),
    ("explain", [f"plan {TINY} --cluster dgx-a100:2 --tp 2 --pp 2 --zero 1 --global-batch 32 --explain {SEARCH}"]),
    ("compress-auto", [f"plan {TINY} --cluster dgx-a100:2,nic=1Gb/s --compress auto --max-error 0.02 --global-batch 32 --explain {SEARCH}"]),
    ("explain-full", [f"plan {TINY} --cluster dgx-a100:2 --pp 2 --global-batch 32 --policy serial,ddp --explain-full"]),
    ("explain-json", [f"plan {EXPERTS} --cluster dgx-a100:2 --ep 8 --global-batch 32 --explain --json {SEARCH}"]),
    ("explain-does-not-fit", ["plan --model llama2-7b --layers 2 --seq 256 --cluster dgx-a100:1 --memory 2 --policy serial --explain"]),
    ("does-not-fit", [f"plan {TINY} --cluster dgx-a100:1 --memory 0.001 --policy serial,ddp"]),
    ("uneven-cluster", [f"plan {TINY} --cluster uneven.json --tp 2 --global-batch 16 --json {SEARCH}"]),
    ("uneven-cluster-pipeline", [f"plan {TINY} --cluster uneven.json --pp 4 --zero 1 --global-batch 32 --explain --json {SEARCH}"]),
    ("v100", [f"plan {TINY} --cluster dgx1-v100:2 --tp 2 --precision fp16 --global-batch 16 --json {SEARCH}"]),
    ("h200-slow-nic", [f"plan {TINY} --cluster dgx-h200:2,nic=25Gb/s --zero 2 --global-batch 32 --json {SEARCH}"]),
    ("local", [f"plan {TINY} --cluster local:4,nic=200Mb/s --tp 2 --global-batch 16 --json {SEARCH}"]),
    ("local-pipeline", [f"plan {TINY} --cluster local:4,nic=1GB/s --pp 2 --zero 1 --clip-grad 1 --global-batch 16 {SEARCH}"]),
    ("local-experts", [f"plan {EXPERTS} --cluster local:4 --ep 4 --global-batch 16 --json {SEARCH}"]),
    ("large", ["plan --model gpt3-175b --cluster dgx-a100:128 --tp 8 --pp 16 --global-batch 256 --zero 1"
               " --policy serial,megatron,priority --json"]),
    ("deepseek-v3", ["plan --model deepseek-v3 --cluster dgx-h100:64 --pp 8 --ep 64 --global-batch 256 --seq 4096"
                     " --policy serial,megatron,lancet --dispatch-fp8 --ep-forwarding --recompute full --json"]),
    ("profile", [f"plan {TINY} --cluster dgx-a100:2 --profile profile.json --tp 2 --global-batch 16 --json {SEARCH}"]),
    ("config", ["plan --config flags.json --global-batch 16"]),
    ("lengths", ["plan --layers 4 --hidden 256 --heads 8 --cluster dgx-a100:1 --lengths 64,128 --global-batch 16"
                 " --policy serial,ddp --json"]),
    ("framework-nanotron", [f"plan {TINY} --cluster dgx-h100:2 --tp 2 --zero 1 --global-batch 32 --framework nanotron --json"
                            " --policy serial,nanotron"]),
    ("framework-others", [f"plan {TINY} --cluster dgx-h100:2 --tp 2 --global-batch 32 --framework {name} --json --policy serial"
                          for name in ("megatron", "nanotron-checked", "nemo")]),
    ("products-fp8", [f"plan {TINY} --cluster dgx-h100:2 --tp 2 --sequence-parallel --zero 1 --global-batch 32 --products fp8"
                      f" --fp8-param-gather --cuda-graphs {graphs} --json --policy serial,megatron" for graphs in ("layer", "full")]),
    ("products-fp4", [f"plan {TINY} --cluster gb200-nvl72:1,gpus=8 --tp 2 --global-batch 32 --products fp4 --cuda-graphs none"
                      " --policy serial,ddp"]),
    ("products-stored", [f"plan {TINY} --cluster dgx-b200:1 --tp 2 --global-batch 32 --products stored --json --policy serial"]),
    ("framework-fsdp", [f"plan {TINY} --cluster dgx-h100:2 --zero 3 --global-batch 32 --framework {name} --policy fsdp"
                        for name in ("fsdp", "composer", "torchtitan", "deepspeed")]),
    ("network", [f"plan {TINY} --cluster dgx-h100:2 --tp 2 --zero 1 --global-batch 32 --json --policy serial {flags}"
                 for flags in ("--links links.json", "--nccl model", "--nccl efficiency")]),
    ("measured-runs", ["plan --against runs.csv --framework nanotron --model llama3-8b --cluster dgx-h100 --links columns --jobs 1",
                       "calibrate --from runs.csv --framework nanotron --model llama3-8b --cluster dgx-h100 --out fit --jobs 1",
                       "plan --against runs.csv --framework nanotron --model llama3-8b --cluster dgx-h100 --profile fit/profile.json"
                       " --json"]),
    ("export", [f"plan {TINY} --cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 8 --zero 1 --out out {SEARCH}",
                *(f"export out/plan.json --to {to}" for to in ("megatron", "deepspeed", "torchtitan", "nccl-tuner"))]),
    ("device-map", [f"plan {TINY} --cluster uneven.json --pp 2 --global-batch 64 --device-map auto --policy serial --json",
                    f"plan {TINY} --cluster dgx-a100:1 --dp 8 --device-map 7,6,5,4,3,2,1,0 --policy serial"]),
    ("power-cap", [f"plan {TINY} --cluster dgx-h100:1 --global-batch 16 --power-cap 500 --policy serial --json"]),
    ("pipeline-auto-chunks", [f"plan {TINY} --cluster dgx-a100:1 --pp 4 --vpp 2 --schedule auto --global-batch 32 --policy weft --budget 0.2 --json"]),
    ("pipeline-auto", [f"plan {TINY} --cluster dgx-a100:1 --pp 4 --schedule auto --global-batch 32 --policy weft --budget 0.2 --json"]),
    ("seed", [f"plan {TINY} --cluster dgx-a100:2 --tp 2 --pp 2 --global-batch 32 --policy weft --seed 7 --budget 0.5 --json"]),
    ("megatron-args", [f"plan --megatron-args launch.sh --cluster dgx-h100:2 --json {SEARCH}"]),
    ("megatron-args-text", [f"plan --megatron-args launch.sh --cluster dgx-h100:2 {SEARCH}"]),
    ("round-batch", [f"plan {TINY} --cluster dgx-a100:2 --tp 2 --micro-batch 3 --global-batch 50 --round-batch --json"
                     " --policy serial,ddp"]),
    ("micro-batches", [f"plan {TINY} --cluster dgx-a100:2 --tp 2 --micro-batch 3 --micro-batches 2 --json --policy serial,ddp"]),
    ("files", [f"plan {TINY} --cluster dgx-a100:1 --tp 2 --pp 2 --global-batch 8 --zero 1 --out out --traces all {SEARCH}",
               "verify out/plan.json", "verify out/plan-serial.json --json", "verify out/plan.json --memory 0.001",
               "simulate out/plan.json", "simulate out/plan-ddp.json --json", "simulate out/plan-priority.json --explain",
               "analyze out/trace.json", "analyze out/trace-serial.json --against out/trace.json --json"]),
    ("files-experts", [f"plan {EXPERTS} --cluster dgx-a100:1 --ep 4 --global-batch 16 --out out {SEARCH} --json",
                       "verify out/plan.json --json", "simulate out/plan-lancet.json --json",
                       "simulate out/plan-tutel.json --explain-full", "simulate out/plan-centauri.json --out again"]),
    ("files-zero3", [f"plan {TINY} --cluster dgx-a100:1 --zero 3 --cp 2 --global-batch 8 --out out {SEARCH}",
                     "verify out/plan.json", "simulate out/plan-fsdp.json --json", "simulate out/plan.json --profile profile.json"]),
    ("files-interleaved", [f"plan {TINY} --cluster dgx-a100:1 --pp 2 --vpp 2 --global-batch 16 --clip-grad 1 --out out {SEARCH}",
                           "verify out/plan.json", "simulate out/plan.json --json", "simulate out/plan-megatron-param.json"]),
    ("sweep", [f"plan {TINY} --cluster dgx-a100:2 --global-batch 32 --jobs 1 --sweep tp=1,2,4;pp=1,2;zero=0..3"
               " --policy serial,ddp,megatron --csv rows.csv"]),
    ("sweep-json", [f"plan {TINY} --cluster dgx-a100:2 --global-batch 32 --jobs 2 --policy serial,fsdp --json --out out"
                    " --sweep micro-batch=1..2;recompute=none,selective,full;sequence-parallel=true,false;tp=2,3"]),
    ("sweep-experts", [f"plan {EXPERTS} --cluster dgx-a100:2 --global-batch 32 --jobs 1 --policy serial,tutel --json"
                       " --sweep ep=1,2,8;etp=1,2;tp=1,2;precision=bf16,fp32"]),
    ("sweep-cluster", [f"plan {TINY} --cluster dgx-a100:2 --global-batch 32 --jobs 1 --policy ddp --json"
                       " --sweep nic=100Gb/s,800Gb/s;gpus=4,8;mesh-order=tp,cp,dp,pp|tp,dp,cp,pp;memory=0.1,40;cp=1,2"]),
    ("sweep-schedules", [f"plan {TINY} --cluster dgx-a100:1 --global-batch 32 --jobs 1 --policy serial,weft --budget 0.05"
                         " --sweep pp=2,4;vpp=1,2;schedule=gpipe,1f1b,interleaved;clip-grad=0,1 --json"]),
    ("sweep-nothing-fits", [f"plan {TINY} --cluster dgx-a100:1 --memory 0.001 --jobs 1 --policy serial --sweep tp=1,2"]),
    ("collective-list", ["collective list"]),
    ("collective-list-json", ["collective list --ranks 6 --size 1MiB --parts 2 --json"]),
    ("collective-list-servers", ["collective list --ranks 4 --servers 2 --inner 2 --root 1 --json"]),
    ("cluster-show", ["cluster show dgx1-v100", "cluster show dgx-a100:2 --svg wiring.svg --save wiring.json --json",
                      "cluster show wiring.json"]),
    ("collective-synthesize", ["collective synthesize --topology dgx1-v100 --out gather.xml", "collective verify gather.xml",
                               "collective synthesize --topology mi250 --collective all_reduce --in-place --parts 2 --json"]),
    ("collective-files", ["collective list --ranks 4 --out xml", "collective verify xml/allreduce_ring.xml",
                          "collective verify xml/allreduce_ring.xml xml/alltoall_pairwise.xml --json",
                          "collective list --ranks 8 --inner 4 --in-place --collective all_reduce --out placed --proto LL",
                          "collective verify placed/allreduce_hierarchical.xml"]),
    ("analyze-text", [f"analyze {TRACES}/hta_nccl_data_a100_rank0of2.json.gz"]),
    ("analyze-json", [f"analyze {TRACES}/hta_cuda_event_sync_multi_stream.json.gz --json"]),
    ("analyze-csv", [f"analyze {TRACES}/hta_critical_path_simple_add.json.gz --csv kernels.csv --json"]),
    ("version", ["--version"]),
]

# Input that must be refused.
REFUSALS = [
    ("no-command", ""), ("unknown-command", "weave"), ("unknown-flag", "plan --tensor 2"),
    ("no-model", "plan --cluster dgx-a100:1"), ("unknown-model", "plan --model gpt5 --cluster dgx-a100:1"),
    ("unknown-cluster", f"plan {TINY} --cluster dgx-z9:1"), ("unknown-policy", f"plan {TINY} --cluster dgx-a100:1 --policy dpp"),
    ("heads", f"plan {TINY} --cluster dgx-a100:3 --tp 3"), ("chunks", f"plan {TINY} --cluster dgx-a100:1 --pp 8"),
    ("batch", f"plan {TINY} --cluster dgx-a100:1 --global-batch 7"),
    ("interleaved", f"plan {TINY} --cluster dgx-a100:1 --pp 2 --vpp 2 --global-batch 12"),
    ("schedule", f"plan {TINY} --cluster dgx-a100:1 --pp 2 --schedule zb"),
    ("schedule-of-chunks", "run --layers 4 --hidden 32 --heads 4 --cluster local:2 --pp 2 --vpp 2 --schedule auto"),
    ("stage-layers", f"plan {TINY} --cluster dgx-a100:1 --pp 2 --stage-layers 1,2"),
    ("recompute-layers", f"plan {TINY} --cluster dgx-a100:1 --recompute-layers 1"),
    ("sequence-parallel", f"plan {TINY} --cluster dgx-a100:1 --sequence-parallel"),
    ("ep", f"plan {EXPERTS} --cluster dgx-a100:1 --ep 3"), ("ep-dense", f"plan {TINY} --cluster dgx-a100:1 --ep 2"),
    ("gathered-local", f"plan {EXPERTS} --cluster local:2 --ep 2 --expert-exchange gathered"),
    ("fp8-local", f"plan {EXPERTS} --cluster local:2 --ep 2 --dispatch-fp8"),
    ("compress", f"plan {TINY} --cluster dgx-a100:1 --compress gradients=int7"),
    ("compress-zero2", f"plan {TINY} --cluster dgx-a100:1 --compress gradients=int8 --zero 2"),
    ("mesh-order", f"plan {TINY} --cluster dgx-a100:1 --mesh-order tp,dp"), ("zero", f"plan {TINY} --cluster dgx-a100:1 --zero 4"),
    ("zero-shards", f"plan {TINY} --cluster dgx-a100:1 --zero 1 --zero-shards 3"),
    ("precision", f"plan {TINY} --cluster dgx-a100:1 --precision fp7"), ("dropout", f"plan {TINY} --cluster local:1 --dropout 2"),
    ("sweep-key", f"plan {TINY} --cluster dgx-a100:1 --sweep color=1,2"), ("verify-broken", "verify broken.json"),
    ("verify-nothing", "verify nothing.json"), ("simulate-model", "simulate llama.json"), ("analyze-model", "analyze llama.json"),
    ("collective-name", "collective list --collective all_redux"), ("collective-broken", "collective verify broken.json"),
    ("run-bf16", f"run {TINY} --cluster local:2 --precision bf16"), ("run-gpus", f"run {TINY} --cluster dgx-a100:1"),
    ("run-experts", f"run {EXPERTS} --cluster local:2 --ep 2 --recompute local"),
]

SMALL = "--layers 4 --hidden 32 --heads 4 --seq 16 --global-batch 8"
SMALL_EXPERTS = "--layers 2 --hidden 32 --heads 4 --seq 16 --global-batch 8 --experts 4"
# Real training: (name, ranks, model, flags).
TRAININGS = [
    ("dp2", 2, SMALL, "--policy serial,ddp,priority --bucket-mib 0.01"),
    ("dp2-compress", 2, SMALL, "--policy priority --compress gradients=int4-stochastic --compress-min 512 --zero 1"),
    ("dp2-clip", 2, SMALL, "--policy megatron-grad --clip-grad 0.3 --micro-batch 2 --optimizer sgd --lr 0.05"),
    ("dp2-zero1-clip", 2, SMALL, "--policy megatron-param --zero 1 --clip-grad 0.3 --bucket-size 8000"),
    ("dp2-zero2", 2, SMALL, "--policy weft --budget 0.1 --zero 2 --micro-batch 2 --eval-every 2 --eval-batches 1"),
    ("dp2-zero3", 2, SMALL, "--policy fsdp --zero 3 --recompute full"),
    ("tp2", 2, SMALL, "--policy weft --budget 0.1 --tp 2 --recompute selective --attention unfused"),
    ("tp2-sequence-parallel-dropout", 2, "--model gpt2 " + SMALL + " --vocab 256",
     "--policy centauri --tp 2 --sequence-parallel --dropout 0.1"),
    ("pp2", 2, SMALL, "--policy serial --pp 2 --micro-batch 2 --clip-grad 0.3"),
    ("pp2-gpipe", 2, SMALL, "--policy priority --pp 2 --schedule gpipe --stage-layers 1,3 --recompute full --recompute-layers 0,2"),
    ("pp2-slices", 2, SMALL, "--policy weft --budget 0.1 --pp 2 --slices 8,5,3"),
    ("pp2-vpp2", 2, SMALL, "--policy weft --budget 0.1 --pp 2 --vpp 2 --data text.txt --lr-schedule cosine --lr-warmup 1"),
    ("cp2", 2, "--model llama.json --seq 16 --global-batch 8", "--policy ddp --cp 2"),
    ("llama-tp4", 4, "--model llama.json --seq 16 --global-batch 8", "--policy megatron-dist --tp 4"),
    ("tp2-pp2-zero1", 4, SMALL, "--policy weft --budget 0.1 --tp 2 --pp 2 --micro-batch 4"),
    ("dp2-pp2-zero2", 4, SMALL, "--policy megatron-param --pp 2 --zero 2 --clip-grad 0.3"),
    ("dp3", 3, SMALL.replace("--global-batch 8", "--global-batch 6"), "--policy fsdp --zero 1 --seed 5"),
    ("experts-ep2", 2, SMALL_EXPERTS, "--policy tutel --ep 2"),
    ("experts-ep2-uneven", 2, SMALL_EXPERTS, "--policy lancet --ep 2 --expert-exchange uneven --capacity-factor 0"),
    ("experts-tp2-ep2-etp1", 4, SMALL_EXPERTS, "--policy serial --tp 2 --sequence-parallel --ep 2 --etp 1 --zero 1"),
    ("latent-tp2", 2, "--model dense_latent.json --seq 16 --global-batch 8", "--policy priority --tp 2"),
    ("lengths", 2, "--layers 2 --hidden 32 --heads 4 --lengths 8,16 --global-batch 8", "--policy ddp"),
]


def training_case(name, ranks, model, flags):
    record = "" if "--lengths" in model or "," in flags.split("--policy ")[1].split()[0] else " --record record"
    return Case(f"train-{name}", [shlex.split(
        f"run {model} --cluster local:{ranks},nic=1GB/s {flags} --steps 3 --warm-up 1 --threads 1"
        f" --profile any_machine.json --json{record}")], is_training=True)


def all_cases():
    cases = [Case(f"plan-{name}", [shlex.split(f"plan {model} --cluster dgx-a100:2 {flags} {SEARCH} --json")])
             for name, model, flags in LAYOUTS]
    cases += [Case(name, [shlex.split(command) for command in commands]) for name, commands in ANSWERS]
    cases += [Case(f"refused-{name}", [shlex.split(command)], is_refused=True) for name, command in REFUSALS]
    cases += [training_case(*training) for training in TRAININGS]
    return cases
