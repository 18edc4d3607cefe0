#include "cost/framework.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/cost_model.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

Transformer one_layer() {
  Transformer model = model_preset("llama2-7b");
  model.layers = 1;
  return model;
}

Layout layout(std::int64_t tp, std::int64_t dp, int zero) {
  Layout l;
  l.tp = tp;
  l.dp = dp;
  l.zero = zero;
  l.sequence_parallel = tp > 1;
  l.global_batch = dp;
  l.seq = 2048;
  return l;
}

struct Case {
  Cluster cluster;
  StepGraph graph;
  CostModel cost;
  Case(const char* machine, const Layout& l, Profile profile)
      : cluster(parse_cluster(machine)),
        graph(build_step_graph(one_layer(), cluster, l)),
        cost(graph, cluster, std::move(profile)) {}

  const Operation& find(Role role, Phase phase) const {
    for (const Operation& op : graph.operations) {
      if (op.role == role && op.phase == phase) return op;
    }
    ADD_FAILURE() << "no such operation";
    return graph.operations.front();
  }
};

Profile nanotron() {
  return with_framework(default_profile(), framework_named("nanotron"));
}

// The same devices and host, and none of the framework's kernels and collectives.
Profile without_kernels(Profile profile) {
  profile.framework = nullptr;
  return profile;
}

TEST(Framework, MegatronIsTheDefaultProfile) {
  EXPECT_EQ(with_framework(default_profile(), framework_named("megatron")), default_profile());
}

TEST(Framework, AnUnknownOneIsAnErrorWithTheNearestName) {
  try {
    framework_named("nanotrom");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "--framework 'nanotrom': is not known; did you mean 'nanotron'?");
  }
}

TEST(Framework, UnfusedKernelsTakeTheirBytesAndTheirGaps) {
  const Case plain("dgx-h100:1,gpus=1", layout(1, 1, 0), without_kernels(nanotron()));
  const Case eager("dgx-h100:1,gpus=1", layout(1, 1, 0), nanotron());
  const Operation& op = plain.find(Role::attention, Phase::forward);
  // 2048 tokens of 4096 query elements. Transposed, joined, transposed again and rotated: (3 + 2 + 2 + 2) tensors, each
  // read and written in two bytes; 13 kernels instead of one.
  const DeviceProfile device = nanotron().device("h100");
  const double bytes = 2048.0 * 4096 * 9 * 2 * 2;
  const double expected = bytes / (3.35e12 * device.memory_efficiency) + 12 * seconds(device.kernel_gap);
  EXPECT_NEAR(seconds(eager.cost.compute(op) - plain.cost.compute(op)), expected, 2e-9);
  EXPECT_EQ(eager.cost.launch(op), device.launch * 13);
}

TEST(Framework, EveryMicroBatchAddsItsGradientsToSums) {
  const Case plain("dgx-h100:1,gpus=1", layout(1, 1, 0), without_kernels(nanotron()));
  const Case eager("dgx-h100:1,gpus=1", layout(1, 1, 0), nanotron());
  const Operation& op = plain.find(Role::attention_out, Phase::weight_grad);
  const DeviceProfile device = nanotron().device("h100");
  // Two bytes and four are read and four written for each of 4096 x 4096 parameters.
  const double expected = 10 * 4096.0 * 4096 / (3.35e12 * device.memory_efficiency) + seconds(device.kernel_gap);
  EXPECT_NEAR(seconds(eager.cost.compute(op) - plain.cost.compute(op)), expected, 2e-9);
}

TEST(Framework, ListsOfTensorsAreCopiedRankByRank) {
  // Also for groups whose ranks a class does not list.
  static_assert(kListedMembers < 128);
  for (const std::int64_t ranks : {8, 128}) {
    const std::string machine = "dgx-h100:" + std::to_string(ranks / 8);
    const Case plain(machine.c_str(), layout(1, ranks, 1), without_kernels(nanotron()));
    const Case lists(machine.c_str(), layout(1, ranks, 1), nanotron());
    const Operation& op = plain.find(Role::param_gather, Phase::optimizer);
    const double elements = static_cast<double>(op.communication->bytes.value) / 2;
    // One tensor: flattened, copied by the library and copied back for each rank.
    const double expected = static_cast<double>(3 * ranks) * seconds(nanotron().framework->lists.copy) +
                            12 * elements / (3.35e12 * nanotron().device("h100").memory_efficiency);
    EXPECT_NEAR(seconds(lists.cost.transfer(op).latency - plain.cost.transfer(op).latency), expected, 2e-9);
  }
}

