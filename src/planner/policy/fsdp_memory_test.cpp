// What overlap costs in memory: as many layers as the depths say, whatever the model's depth.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "planner/test_plans.hpp"

namespace weft {
namespace {

// A layer of small_llama: h 64, keys and values 32 each, SwiGLU of 192, two norms of 64 (rounded up to 256 bytes).
constexpr std::int64_t kMatrices = 64 * (64 + 32 + 32) + 64 * 64 + 64 * 2 * 192 + 192 * 64;
constexpr std::int64_t kGathered = 2 * kMatrices + 2 * 256;   // bf16
constexpr std::int64_t kGradients = 4 * kMatrices + 2 * 256;  // fp32

// With a vocabulary of 128 the layers are the largest units.
Transformer narrow_ends(std::int64_t layers) {
  Transformer model = test::small_llama(layers);
  model.vocab = 128;
  return model;
}

// From the first to the last byte of the values whose names end so.
std::int64_t extent_of(const Plan& plan, std::string_view suffix) {
  std::int64_t begin = INT64_MAX, end = 0;
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v) {
    if (!plan.graph.values[v].name.ends_with(suffix)) continue;
    EXPECT_EQ(plan.placements[v].copies, 1);
    const std::int64_t at = plan.placements[v].offset.value;
    begin = std::min(begin, at);
    end = std::max(end, at + aligned(plan.graph.values[v].bytes()).value);
  }
  return end - begin;
}

TEST(FsdpMemory, HoldsTwoLayersOfWholeGradients) {
  for (const int zero : {2, 3}) {
    for (const std::int64_t layers : {3, 4, 8, 13}) {
      SCOPED_TRACE(fmt::format("zero {}, {} layers", zero, layers));
      const Plan plan = test::fsdp(narrow_ends(layers), "local:2", {.zero = zero}, 2);
      EXPECT_EQ(extent_of(plan, ".grad.whole"), 2 * kGradients);
    }
  }
}

TEST(FsdpMemory, ExceedsThatOfSerialByTheLayersGatheredAheadAndTwoOfGradients) {
  for (const std::int64_t layers : {3, 4, 8, 13}) {
    const Layout layout{.zero = 3};
    const std::int64_t serial = test::serial(narrow_ends(layers), "local:2", layout, 2).classes[0].memory.value;
    std::int64_t before = 0;
    for (const int prefetch : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} layers, prefetch {}", layers, prefetch));
      const Plan plan = test::fsdp(narrow_ends(layers), "local:2", layout, 2, prefetch);
      const std::int64_t memory = plan.classes[0].memory.value;
      EXPECT_LE(memory, serial + prefetch * kGathered + 2 * kGradients);
      // Once backward holds all layers beside the head, nothing is freed early, and packing may need a little less.
      if (prefetch < layers) {
        EXPECT_GE(memory, before);
      }
      before = memory;
    }
  }
}

// The same for units of any size, layouts of any kind: the largest unit counts, each model chunk has buffers of its
// own.
TEST(FsdpMemory, IsBoundedInEveryLayout) {
  int turn = 0;
  for (const auto& [name, base] : test::layouts()) {
    Layout layout = base;
    layout.zero = 2 + turn % 2;
    const int prefetch = turn++ / 2 % 3;
    SCOPED_TRACE(fmt::format("{}, zero {}, prefetch {}", name, layout.zero, prefetch));
    const PlanRequest request = test::request(test::small_moe(), parse_cluster("dgx-a100:2"), layout);
    const Plan serial = test::serial(request), plan = test::fsdp(request, prefetch);
    for (std::size_t c = 0; c < plan.classes.size(); ++c) {
      using Unit = std::tuple<std::int32_t, Phase, std::int32_t>;
      std::map<Unit, Bytes> gathered, gradients;
      for (const Operation& op : plan.graph.operations) {
        if (op.rank_class.index() != c || !op.per_micro_batch) continue;
        const Unit unit{op.chunk, op.phase, op.layer};
        if (op.role == Role::param_gather) {
          for (const Write& write : op.writes) gathered[unit] += aligned(plan.graph.value(write.value).bytes());
        } else if (op.role == Role::grad_reduce) {
          for (const Read& read : op.reads) gradients[unit] += aligned(plan.graph.value(read.value).bytes());
        }
      }
      Bytes largest, most;
      for (const auto& [unit, bytes] : gathered) largest = std::max(largest, bytes);
      for (const auto& [unit, bytes] : gradients) most = std::max(most, bytes);
      EXPECT_LE(plan.classes[c].memory, serial.classes[c].memory + largest * prefetch + most * (2 * layout.vpp));
    }
  }
}

TEST(FsdpMemory, DoesNotGrowWithTheNumberOfMicroBatches) {
  for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    const Layout layout{.pp = 2, .zero = 3, .schedule = schedule};
    for (const std::int64_t m : {4, 8}) {
      const Plan serial = test::serial(narrow_ends(8), "local:4", layout, m);
      const Plan plan = test::fsdp(narrow_ends(8), "local:4", layout, m);
      for (std::size_t c = 0; c < plan.classes.size(); ++c) {
        EXPECT_LE(plan.classes[c].memory.value, serial.classes[c].memory.value + kGathered + 2 * kGradients);
      }
    }
  }
}

}  // namespace
}  // namespace weft
