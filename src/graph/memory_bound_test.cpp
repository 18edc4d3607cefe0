// The bound on memory against graphs built in full, and the cache of rank classes against the search it stands for.
#include "graph/memory_bound.hpp"

#include <gtest/gtest.h>

#include "graph/rank_class_cache.hpp"
#include "graph/test_graphs.hpp"

namespace weft {
namespace {

using test::filled;
using test::with_layers;

struct StageBytes {
  std::int64_t state = 0, saved = 0;
};

// What each stage's graph keeps between iterations, and what one micro-batch leaves for backward.
std::vector<StageBytes> stages_of(const StepGraph& graph, std::int64_t pp) {
  std::vector<StageBytes> stages(pp);
  std::vector<char> persists(graph.values.size()), forward(graph.values.size()), later(graph.values.size());
  for (const Operation& op : graph.operations) {
    for (const Read& read : op.reads) {
      if (read.distance == 1) persists[read.value.index()] = 1;
      if (op.phase != Phase::forward) later[read.value.index()] = 1;
    }
    for (const Write& write : op.writes) forward[write.value.index()] |= op.phase == Phase::forward ? 1 : 0;
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    StageBytes& stage = stages[graph.classes[value.rank_class.index()].stage];
    if (persists[v] || value.accumulated) stage.state += value.bytes().value;
    if (value.per_micro_batch && forward[v] && later[v]) stage.saved += value.bytes().value;
  }
  return stages;
}

struct Case {
  const char* model;
  Layout layout;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* model : {"megatron-1.7b", "llama2-70b", "gpt2-s-moe", "deepseek-v3", "qwen3-30b-a3b"}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const std::int64_t pp : {1, 2, 4}) {
        Layout layout{.tp = 2, .pp = pp, .etp = 2, .zero = zero, .sequence_parallel = zero % 2 == 1};
        layout.recompute = static_cast<Recompute>((zero + pp) % 3);
        layout.attention = pp == 2 ? AttentionKernel::unfused : AttentionKernel::flash;
        if (std::string(model) == "gpt2-s-moe") layout.ep = 2;
        list.push_back({model, layout});
        if (layout.recompute == Recompute::full) {
          layout.recompute_layers = {1};
          list.push_back({model, layout});
        }
        if (zero == 0 || model_preset(model).experts) continue;
        layout.zero_shards = 2;
        list.push_back({model, layout});
      }
    }
  }
  return list;
}

TEST(MemoryBound, StateIsThatOfTheFullestStageExactly) {
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  for (const Case& c : cases()) {
    const Transformer model = with_layers(c.model, 8);
    const Layout layout = filled(c.layout, 16);
    const std::vector<StageBytes> stages = stages_of(build_step_graph(model, cluster, layout), layout.pp);
    const MemoryBound bound = memory_lower_bound(model, layout);
    EXPECT_EQ(bound.state.value, stages[bound.stage].state)
        << c.model << " zero " << layout.zero << " pp " << layout.pp;
  }
}

TEST(MemoryBound, OneMicroBatchKeepsWhatItsLayersKeep) {
  // A single micro-batch is in flight: the bound is at most what the stage's graph saves, and misses only the ends.
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  for (const Case& c : cases()) {
    const Transformer model = with_layers(c.model, 8);
    const Layout layout = filled(c.layout, 16, 1);
    const std::vector<StageBytes> stages = stages_of(build_step_graph(model, cluster, layout), layout.pp);
    const MemoryBound bound = memory_lower_bound(model, layout);
    const std::int64_t saved = stages[bound.stage].saved;
    EXPECT_LE(bound.activations.value, saved) << c.model;
    EXPECT_GT(bound.activations.value, 0) << c.model;
    // Middle stages have no ends at all.
    if (bound.stage > 0 && bound.stage < layout.pp - 1) {
      EXPECT_EQ(bound.activations.value, saved) << c.model;
    }
  }
}

TEST(MemoryBound, CountsTheMicroBatchesInFlight) {
  // 1F1B keeps min(m, p) of them on stage 0, GPipe all.
  const Transformer model = with_layers("llama2-7b", 8);
  const auto activations = [&](Layout layout, std::int64_t micro_batches) {
    return memory_lower_bound(model, filled(layout, 4, micro_batches)).activations.value;
  };
  const std::int64_t one = activations({.pp = 4}, 1);
  EXPECT_EQ(activations({.pp = 4}, 2), 2 * one);
  EXPECT_EQ(activations({.pp = 4}, 16), 4 * one);
  EXPECT_EQ(activations({.pp = 4, .schedule = PipelineSchedule::gpipe}, 16), 16 * one);
  // Interleaved, two chunks of half the layers: warm-up 2 * 3 + 4, and the pass after it.
  const std::int64_t interleaved = activations({.pp = 4, .vpp = 2, .schedule = PipelineSchedule::interleaved}, 16);
  EXPECT_EQ(2 * interleaved, 11 * one);
}

// Of every linear layer both factors, each with its average and its inverse, in fp32: 8 (in^2 + out^2) bytes.
TEST(MemoryBound, CountsTheFactorsOfKfac) {
  const Transformer model = with_layers("megatron-1.7b", 8);
  const std::int64_t h = model.hidden, ffn = model.ffn;
  const std::int64_t layer = 8 * ((h * h + 9 * h * h) + (h * h + h * h) + 2 * (h * h + ffn * ffn));
  for (const std::int64_t pp : {1, 2, 4}) {
    Layout layout{.pp = pp};
    const MemoryBound without = memory_lower_bound(model, filled(layout, 8));
    layout.kfac_interval = 3;
    const MemoryBound with = memory_lower_bound(model, filled(layout, 8));
    ASSERT_EQ(with.stage, without.stage);
    EXPECT_EQ(with.state.value - without.state.value, 8 / pp * layer) << pp;
  }
}

TEST(RankClassCache, GivesWhatTheSearchGives) {
  const Cluster cluster(parse_cluster("dgx-a100:2"));
  RankClassCache cache(cluster);
  for (int round = 0; round < 2; ++round) {
    for (const Case& c : cases()) {
      const Transformer model = with_layers(c.model, 8);
      const Layout layout = filled(c.layout, 16);
      const RankClasses& cached = cache.find(layout, model_groups(model, layout));
      const RankClasses found = find_rank_classes(cluster, layout, model_groups(model, layout));
      ASSERT_EQ(cached.class_of, found.class_of);
      ASSERT_EQ(cached.classes.size(), found.classes.size());
      for (std::size_t i = 0; i < found.classes.size(); ++i) {
        EXPECT_EQ(cached.classes[i].name, found.classes[i].name);
        for (const GroupKind kind : group_kinds()) {
          EXPECT_EQ(cached.classes[i].group(kind).view, found.classes[i].group(kind).view);
          EXPECT_EQ(cached.classes[i].group(kind).members, found.classes[i].group(kind).members);
        }
      }
      const StepGraph whole = build_step_graph(model, cluster, layout);
      const StepGraph reused = build_step_graph(model, cluster, layout, cached);
      EXPECT_EQ(whole.operations, reused.operations);
      EXPECT_EQ(whole.values, reused.values);
    }
  }
}

}  // namespace
}  // namespace weft
