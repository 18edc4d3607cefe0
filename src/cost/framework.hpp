// What a training framework adds to the operations of a model, or leaves undone, beside the overlap that a policy says.
// A framework is data: every figure is a property that its source code shows, or that published runs were fitted to
// (docs/frameworks.md has the origin of each).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "cost/profile.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// What a framework's kernels do for one operation.
struct FrameworkKernels {
  Role role;
  Phase phase;
  std::int64_t launched = 1;     // kernels, in all
  double bytes_per_element = 0;  // moved in device memory beside what the operation itself moves
};

// What is done once a step for every parameter, by ranks that hold it, beside the update of its owner.
struct OptimizerLoop {
  double bytes_per_parameter = 0;  // of all parameters of a rank, whoever updates them
  Nanos fixed{0};                  // of the step: barrier, logging, data, the first launch on an idle device
};

// Collectives of lists of tensors: every rank's part of every tensor is copied by itself.
struct ListCollectives {
  bool of_parameters = false;  // one gather of all parameters copies each tensor's part of each rank
  Nanos copy{0};               // to issue one copy
  double reduce_scatter_bytes = 0, all_gather_bytes = 0;  // moved in device memory for every element
};

// Memory that a framework takes beside the values of a plan (planner/framework_memory.hpp).
struct FrameworkMemory {
  double attention_bytes = 0;     // saved for backward, of every element of the queries
  double activation_bytes = 0;    // likewise, of every element of the feed-forward's activation
  double logit_bytes = 0;         // of every logit, while the loss is computed
  double bucket_bytes = 0;        // of every parameter, where data-parallel ranks reduce its gradient
  double buffers_per_layer = 0;   // of tensor-parallel collectives that the host has issued and not yet freed
  std::int64_t layers_ahead = 0;  // that the host is ahead of the device at most
  double fragmentation = 0;       // of activations: reserved and not in use
  // Standard deviation of the logarithm of what runs needed over what is predicted; 0: not known.
  double spread = 0;

  bool takes_any() const {
    return attention_bytes > 0 || activation_bytes > 0 || logit_bytes > 0 || bucket_bytes > 0 ||
           buffers_per_layer > 0 || fragmentation > 0;
  }
};

// What a device reaches in whole steps under the framework, where power and the framework's kernels decide.
struct LoadedDevice {
  std::string_view name;
  double matrix, attention, memory;  // shares of the peaks
  Nanos kernel_gap;
  double fp8 = 0, fp4 = 0;  // shares of the peaks of such products; 0: the device profile's
};

struct Framework {
  std::string_view name;
  std::string_view policy;  // that overlaps as it does
  std::span<const FrameworkKernels> kernels;
  std::span<const LoadedDevice> devices;
  double gradient_bytes = 0;         // moved for every parameter when a micro-batch's gradient is accumulated
  Nanos launch{0};                   // host time of a kernel; 0: the device profile's
  Nanos transfer_launch{0};          // host time of a collective; likewise
  Nanos tensor_parallel_message{0};  // of a tensor-parallel collective, each time it crosses to another node
  Nanos check_per_member{0};         // host time of a collective for each member, where a wrapper checks every call
  OptimizerLoop optimizer = {};
  ListCollectives lists = {};
  FrameworkMemory memory = {};
  // What it does where its user says nothing.
  bool rows_of_others_in_two = false;  // of a product that begins with its own rows, in two kernels: before, behind
  bool splits_sequences = false;       // tensor-parallel ranks split norms and residuals
  bool deals_layers_by_cost = false;   // see layers_by_cost
  bool dropout = true;                 // of models with learned positions
  bool reduces_in_bf16 = false;        // gradients are accumulated and reduced so
  bool userbuffer_recipes = false;     // tensor parallelism overlaps as NVIDIA's recipes say (graph/userbuffers.hpp)
  double clip_grad = 0;
};

std::vector<std::string> framework_names();
// Throws Error naming --framework and what is allowed.
const Framework& framework_named(std::string_view name);

// Deals layers to stages as nanotron does (models/base.py): a layer costs its matrices, the head its own, the embedding
// nothing, and a stage ends with the block that exceeds its share. Every stage has a layer.
std::vector<std::int64_t> layers_by_cost(const Transformer& model, std::int64_t stages);

// The profile as the framework's processes see it: its host times, and devices under the load of whole steps.
Profile with_framework(Profile profile, const Framework& framework);

// What a host has recorded to start it as one graph (docs/frameworks.md): nothing; the kernels of a layer's forward or
// backward; or the whole step with its transfers.
enum class CudaGraphs : std::uint8_t { none, layer, full };
// Without the host's time for what is recorded.
Profile with_cuda_graphs(Profile profile, CudaGraphs graphs);

// What a framework does beside an operation itself.
struct FrameworkWork {
  double bytes = 0;           // in device memory
  std::int64_t launched = 0;  // kernels, in all
};
// Where the framework says nothing of an operation, its kernels are `own_kernels` and move no more.
FrameworkWork framework_work(const Framework& framework, const StepGraph& graph, const Operation& operation,
                             std::int64_t own_kernels);
// What the framework adds to a collective that is no part of a micro-batch: checks of every member, where there are
// any, and the flat copies of lists of tensors at the rate of the device's memory.
double once_a_step_seconds(const Framework& framework, const Operation& transfer, std::int64_t members,
                           double bytes_per_second);

}  // namespace weft
