// The kernel of an update, bound by the names of what it reads.
#include <gtest/gtest.h>

#include <algorithm>

#include "exec/bind_compute.hpp"
#include "exec/test_training.hpp"

namespace weft {
namespace {

constexpr double kLimit = 0.5, kRate = 0.125;

// Under 16-bit weights the master copy lies in the optimizer's state, and an update does not read its weights. That
// must not turn clipping off: with gradients of 1 and a norm of 2, a limit of 0.5 scales them to 0.25.
TEST(BindUpdate, ClipsWhereItReadsANormWhateverElseItReads) {
  if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
  const test::TinyRun run({.ranks = 1, .clip_grad = kLimit});
  const RankView view(run.whole, Rank{0});
  const ParameterStates parameters(view);
  StepGraph changed = run.whole.original();
  for (Operation& op : changed.operations) {
    if (op.role != Role::update) continue;
    const ValueId weight = parameters.of(op.layer, op.subject).weight;
    ASSERT_EQ(std::erase_if(op.reads, [&](const Read& read) { return read.value == weight; }), 1U);
  }
  const WholePlan changed_plan(run.whole.plan(), std::move(changed));
  const RankView changed_view(changed_plan, Rank{0});
  TrainSettings settings;
  settings.optimizer = Optimizer::sgd;
  settings.sgd.learning_rate = kRate;
  const Layout& layout = run.whole.plan().layout;
  const Batches batches(Corpus::generate(3, 4096), {layout.global_batch, layout.micro_batch, layout.seq, layout.dp}, 1);
  RankTraining training;
  const std::unique_ptr<Kernels> kernels = make_kernels();
  const ComputeBinder binder(changed_view, parameters, settings, batches, training);
  for (const ParameterState& p : parameters.all()) {
    kernels->fill(parameters.own_weights(p), 1);
    kernels->fill(parameters.own_gradient(p), 1);
  }
  const StepGraph& graph = run.whole.plan().graph;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (op.role == Role::grad_norm) floats_of({changed_view.data(op.writes.front().value), 1}).front() = 4;
    if (op.role == Role::update) binder.bind(make_id<OpId>(i), kOncePerStep).run(*kernels, 0);
  }
  for (const ParameterState& p : parameters.all()) {
    const Vector weights = parameters.own_weights(p);
    EXPECT_NEAR(floats_of(weights).front(), 1 - kRate * 0.25, 1e-6) << p.name();
  }
}

}  // namespace
}  // namespace weft
