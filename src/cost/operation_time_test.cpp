#include "cost/operation_time.hpp"

#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "cost/cost_model.hpp"
#include "cost/kernel_time.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

OpKey key_of(OpKind kind, Phase phase, std::array<std::int64_t, 6> dims) {
  OpKey key;
  key.kind = kind;
  key.phase = phase;
  key.dtype = ElementType::fp32;
  key.dims = dims;
  return key;
}

OpKey product(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  return key_of(OpKind::gemm, Phase::forward, {rows, columns, inner, 1});
}

// A core without fixed costs: modelled times are proportional to the work.
struct Core {
  Device device = device_profile("cpu");
  DeviceProfile reached;
  Core() {
    reached.tiled = false;
    reached.kernel_gap = Nanos{0};
  }
  double time(const OpKey& key) const { return operation_seconds(key, device, reached); }
};

TEST(OperationTime, IsWhatWasMeasured) {
  Core core;
  const OpKey key = product(1152, 2048, 512);
  EXPECT_EQ(core.time(key), kernel_seconds(key, core.device, core.reached));
  core.reached.operations[key] = Nanos{31'200'000};
  EXPECT_DOUBLE_EQ(core.time(key), 31.2e-3);
}

TEST(OperationTime, OfHalfTheRowsIsHalfThatOfTheWhole) {
  Core core;
  core.reached.operations[product(1024, 4096, 1024)] = Nanos{40'000'000};
  // Nearer in modelled time to the half below, and of another shape: does not count.
  core.reached.operations[product(1024, 1024, 2048)] = Nanos{999'000'000};
  EXPECT_NEAR(core.time(product(512, 4096, 1024)), 20e-3, 1e-12);
}

TEST(OperationTime, ScalesFromTheNearestOfThoseAlikeInShape) {
  Core core;
  const auto adam = [](std::int64_t parameters) { return key_of(OpKind::adam, Phase::optimizer, {parameters, 28}); };
  core.reached.operations[adam(1'000)] = Nanos{2'000};          // 2 ns a parameter
  core.reached.operations[adam(1'000'000)] = Nanos{5'000'000};  // 5 ns
  EXPECT_NEAR(core.time(adam(3'000)), 6e-6, 1e-15);
  EXPECT_NEAR(core.time(adam(2'000'000)), 10e-3, 1e-12);
}

TEST(OperationTime, OtherKindsAndPhasesAreModelled) {
  Core core;
  core.reached.operations[product(1024, 1024, 1024)] = Nanos{1};
  const OpKey backward = key_of(OpKind::gemm, Phase::input_grad, {1024, 1024, 1024, 1});
  const OpKey norm = key_of(OpKind::norm, Phase::forward, {1024, 1024});
  for (const OpKey& key : {backward, norm}) EXPECT_EQ(core.time(key), kernel_seconds(key, core.device, core.reached));
}

TEST(OperationTime, RecomputationTakesWhatForwardTook) {
  Core core;
  const OpKey again = key_of(OpKind::norm, Phase::recompute, {64, 512}),
              once = key_of(OpKind::norm, Phase::forward, {64, 512});
  core.reached.operations[once] = Nanos{40'000};
  EXPECT_NEAR(core.time(again), 40e-6, 1e-12);
  core.reached.operations[again] = Nanos{50'000};
  EXPECT_NEAR(core.time(again), 50e-6, 1e-12);
}

TEST(OperationTime, AnotherElementTypeIsTheLastResort) {
  Core core;
  OpKey half = product(1024, 1024, 1024);
  half.dtype = ElementType::bf16;
  core.reached.operations[half] = Nanos{7};
  core.reached.operations[product(64, 64, 64)] = Nanos{1'000'000};
  const double expected = 1e-3 * 16 * 16 * 16;  // all three dimensions 16 times as long
  EXPECT_NEAR(core.time(product(1024, 1024, 1024)), expected, 1e-9);
  core.reached.operations.erase(product(64, 64, 64));
  EXPECT_EQ(nearest_measured(product(1024, 1024, 1024), core.device, core.reached)->first, half);
}

TEST(OperationTime, FusedOnesTakeNoLessThanTheBestRateOfTheirKind) {
  Core core;
  core.reached.kernel_gap = Nanos{1'000};
  const auto adam = [](std::int64_t parameters) { return key_of(OpKind::adam, Phase::optimizer, {parameters, 28}); };
  const auto rate = [&](std::int64_t parameters, double measured) {
    return measured / kernel_seconds(adam(parameters), core.device, core.reached);
  };
  core.reached.operations[adam(10'000)] = Nanos{90'000};
  core.reached.operations[adam(1'000'000)] = Nanos{4'000'000};
  const double best = std::min(rate(10'000, 90e-6), rate(1'000'000, 4e-3));
  const double work = kernel_seconds(adam(10'000), core.device, core.reached) - 1e-6;
  EXPECT_NEAR(least_fused_seconds(adam(10'000), core.device, core.reached), best * work, 1e-15);
  // A hundred small ones at their least are no longer than the one measured kernel that does them all.
  EXPECT_LE(100 * least_fused_seconds(adam(10'000), core.device, core.reached), 4e-3);
}

// Every operation was measured to take 1 ms more than the one before.
TEST(OperationTime, ReachesTheCostModelAndContainsTheLaunch) {
  const Cluster cluster(parse_cluster("dgx-a100:1,gpus=1"));
  Layout layout;
  layout.seq = 128;
  const StepGraph graph = build_step_graph(model_preset("megatron-1.7b"), cluster, layout);
  Profile profile = default_profile();
  DeviceProfile& device = profile.devices[cluster.spec().device.name];
  std::int64_t count = 0;
  for (const Operation& op : graph.operations) {
    if (op.is_transfer()) continue;
    if (device.operations.emplace(op.key, Nanos{1'000'000 * (count + 1)}).second) ++count;
  }
  ASSERT_GT(count, 10);
  const CostModel modelled(graph, cluster, default_profile()), measured(graph, cluster, profile);
  for (const Operation& op : graph.operations) {
    if (op.is_transfer()) continue;
    EXPECT_EQ(measured.compute(op), device.operations.at(op.key));
    EXPECT_EQ(measured.launch(op), Nanos{0});
    EXPECT_GT(modelled.launch(op), Nanos{0});
    if (op.role != Role::update) {
      EXPECT_EQ(measured.least_compute(op), measured.compute(op));
    }
    EXPECT_LE(measured.least_compute(op), measured.compute(op));
  }
}

}  // namespace
}  // namespace weft