TEST(Framework, CheckedCallsTakeTheHostATimeForEachMember) {
  const Profile checked = with_framework(default_profile(), framework_named("nanotron-checked"));
  const Case plain("dgx-h100:1", layout(8, 1, 0), nanotron());
  const Case waits("dgx-h100:1", layout(8, 1, 0), checked);
  const Operation& op = plain.find(Role::attention_gather, Phase::forward);
  EXPECT_EQ(waits.cost.launch(op) - plain.cost.launch(op), checked.framework->check_per_member * 8);
}

TEST(Framework, TensorParallelCollectivesPayForEveryNodeTheyCross) {
  const Case plain("dgx-h100:2", layout(16, 1, 0), without_kernels(nanotron()));
  const Case crossing("dgx-h100:2", layout(16, 1, 0), nanotron());
  const Operation& op = plain.find(Role::attention_gather, Phase::forward);
  // A ring through two nodes crosses between them twice.
  EXPECT_EQ(crossing.cost.transfer(op).latency - plain.cost.transfer(op).latency,
            nanotron().framework->tensor_parallel_message * 2);
}

TEST(Framework, WhatComesOnceAStepIsSharedByTheUpdates) {
  const Case plain("dgx-h100:1,gpus=1", layout(1, 1, 0), without_kernels(nanotron()));
  const Case eager("dgx-h100:1,gpus=1", layout(1, 1, 0), nanotron());
  double added = 0, parameters = 0;
  for (const Operation& op : plain.graph.operations) {
    if (op.role != Role::update) continue;
    added += seconds(eager.cost.compute(op) - plain.cost.compute(op));
    parameters += static_cast<double>(op.key.dims[0]);
  }
  const OptimizerLoop loop = nanotron().framework->optimizer;
  const double rate = 3.35e12 * nanotron().device("h100").memory_efficiency;
  EXPECT_NEAR(added, seconds(loop.fixed) + loop.bytes_per_parameter * parameters / rate, 1e-7);
}

TEST(CudaGraphs, TakeTheHostsTimeAway) {
  const Profile eager = default_profile();
  const DeviceProfile& plain = eager.device("h100");
  const DeviceProfile layer = with_cuda_graphs(eager, CudaGraphs::layer).device("h100");
  EXPECT_EQ(layer.launch, Nanos{0});
  EXPECT_EQ(layer.resync, plain.resync);
  EXPECT_EQ(layer.transfer_launch, plain.transfer_launch);
  const DeviceProfile full = with_cuda_graphs(eager, CudaGraphs::full).device("h100");
  EXPECT_EQ(full.launch + full.resync + full.transfer_launch, Nanos{0});
  EXPECT_EQ(with_cuda_graphs(eager, CudaGraphs::none), eager);
}

TEST(Framework, ComposerIsFsdpByItsOwnName) {
  const Profile fsdp = with_framework(default_profile(), framework_named("fsdp"));
  Profile composer = with_framework(default_profile(), framework_named("composer"));
  composer.framework = fsdp.framework;
  EXPECT_EQ(composer, fsdp);
}

TEST(LayersByCost, AStageEndsWithTheBlockThatExceedsItsShare) {
  Transformer model = model_preset("llama2-7b");
  model.layers = 16;
  model.hidden = 2048;
  model.ffn = 8192;
  model.vocab = 131072;
  // A layer costs 4 * 2048^2 + 3 * 2048 * 8192 = 2^26, the head 2^28: 16 + 4 of 2^26. Half of it is ten layers, which
  // the eleventh exceeds.
  EXPECT_EQ(layers_by_cost(model, 2), (std::vector<std::int64_t>{11, 5}));
  // A quarter is five: the sixth ends the first stage, the eleventh the second, the sixteenth the third. The head alone
  // would be the fourth, which gets a layer of the third.
  EXPECT_EQ(layers_by_cost(model, 4), (std::vector<std::int64_t>{6, 5, 4, 1}));
}

TEST(LayersByCost, DealsEveryLayerAndLeavesNoStageEmpty) {
  Transformer model = model_preset("llama2-7b");
  for (const std::int64_t layers : {4, 16, 28, 80}) {
    model.layers = layers;
    for (const std::int64_t stages : {1, 2, 3, 4}) {
      const std::vector<std::int64_t> dealt = layers_by_cost(model, stages);
      EXPECT_EQ(std::accumulate(dealt.begin(), dealt.end(), std::int64_t{0}), layers);
      for (const std::int64_t n : dealt) EXPECT_GE(n, 1) << layers << " layers on " << stages << " stages";
    }
  }
}

}  // namespace
}  // namespace weft
