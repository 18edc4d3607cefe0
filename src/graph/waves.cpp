#include "graph/waves.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "base/error.hpp"

namespace weft {
namespace {

// Chooses the passes of Hanayo's stages. Passes take one unit of time; a weight gradient, which is part of its
// backward, takes none.
class WholeWaves {
 public:
  explicit WholeWaves(const PipelineProblem& problem) : run_(problem) {}

  PipelineOrders orders() {
    WEFT_CHECK(run_.run([&](std::int64_t stage) { return choose(stage); }));
    PipelineOrders orders = run_.orders();
    for (std::vector<PipelinePass>& order : orders) {
      std::erase_if(order, [](const PipelinePass& pass) { return pass.kind == BlockKind::weight_grad; });
      for (PipelinePass& pass : order) {
        if (pass.kind == BlockKind::input_grad) pass.kind = BlockKind::backward;
      }
    }
    return orders;
  }

 private:
  std::optional<PipelinePass> choose(std::int64_t stage) const {
    for (const BlockKind kind : {BlockKind::weight_grad, BlockKind::input_grad, BlockKind::forward}) {
      for (std::int64_t chunk = run_.shape().chunks - 1; chunk >= 0; --chunk) {
        const auto pass = run_.ready_pass(kind, stage, chunk);
        if (pass && (kind != BlockKind::forward || chunk > 0 || has_room(stage))) return pass;
      }
    }
    return {};
  }
  // Returns whether fewer micro-batches are under way than there are stages.
  bool has_room(std::int64_t stage) const {
    return run_.begun(BlockKind::forward, stage, 0) - run_.begun(BlockKind::input_grad, stage, 0) < run_.shape().stages;
  }

  PipelineRun run_;
};

// One stage's order of DualPipeV, phase after phase. It is written for at least 2p micro-batches; of those that a step
// does not have, the passes are left out.
class DualPipeStage {
 public:
  DualPipeStage(const PipelineShape& shape, std::int64_t stage, bool paired)
      : micro_batches_(shape.micro_batches),
        steady_(std::max(2 * shape.stages, shape.micro_batches) - 2 * shape.stages + stage + 1),
        from_first_(stage + 1),
        to_last_(shape.stages - 1 - stage),
        paired_(paired) {}

  std::vector<PipelinePass> order() {
    fill();
    for (std::int64_t i = 0; i < steady_; ++i) {
      // On the last stage the first of them waits for the other: a pair would begin later.
      side_by_side(0, 1, i > 0 || to_last_ > 0);
      side_by_side(1, 0, true);
    }
    for (std::int64_t i = 0; i < to_last_; ++i) {
      backward(1);
      side_by_side(1, 0, true);
    }
    drain();
    return std::move(order_);
  }

 private:
  bool exists(std::int64_t micro_batch) const { return micro_batch < micro_batches_; }
  void pass(BlockKind kind, std::int32_t chunk, std::int64_t micro_batch) {
    if (exists(micro_batch)) order_.push_back({kind, chunk, make_id<MicroBatch>(micro_batch)});
  }
  void forward(std::int32_t chunk) { pass(BlockKind::forward, chunk, forwards_[chunk]++); }
  void input_grad(std::int32_t chunk) {
    put_off_.push_back({chunk, backwards_[chunk]});
    pass(BlockKind::input_grad, chunk, backwards_[chunk]++);
  }
  void weight_grad() {
    if (put_off_.empty()) return;
    pass(BlockKind::weight_grad, put_off_.front().chunk, put_off_.front().micro_batch);
    put_off_.pop_front();
  }
  void backward(std::int32_t chunk) {
    pass(BlockKind::input_grad, chunk, backwards_[chunk]);
    pass(BlockKind::weight_grad, chunk, backwards_[chunk]++);
  }
  void side_by_side(std::int32_t forward_chunk, std::int32_t backward_chunk, bool may_pair) {
    const bool both = exists(forwards_[forward_chunk]) && exists(backwards_[backward_chunk]);
    forward(forward_chunk);
    if (both && paired_ && may_pair) order_.back().with_next = true;
    backward(backward_chunk);
  }

  // Forwards until the first micro-batch has come back to this stage, then input gradients of the second chunk as they
  // come.
  void fill() {
    for (std::int64_t i = 0; i < 2 * to_last_; ++i) forward(0);
    for (std::int64_t i = 0; i < from_first_; ++i) {
      forward(0);
      forward(1);
    }
    for (std::int64_t i = 0; i < to_last_; ++i) {
      input_grad(1);
      weight_grad();
      forward(1);
    }
  }
  // Backwards of both chunks in turn. From the middle on their weight gradients are put off: they keep the stage busy
  // while the last gradients come.
  void drain() {
    for (std::int64_t i = 0; i < 2 * from_first_; ++i) {
      const std::int32_t chunk = i % 2 == 0 ? 1 : 0;
      if (i < from_first_) {
        backward(chunk);
      } else {
        input_grad(chunk);
      }
    }
    for (std::int64_t i = 0; i < to_last_; ++i) {
      weight_grad();
      input_grad(0);
    }
    while (!put_off_.empty()) weight_grad();
  }

  struct PutOff {
    std::int32_t chunk = 0;
    std::int64_t micro_batch = 0;
  };
  std::int64_t micro_batches_;
  std::int64_t steady_;      // times that both chunks go forth and back in turn
  std::int64_t from_first_;  // stages up to this one
  std::int64_t to_last_;     // stages behind it
  bool paired_;
  std::array<std::int64_t, 2> forwards_{}, backwards_{};  // by chunk
  std::deque<PutOff> put_off_;                            // weight gradients
  std::vector<PipelinePass> order_;
};

}  // namespace

PipelineOrders hanayo_waves(const PipelineShape& shape) {
  WEFT_CHECK(shape.in_waves && shape.chunks % 2 == 0);
  PipelineProblem problem = problem_in_units(shape);
  for (PassTimes& times : problem.times) times.weight_grad = 0;
  return WholeWaves(problem).orders();
}

PipelineOrders dual_pipe_waves(const PipelineShape& shape, bool paired) {
  WEFT_CHECK(shape.in_waves && shape.chunks == 2);
  PipelineOrders orders;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    orders.push_back(DualPipeStage(shape, stage, paired).order());
  }
  return orders;
}

PipelineOrders dual_pipe_both_ways(const PipelineShape& shape, bool paired) {
  WEFT_CHECK(shape.two_directions && shape.chunks == 2 && shape.stages % 2 == 0);
  PipelineShape half = shape;
  half.stages /= 2;
  PipelineOrders orders;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    const std::int64_t from_its_end = std::min(stage, shape.stages - 1 - stage);
    orders.push_back(DualPipeStage(half, from_its_end, paired).order());
  }
  return orders;
}

}  // namespace weft
