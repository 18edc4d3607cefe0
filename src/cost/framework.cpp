#include "cost/framework.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cost/kernel_time.hpp"
#include "graph/own_rows.hpp"

namespace weft {
namespace {

using enum Phase;

// huggingface/nanotron, models/llama.py and parallel/tensor_parallel/functional.py. Bytes count each read and write of
// a bf16 element that the fused form of the operation would not have.
constexpr std::array kNanotron{
    FrameworkKernels{Role::head, forward, 2},  // the own shard while others arrive, then theirs
    // Queries, keys and values are transposed (3 tensors read and written), keys and values joined (2) and transposed
    // again (2), queries and keys rotated (2); sequence lengths are summed in six small kernels for every layer.
    FrameworkKernels{Role::attention, forward, 13, 36},
    // The same backwards, and the gradients of the split are written into zeroed tensors.
    FrameworkKernels{Role::attention, input_grad, 18, 52},
    // silu and product apart: 5 tensors instead of 3; backwards 13 instead of 5 (two products, silu, a concatenation).
    FrameworkKernels{Role::ffn_act, forward, 2, 4},
    FrameworkKernels{Role::ffn_act, input_grad, 4, 16},
    // The gradient of the residual branch is added in a kernel of its own.
    FrameworkKernels{Role::attention_norm, input_grad, 3, 6},
    FrameworkKernels{Role::ffn_norm, input_grad, 3, 6},
    // Logits are cast to fp32, then maximum, difference, exponential, sum and quotient are kernels of their own;
    // backwards a product in place and the cast to bf16.
    FrameworkKernels{Role::loss, forward, 12, 18},
    FrameworkKernels{Role::loss, input_grad, 5, 8},
};

constexpr std::array kNanotronDevices{
    LoadedDevice{"h100", 0.64, 0.28, 0.85, Nanos{7'000}},
    LoadedDevice{"h200", 0.64, 0.28, 0.85, Nanos{7'000}},
};

// mosaicml/llm-foundry, models/layers, under PyTorch's FSDP with Composer's optimizer. Products with a bias are one
// kernel forward; backward the bias's gradient is a reduction of its own.
constexpr std::array kFsdp{
    FrameworkKernels{Role::attention, forward, 4, 8},
    FrameworkKernels{Role::attention, input_grad, 6, 12},
    FrameworkKernels{Role::attention_norm, forward, 3, 4},  // weights and input are cast by themselves
    FrameworkKernels{Role::ffn_norm, forward, 3, 4},
    FrameworkKernels{Role::attention_norm, input_grad, 3, 6},
    FrameworkKernels{Role::ffn_norm, input_grad, 3, 6},
    FrameworkKernels{Role::qkv, input_grad, 2, 6},  // the bias's gradient reads the output's: 3 of the width
    FrameworkKernels{Role::attention_out, input_grad, 2, 2},
    FrameworkKernels{Role::ffn_in, input_grad, 2, 8},
    FrameworkKernels{Role::ffn_out, input_grad, 2, 0.5},
    // PyTorch's cross entropy in fp32: backward fills the gradient, applies the softmax and casts.
    FrameworkKernels{Role::loss, forward, 4},
    FrameworkKernels{Role::loss, input_grad, 5, 16},
};
constexpr std::array kFsdpDevices{
    LoadedDevice{"a100-40", 0.81, 0.29, 0.765, Nanos{8'000}},
    LoadedDevice{"a100-80", 0.81, 0.29, 0.765, Nanos{8'000}},
    LoadedDevice{"h100", 0.64, 0.16, 0.85, Nanos{7'000}},
    LoadedDevice{"h200", 0.64, 0.16, 0.85, Nanos{7'000}},
};

// pytorch/torchtitan with compiled layers, which fuse what is between products but for the rotation of queries and
// keys: models/common/rope.py multiplies complex numbers in fp32, for which no fused code is made. A query is cast (2
// read, 4 written), multiplied (4, 4) and cast back (4, 2); keys take as much for a part of the heads.
constexpr std::array kTorchTitan{
    FrameworkKernels{Role::attention, forward, 7, 25},
    FrameworkKernels{Role::attention, input_grad, 9, 25},
};

// DeepSpeed with the layers of Hugging Face's transformers (models/llama/modeling_llama.py) in eager mode.
constexpr std::array kDeepSpeed{
    // In fp32: cast (2 read, 4 written), squares (4, 4), mean (4), product (4, 4), cast (4, 2), weights (2, 2), where a
    // fused norm moves 4; backward the same steps with two operands.
    FrameworkKernels{Role::attention_norm, forward, 6, 32},
    FrameworkKernels{Role::ffn_norm, forward, 6, 32},
    FrameworkKernels{Role::attention_norm, input_grad, 12, 56},
    FrameworkKernels{Role::ffn_norm, input_grad, 12, 56},
    // Half of a query negated (2) and joined (4), two products (8) and a sum (6); keys a quarter of that, as models
    // with
    // eight heads of keys have.
    FrameworkKernels{Role::attention, forward, 11, 25},
    FrameworkKernels{Role::attention, input_grad, 13, 26},
    FrameworkKernels{Role::ffn_act, forward, 2, 4},  // as nanotron's
    FrameworkKernels{Role::ffn_act, input_grad, 4, 16},
    FrameworkKernels{Role::loss, forward, 4, 6},  // logits are cast to fp32 first
    FrameworkKernels{Role::loss, input_grad, 5, 16},
};

// What PyTorch's attention and products reach in whole steps, as for the frameworks above.
constexpr std::array kEagerDevices{
    LoadedDevice{"a100-40", 0.81, 0.29, 0.765, Nanos{8'000}},
    LoadedDevice{"a100-80", 0.81, 0.29, 0.765, Nanos{8'000}},
    LoadedDevice{"h100", 0.64, 0.28, 0.85, Nanos{7'000}},
    LoadedDevice{"h200", 0.64, 0.28, 0.85, Nanos{7'000}},
};

constexpr Framework kFsdpFramework{
    .name = "fsdp",
    .policy = "fsdp",
    .kernels = kFsdp,
    .devices = kFsdpDevices,
    .gradient_bytes = 14,  // divided in place (8) after the cast to fp32 (6)
    .launch = Nanos{25'000},
    .transfer_launch = Nanos{60'000},
    .optimizer = {.bytes_per_parameter = 60, .fixed = Nanos{20'000'000}},
    .dropout = false,
    .clip_grad = 1.0,
};

constexpr Framework renamed_framework(Framework framework, std::string_view name) {
  framework.name = name;
  return framework;
}

constexpr Framework kNanotronFramework{
    .name = "nanotron",
    .policy = "nanotron",
    .kernels = kNanotron,
    .devices = kNanotronDevices,
    .gradient_bytes = 10,  // a bf16 gradient is added to the fp32 sum: 2 and 4 read, 4 written
    .launch = Nanos{53'000},
    .transfer_launch = Nanos{60'000},
    .tensor_parallel_message = Nanos{310'000},
    // Norm (4), scaling (8) and clearing (4) of fp32 gradients go over all parameters, whoever updates them.
    .optimizer = {.bytes_per_parameter = 16, .fixed = Nanos{60'000'000}},
    // distributed.py: every rank's parts are flattened, the library's list form copies them, and what arrives is
    // copied tensor by tensor.
    .lists = {.of_parameters = true, .copy = Nanos{6'000}, .reduce_scatter_bytes = 16, .all_gather_bytes = 12},
    .memory = {.attention_bytes = 2,
               .activation_bytes = 2,
               .logit_bytes = 4,
               .bucket_bytes = 2,
               .buffers_per_layer = 4,
               .layers_ahead = 16,
               .fragmentation = 0.03,
               .spread = 0.15},
    .rows_of_others_in_two = true,  // torch.mm of the rows before the own ones, and of those behind them
    .splits_sequences = true,
    .deals_layers_by_cost = true,
    .clip_grad = 1.0,
};

constexpr Framework with_checked_calls(Framework framework, std::string_view name, Nanos per_member) {
  framework.name = name;
  framework.check_per_member = per_member;
  framework.memory.layers_ahead = 1;  // the host is never ahead
  return framework;
}

// NVIDIA's MLPerf submissions: NeMo with Transformer Engine's layers. Attention is that of sequences which two
// context-parallel ranks share.
constexpr std::array kNemoDevices{
    LoadedDevice{"h100", 0.66, 0.42, 0.85, Nanos{5'000}, 0.62},
    LoadedDevice{"h200", 0.66, 0.42, 0.85, Nanos{5'000}, 0.62},
    LoadedDevice{"b200", 0.66, 0.30, 0.85, Nanos{5'000}, 0.55, 0.44},
    LoadedDevice{"gb200", 0.66, 0.30, 0.85, Nanos{5'000}, 0.51, 0.44},
    LoadedDevice{"gb300", 0.66, 0.30, 0.85, Nanos{5'000}, 0.51, 0.44},
};

constexpr std::array kFrameworks{
    // The constants of the default profile are those of Megatron's steps.
    Framework{.name = "megatron", .policy = "megatron-dist", .kernels = {}, .devices = {}},
    Framework{
        .name = "nemo",
        .policy = "megatron",
        .kernels = {},
        .devices = kNemoDevices,
        .launch = Nanos{10'000},
        .transfer_launch = Nanos{5'000},
        .optimizer = {.fixed = Nanos{100'000'000}},
        .splits_sequences = true,
        .dropout = false,
        .reduces_in_bf16 = true,
        .userbuffer_recipes = true,
        .clip_grad = 1.0,
    },
    kNanotronFramework,
    // Two thirds of the Ultra-Scale sweep ran so: a collective takes the host a time that grows with its group.
    with_checked_calls(kNanotronFramework, "nanotron-checked", Nanos{290'000}),
    kFsdpFramework,
    renamed_framework(kFsdpFramework, "composer"),  // whose runs the constants of `fsdp` are of
    Framework{
        .name = "torchtitan",
        .policy = "fsdp",
        .kernels = kTorchTitan,
        .devices = kEagerDevices,
        .gradient_bytes = 6,  // cast to fp32 on the way into the buffer of the reduction
        .launch = Nanos{10'000},
        .transfer_launch = Nanos{60'000},
        .optimizer = {.bytes_per_parameter = 12, .fixed = Nanos{20'000'000}},  // norm (4), scaling (8); fused Adam
        .dropout = false,
        .clip_grad = 1.0,
    },
    Framework{
        .name = "deepspeed",
        .policy = "fsdp",
        .kernels = kDeepSpeed,
        .devices = kEagerDevices,
        .gradient_bytes = 8,  // copied into a bucket (4) and divided there (4)
        .launch = Nanos{25'000},
        .transfer_launch = Nanos{60'000},
        .optimizer = {.bytes_per_parameter = 12, .fixed = Nanos{20'000'000}},  // norm (4), scaling (8); fused Adam
        .dropout = false,
        .clip_grad = 1.0,
    },
};

double elements_of(const StepGraph& graph, const Operation& operation) {
  const OpKey& key = operation.key;
  const auto d = [&](std::size_t i) { return static_cast<double>(key.dims[i]); };
  if (operation.phase == weight_grad) {
    return static_cast<double>(graph.value(operation.writes.front().value).elements());
  }
  if (key.kind == OpKind::attention) return d(0) * d(1) * d(2) * d(4);
  return dimensions_of(key.kind) > 1 && key.kind != OpKind::elementwise && key.kind != OpKind::adam ? d(0) * d(1)
                                                                                                    : d(0);
}

}  // namespace

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const Framework& framework : kFrameworks) names.emplace_back(framework.name);
  return names;
}

const Framework& framework_named(std::string_view name) {
  const auto found =
      std::find_if(kFrameworks.begin(), kFrameworks.end(), [&](const Framework& f) { return f.name == name; });
  if (found == kFrameworks.end()) fail("--framework '{}': is not known{}", name, suggestion(name, framework_names()));
  return *found;
}

Profile with_framework(Profile profile, const Framework& framework) {
  if (framework.launch == Nanos{0}) return profile;
  profile.framework = std::make_shared<const Framework>(framework);
  for (auto& [name, device] : profile.devices) {
    if (name == "cpu") continue;
    device.launch = framework.launch;
    device.transfer_launch = framework.transfer_launch;
    for (const LoadedDevice& loaded : framework.devices) {
      if (loaded.name != name) continue;
      device.matrix_efficiency = loaded.matrix;
      device.attention_efficiency = loaded.attention;
      device.memory_efficiency = loaded.memory;
      device.kernel_gap = loaded.kernel_gap;
      if (loaded.fp8 > 0) device.fp8_efficiency = loaded.fp8;
      if (loaded.fp4 > 0) device.fp4_efficiency = loaded.fp4;
    }
  }
  return profile;
}

Profile with_cuda_graphs(Profile profile, CudaGraphs graphs) {
  if (graphs == CudaGraphs::none) return profile;
  for (auto& [name, device] : profile.devices) {
    device.launch = Nanos{0};
    if (graphs == CudaGraphs::full) device.transfer_launch = device.resync = Nanos{0};
  }
  return profile;
}

FrameworkWork framework_work(const Framework& framework, const StepGraph& graph, const Operation& operation,
                             std::int64_t own_kernels) {
  const Phase phase = operation.phase == recompute ? forward : operation.phase;
  FrameworkWork work{0, own_kernels};
  const auto said = std::find_if(
      framework.kernels.begin(), framework.kernels.end(),
      [&](const FrameworkKernels& kernels) { return kernels.role == operation.role && kernels.phase == phase; });
  if (said != framework.kernels.end()) {
    // Tensor parallelism computes the loss in two operations; what is said of it counts once.
    const bool second = operation.role == Role::loss && phase == forward && operation.key.kind == OpKind::elementwise;
    work = {second ? 0 : said->bytes_per_element * elements_of(graph, operation), second ? 1 : said->launched};
  }
  const bool of_others = operation.origins.size() == 1 && operation.origins.front().axis == kOwnFirstAxis &&
                         !is_own_piece(operation.origins.front());
  if (of_others && framework.rows_of_others_in_two) ++work.launched;
  if (phase == weight_grad && framework.gradient_bytes > 0) {
    work.bytes += framework.gradient_bytes * elements_of(graph, operation);
    ++work.launched;
  }
  return work;
}

std::vector<std::int64_t> layers_by_cost(const Transformer& model, std::int64_t stages) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const double layer = 4 * d(model.hidden) * d(model.hidden) + 3 * d(model.hidden) * d(model.ffn);
  const double share = (d(model.layers) * layer + d(model.vocab) * d(model.hidden)) / d(stages);
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), 0);
  std::size_t stage = 0;
  for (std::int64_t l = 1; l <= model.layers; ++l) {
    ++layers[stage];
    if (d(l) * layer > share * d(static_cast<std::int64_t>(stage) + 1) && stage + 1 < layers.size()) ++stage;
  }
  // A stage that would hold the head alone, or nothing, takes a layer from the nearest one before it that has several.
  for (std::size_t s = 1; s < layers.size(); ++s) {
    for (std::size_t from = s; layers[s] == 0 && from-- > 0;) {
      if (layers[from] < 2) continue;
      --layers[from];
      ++layers[s];
    }
  }
  return layers;
}

double once_a_step_seconds(const Framework& framework, const Operation& transfer, std::int64_t members,
                           double bytes_per_second) {
  const Communication& c = *transfer.communication;
  const bool gathers = c.collective == Collective::all_gather;
  if (c.collective == Collective::all_reduce) return seconds(framework.check_per_member * members);
  if (framework.lists.copy == Nanos{0}) return 0;
  if (!gathers && c.collective != Collective::reduce_scatter) return 0;
  // Each rank's parts are flattened, and copied by the library; the parts of a gather are copied back one by one.
  const auto tensors = static_cast<std::int64_t>(transfer.reads.size());
  const std::int64_t copies = members * (gathers && framework.lists.of_parameters ? tensors + 2 : 2);
  const double elements = static_cast<double>(c.bytes.value) / static_cast<double>(size_of(c.format.type).value);
  const double bytes = elements * (gathers ? framework.lists.all_gather_bytes : framework.lists.reduce_scatter_bytes);
  return static_cast<double>(copies) * seconds(framework.lists.copy) + bytes / bytes_per_second;
}

}  // namespace weft
