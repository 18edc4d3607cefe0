// Training runs for tests: a model so small that a step takes a millisecond, on ranks that are threads. Need kernels.
#pragma once

#include <fmt/format.h>

#include "comm/test_ranks.hpp"
#include "exec/train_rank.hpp"
#include "planner/test_plans.hpp"

namespace weft::test {

inline constexpr std::int64_t kSteps = 4, kGlobalBatch = 12;

inline Transformer tiny_gpt() {
  Transformer m = small_gpt(2);
  m.hidden = 24;
  m.heads = m.kv_heads = 3;
  m.head_dim = 8;
  m.ffn = 40;
  m.vocab = 256;
  m.max_seq = 16;
  return m;
}

struct TinyCase {
  std::string policy = "serial";
  int zero = 0;
  std::int64_t ranks = 2;
  double clip_grad = 0;
  std::string name() const { return fmt::format("{} zero {} on {} ranks, clip {}", policy, zero, ranks, clip_grad); }
};

// True on threads that compute: what is left are communication threads.
inline thread_local bool computes_here = false;

// Everything that a run needs, with figures of its own.
struct TinyRun {
  explicit TinyRun(const TinyCase& c)
      : cluster(parse_cluster(fmt::format("local:{},nic=1Gb/s", c.ranks))),
        request(request_of(c)),
        whole(make_whole_plan(request, build(request), c.policy)) {}

  PlanRequest request_of(const TinyCase& c) const {
    Layout layout;
    layout.zero = c.zero;
    layout.clip_grad = c.clip_grad;
    layout.precision = layout.grad_dtype = ElementType::fp32;
    layout.dropout = false;
    layout.seq = 8;
    layout.micro_batch = 2;
    PlanRequest r = weft::test::request(tiny_gpt(), cluster, layout, kGlobalBatch / (2 * c.ranks));
    r.options.bucket_mib = 0.01;  // several buckets even here
    r.options.bucket_parameters = 2000;
    return r;
  }

  // What rank 0 returns.
  TrainResult train(std::int64_t steps = kSteps, const OnLoss& on_loss = {}) const {
    TrainSettings settings;
    settings.steps = steps;
    const TrainJob job{whole, settings, Corpus::generate(3, 4096), 1, true, nullptr};
    TrainResult result;
    const Cluster paced(cluster);
    local_ranks::on_ranks({.ranks = paced.device_count(), .cluster = &paced}, {}, [&](Communicator& communicator) {
      computes_here = true;
      TrainResult own = train_rank(job, communicator, *make_kernels(), communicator.rank() == 0 ? on_loss : OnLoss{});
      if (communicator.rank() == 0) result = std::move(own);
    });
    return result;
  }

  ClusterSpec cluster;
  PlanRequest request;
  WholePlan whole;
};

// Ranks of this machine in nodes, with links inside of them that are ten times as fast.
inline ClusterSpec cluster_in_nodes(std::int64_t ranks, std::int64_t per_node) {
  ClusterSpec spec = parse_cluster(fmt::format("local:{},nic=1Gb/s", ranks / per_node));
  if (per_node == 1) return spec;
  spec.name = "nodes";
  spec.devices_per_node = per_node;
  LevelSpec inside = spec.levels.front();
  inside.name = "shm";
  inside.joins = Domain::node;
  inside.bandwidth = {10 * inside.bandwidth.bytes_per_second};
  spec.levels.insert(spec.levels.begin(), inside);
  return spec;
}

// Joins so many consecutive ranks of a node by links that are twice as fast as those of the innermost level.
inline ClusterSpec with_parts(ClusterSpec spec, std::int64_t ranks) {
  LevelSpec bridge = spec.levels.front();
  bridge.name = "bridge";
  bridge.joins = Domain::part;
  bridge.part = ranks;
  bridge.bandwidth = {2 * bridge.bandwidth.bytes_per_second};
  spec.levels.insert(spec.levels.begin(), bridge);
  return spec;
}

}  // namespace weft::test
