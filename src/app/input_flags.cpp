// The flags that say model, cluster, layout and options of policies, with their help.
#include "app/compression_input.hpp"
#include "app/inputs.hpp"
#include "app/megatron_inputs.hpp"
#include "app/program_inputs.hpp"
#include "cost/framework.hpp"

namespace weft {
namespace {

constexpr const char* kModel = "Model";
constexpr const char* kCluster = "Cluster";
constexpr const char* kLayout = "Layout";
constexpr const char* kPolicy = "Policy";

void declare_model_flags(Flags& flags) {
  flags.value("model", "NAME|FILE", "a preset (gpt3-175b, llama2-70b, ...) or a Hugging Face config.json", kModel);
  declare_launch_flags(flags, kModel);
  flags.value("layers", "N", "without --model: a GPT of this shape; with it: override", kModel);
  flags.value("hidden", "N", "hidden size", kModel);
  flags.value("heads", "N", "attention heads", kModel);
  flags.value("kv-heads", "N", "key/value heads (default: heads)", kModel);
  flags.value("ffn", "N", "feed-forward size (default: 4 * hidden)", kModel);
  flags.value("vocab", "N", "vocabulary (default: 51200; of weft run and calibrate 256, a token for every byte)",
              kModel);
  flags.value("tied", "true|false", "the head has the embedding's matrix (default: the model's)", kModel);
  flags.value("experts", "N", "experts of every MoE layer", kModel);
  flags.value("experts-per-rank", "N", "experts on an expert-parallel rank: --experts is N * ep", kModel);
  flags.value("moe-every", "N", "every N-th layer is an MoE layer (default: the model's, or each)", kModel);
  flags.value("top-k", "N", "experts a token goes to", kModel);
  flags.value("capacity-factor", "X", "expert capacity over its fair share; 0: dropless", kModel);
  flags.value("token-drop-policy", "position|gshard|probs",
              "who gets the slots of a full expert: tokens in order, first choices first, or the most probable",
              kModel);
  flags.value("shared-ffn", "N", "inner size of experts that every token goes to, all together; 0: none", kModel);
  flags.value("router-groups", "N",
              "experts lie in N groups, a token's in few of them (DeepSeek; default: the model's)", kModel);
  flags.value("router-group-topk", "N", "groups that the experts of a token lie in", kModel);
  flags.value("aux-loss-coeff", "X", "weight of the loss that balances experts; 0: none", kModel);
}

void declare_cluster_flags(Flags& flags) {
  flags.value("cluster", "PRESET:N|FILE", "dgx-a100:8[,nic=800Gb/s,...], or a JSON file (docs/cluster-format.md)",
              kCluster);
  flags.value("memory", "GIB", "use no more than this of a device's memory", kCluster);
  flags.value("reserve", "GIB",
              "memory of a device that is not for plans: driver, CUDA context, NCCL, fragmentation (default: 1.8 and "
              "1.5 % of a GPU's, 3.0 of 80; nothing with --memory or of a CPU)",
              kCluster);
}

// How many ranks the axes of a layout have, and how experts exchange tokens.
void declare_degree_flags(Flags& flags) {
  flags.value("tp", "N", "tensor parallel ranks", kLayout);
  flags.value("pp", "N", "pipeline stages", kLayout);
  flags.value("vpp", "N", "model chunks per pipeline rank", kLayout);
  flags.value("dp", "N", "data parallel ranks (default: devices / (tp * pp * cp))", kLayout);
  flags.value("cp", "N", "context parallel ranks", kLayout);
  flags.value("ep", "N", "expert parallel ranks", kLayout);
  flags.value("etp", "N", "tensor parallel ranks inside experts (default: tp)", kLayout);
  flags.value("expert-exchange", "padded|uneven|gathered",
              "tokens travel to experts in whole blocks, or only those that are there, or all to every rank "
              "(default: padded; a run without drops: uneven)",
              kLayout);
  flags.toggle("dispatch-fp8", "tokens (and in backward their gradients) travel to experts in fp8", kLayout);
  flags.toggle("ep-forwarding", "a token goes to a node once and is handed on inside it, as DeepEP does", kLayout);
}

// What a layout says of batches, sharding, precision and the pipeline.
void declare_step_flags(Flags& flags) {
  flags.value("micro-batch", "N", "sequences in a micro-batch (default: 1)", kLayout);
  flags.value("global-batch", "N", "sequences in a step (default: micro-batch * dp)", kLayout);
  flags.value("micro-batches", "N", "in place of --global-batch: micro-batches of every data-parallel rank in a step",
              kLayout);
  flags.toggle("round-batch", "take the largest multiple of micro-batch * dp up to --global-batch, at least one of it",
               kLayout);
  flags.value("seq", "N", "sequence length (default: the model's maximum)", kLayout);
  flags.value("zero", "0..3", "ZeRO stage: shard optimizer state, gradients, parameters", kLayout);
  flags.value("zero-shards", "N",
              "ZeRO shards over N consecutive ranks of dp * cp; sets of N are replicas (default: over all)", kLayout);
  flags.value("zero-replicas", "N", "the same by the number of such sets: --zero-shards is dp * cp / N", kLayout);
  flags.value("zero-secondary", "N|node",
              "ZeRO 3: N consecutive ranks keep the parameters that a layer's forward gathered for its backward, "
              "which gathers from them alone; node: as many as share one (default: off)",
              kLayout);
  flags.value("layer-group", "N",
              "N micro-batches pass a layer before the next one begins: ZeRO 2 and 3 gather and reduce once for all of "
              "them (default: 1)",
              kLayout);
  flags.value("reduce-every", "N|step|auto",
              "gradients are reduced after every N micro-batches, or once a step; weft plan takes auto: what is faster "
              "and fits (default: step for ZeRO 0 and 1, 1 for 2 and 3)",
              kLayout);
  flags.value("slices", "N|N,N,...|auto",
              "sequences pass the pipeline in N slices, or in slices of so many tokens each; auto: by modelled cost "
              "(default: whole)",
              kLayout);
  flags.toggle("sequence-parallel", "split norms and residuals over tensor parallel ranks", kLayout);
  flags.value("dropout", "X|model",
              "share of activations that a model with learned positions zeroes (default: its own; on local 0)",
              kLayout);
  flags.toggle("no-dropout", "a model with learned positions trains without dropout", kLayout);
  flags.value("recompute", "none|selective|full|local",
              "what backward computes again: the attention core, layers, or layers without their all-to-alls", kLayout);
  flags.value(
      "recompute-layers", "N|N,N,...|auto",
      "the first so many layers of every model chunk are recomputed (default: all; auto: weft plan looks for the "
      "fewest that fit)",
      kLayout);
  flags.value("attention", "flash|unfused", "attention kernel", kLayout);
  flags.value("precision", "fp32|bf16|fp16", "weights and activations (default: bf16, fp32 on local)", kLayout);
  flags.value("grad-dtype", "fp32|bf16|fp16", "gradients are accumulated and reduced in this", kLayout);
  declare_compression_flags(flags, kLayout);
  flags.value("products", "stored|fp8|fp4",
              "operands of the layers' products are rounded to this; the head and attention's core keep the precision",
              kLayout);
  flags.toggle("fp8-param-gather", "with --products fp8 and --zero 1: the weights of these products travel in fp8",
               kLayout);
  flags.value(
      "kfac-interval", "N|auto",
      "K-FAC for linear layers: steps in which each of its factors is computed and inverted once; auto: as many "
      "as bubbles take to hold that work (default: no K-FAC; 1 with --optimizer kfac)",
      kLayout);
  flags.value("extra", "FILE",
              "tasks of your own with a release and a deadline, and work that may wait: both fill idle time "
              "(docs/extra-format.md)",
              kLayout);
  flags.value("clip-grad", "X", "clip the global gradient norm; 0: off", kLayout);
  flags.value("schedule", fmt::format("{}", fmt::join(schedule_names(), "|")),
              "pipeline schedule (default: 1f1b; interleaved if vpp > 1); zb and v split backward; auto: policy weft "
              "searches, and with --vpp 2 weft plan predicts "
              "whether model chunks lie better in waves or in loops",
              kLayout);
  flags.value("warm-up-depth", "N",
              "with 1f1b: forwards of the first stage before its first backward (default: as many as stages)", kLayout);
  flags.value("stage-layers", "N,N,...|auto",
              "layers of every model chunk (default: as even as possible; auto: weft plan predicts which are fastest)",
              kLayout);
  flags.value("mesh-order", "AXES", "axes of the ranks, innermost first (default: tp,cp,dp,pp)", kLayout);
  flags.value("device-map", "auto|N,N,...|FILE",
              "the device of each rank, counted node by node (default: in rank order); auto: weft plan searches",
              kLayout);
}

void declare_policy_flags(Flags& flags) {
  flags.value("bucket-size", "N", "parameters in a bucket of megatron-grad and -param (default: max(40M, 1M * dp))",
              kPolicy);
  flags.toggle("tp-comm-overlap",
               "megatron policies: gathers and reductions of tensor parallelism in parts with their products "
               "(Transformer Engine's userbuffers)",
               kPolicy);
  flags.value("tp-comm-overlap-cfg", "default|recipes|FILE",
              "with it: method and SMs of every product, as Transformer Engine takes them, as NVIDIA's recipes do for "
              "the nearest model, or as a file of Megatron's says (default: default, recipes with --framework nemo)",
              kPolicy);
  flags.toggle("overlap-moe-expert-parallel-comm",
               "megatron policies: all-to-alls of experts behind the computation of another micro-batch", kPolicy);
  flags.toggle("delay-wgrad-compute", "with it: weight gradients may wait and hide all-to-alls too", kPolicy);
  flags.value("bucket-mib", "MIB", "gradients in a bucket of ddp (default: 25, the first 1)", kPolicy);
  flags.value("part-mib", "MIB", "parts that priority cuts gradients into (default: by the links' speed and latency)",
              kPolicy);
  flags.value("prefetch", "N", "layers that fsdp and priority gather ahead at --zero 3 (default: 1)", kPolicy);
  flags.value("budget", "SECONDS", "how long policy weft searches, on an ordinary machine (default: 10)", kPolicy);
}

}  // namespace

void declare_input_flags(Flags& flags) {
  declare_model_flags(flags);
  declare_cluster_flags(flags);
  declare_program_flags(flags, kCluster);
  declare_degree_flags(flags);
  declare_step_flags(flags);
  declare_policy_flags(flags);
  flags.value("framework", fmt::format("{}", fmt::join(framework_names(), "|")),
              "whose kernels, host and collectives run the step (docs/frameworks.md; default: megatron)", kPolicy);
  flags.value("cuda-graphs", "none|layer|full",
              "kernels of a layer, or a whole step, start as one recorded graph: the host takes no time for them",
              kPolicy);
  flags.value("power-cap", "WATTS",
              "of a device, below what it is rated for: products and attention run at a lower clock (docs/accuracy.md)",
              kPolicy);
  flags.value("profile", "FILE", "a JSON file with measured efficiencies (docs/profile-format.md)");
}

}  // namespace weft
