// The same training by threads of this processor and in the streams of fake accelerators, for tests that compare them.
#pragma once

#include <gtest/gtest.h>

#include "comm/test_ranks.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"
#include "exec/test_fake_collectives.hpp"
#include "exec/test_training.hpp"

namespace weft::test {

struct StreamCase {
  Layout layout;
  std::int64_t ranks = 1;
  std::string policy = "serial";
  std::int64_t experts = 0;
  int queues = 1;  // of the streams' plan
  DropoutRates dropout = {};
  std::int64_t per_node = 1;
};

inline Transformer model_of(const StreamCase& c) {
  Transformer model = tiny_gpt();
  model.heads = model.kv_heads = 2;
  model.dropout = c.dropout;
  if (c.experts > 0) model.experts = Experts{.count = c.experts, .top_k = 2, .ffn = 24, .capacity_factor = 1};
  return model;
}

inline TrainSettings with_steps(std::int64_t steps) {
  TrainSettings settings;
  settings.steps = steps;
  return settings;
}

struct StreamTraining {
  bool on_streams = true;
  unsigned seed = 0;  // of the order that accelerators find between their streams
  const ValidationJob* validation = nullptr;
  bool rehearses = false;
  GraphWish graphs = GraphWish::never;
  bool works_at_once = false;  // FakeAccelerator::work_at_once
  std::int64_t rank_that_refuses_recordings = -1;
  TrainSettings settings = with_steps(5);
  const CheckpointJob* checkpoint = nullptr;
};

// What rank 0 returns, and how often it started a recording.
struct StreamResult : TrainResult {
  std::int64_t starts = 0;
};

inline StreamResult train(const StreamCase& c, const StreamTraining& how) {
  Layout layout = c.layout;
  layout.micro_batch = 1;
  const std::int64_t replicas = c.ranks / (layout.tp * layout.cp * layout.pp);
  PlanRequest request = PlannedLayout::request_of(model_of(c), layout, c.ranks, kGlobalBatch / replicas);
  if (c.per_node > 1) request.cluster = cluster_in_nodes(c.ranks, c.per_node);
  const SharedGraph graph = build(request);
  Overlap overlap = decide_overlap(request, graph, c.policy);
  if (how.on_streams) overlap.order.queues = c.queues;
  const WholePlan whole = make_whole_plan(request, graph, c.policy, overlap);
  TrainJob job{whole, how.settings, Corpus::generate(3, 4096), 1, true};
  job.validation = how.validation;
  job.checkpoint = how.checkpoint;
  job.graphs = how.graphs;
  FakeFabric fabric;
  StreamResult result;
  local_ranks::on_ranks({.ranks = c.ranks}, {}, [&](Communicator& communicator) {
    StreamResult own;
    if (how.on_streams) {
      FakeAccelerator accelerator(how.seed + static_cast<unsigned>(communicator.rank()));
      if (communicator.rank() == how.rank_that_refuses_recordings) accelerator.refuse_recordings();
      if (how.works_at_once) accelerator.work_at_once();
      FakeCollectives collectives(fabric, communicator.rank(), how.rehearses);
      static_cast<TrainResult&>(own) = train_rank(job, communicator, Processor(accelerator, &collectives));
      own.starts = accelerator.starts();
    } else {
      static_cast<TrainResult&>(own) = train_rank(job, communicator, *make_kernels());
    }
    if (communicator.rank() == 0) result = std::move(own);
  });
  return result;
}

// Sums over ranks may be taken in another order, so losses agree to the precision of floats. An operation that runs too
// early or too late reads other numbers altogether: losses of five steps then differ by a thousandth and more.
inline void expect_same_losses(const TrainResult& found, const TrainResult& expected) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 2e-6 * expected.losses[i]) << "step " << i + 1;
  }
  ASSERT_EQ(found.validation.size(), expected.validation.size());
  for (std::size_t i = 0; i < expected.validation.size(); ++i) {
    EXPECT_NEAR(found.validation[i].loss, expected.validation[i].loss, 2e-6 * expected.validation[i].loss);
  }
}

}  // namespace weft::test
