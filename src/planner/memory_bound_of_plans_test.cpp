// What a sweep drops without planning must not fit: the bound on memory against plans of every policy.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "graph/memory_bound.hpp"
#include "model/presets.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

struct Case {
  const char* model;
  std::int64_t layers;
};

// Every combination that is a layout at all.
std::vector<Layout> layouts(const Transformer& model, std::int64_t devices) {
  std::vector<Layout> list;
  for (const std::int64_t pp : {1, 2, 4}) {
    for (const std::int64_t tp : {1, 2}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const PipelineSchedule schedule :
             {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
              PipelineSchedule::zb_h1, PipelineSchedule::zbv}) {
          Layout l{.tp = tp, .pp = pp, .etp = model.experts ? tp : 1, .seq = 64, .zero = zero};
          l.dp = devices / (tp * pp);
          l.schedule = schedule;
          l.vpp = row_of(schedule).several_chunks ? 2 : 1;
          l.global_batch = 8 * l.dp;
          l.sequence_parallel = tp > 1 && zero % 2 == 1;
          l.recompute = static_cast<Recompute>((zero + pp + tp) % 3);
          if (l.recompute == Recompute::full && zero % 2 == 0) l.recompute_layers = {1};
          l.attention = zero < 2 ? AttentionKernel::unfused : AttentionKernel::flash;
          l.precision = pp == 2 ? ElementType::fp32 : ElementType::bf16;
          try {
            validate(l, model, devices);
            list.push_back(l);
          } catch (const Error&) {
          }
        }
      }
    }
  }
  return list;
}

TEST(MemoryBound, NoPlanNeedsLess) {
  const ClusterSpec spec = parse_cluster("dgx-a100:1");
  const Cluster cluster(spec);
  double tightest = 0;
  std::size_t plans = 0;
  for (const Case& c : {Case{"megatron-1.7b", 8}, {"llama2-7b", 10}, {"gpt2-s-moe", 8}, {"qwen3-30b-a3b", 8}}) {
    Transformer model = model_preset(c.model);
    model.layers = c.layers;
    for (const Layout& layout : layouts(model, 8)) {
      const MemoryBound bound = memory_lower_bound(model, layout);
      const StepGraph graph = build_step_graph(model, cluster, layout);
      for (const std::string& policy : policy_names()) {
        if (searches(policy)) continue;  // one of the others, or memory for more overlap
        const Plan plan = make_plan({model, spec, layout, default_profile()}, graph, policy);
        for (std::size_t i = 0; i < plan.classes.size(); ++i) {
          if (plan.graph.classes[i].stage != bound.stage) continue;
          const Bytes needed = plan.classes[i].memory;
          EXPECT_LE(bound.total(), needed)
              << c.model << " " << policy << " tp " << layout.tp << " pp " << layout.pp << " vpp " << layout.vpp
              << " zero " << layout.zero << " " << name_of(layout.schedule) << " " << name_of(layout.recompute);
          tightest = std::max(tightest, static_cast<double>(bound.total().value) / static_cast<double>(needed.value));
          ++plans;
        }
      }
    }
  }
  // A bound of nothing would pass the above: where state is most of the memory, it is most of it too.
  EXPECT_GT(plans, 150u);
  EXPECT_GT(tightest, 0.9);
}

}  // namespace
}  // namespace weft
