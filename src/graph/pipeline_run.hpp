// The stages of a pipeline, run against each other: whenever a stage is free, a rule chooses among its passes that are
// ready. So schedules that split backward are made: the named ones with passes that all take one unit of time, searched
// ones with the times of a plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "graph/pipeline_schedule.hpp"

namespace weft {

struct PipelineShape {
  std::int64_t stages = 1;
  std::int64_t chunks = 1;  // of each stage
  std::int64_t micro_batches = 1;
  // Whether a micro-batch goes back and forth: it passes stages 0, 1, ..., p - 1 in the first chunk of each, then
  // p - 1, ..., 0 in the second, and so on. Otherwise every chunk begins at stage 0.
  bool in_waves = false;
  std::int64_t slices = 1;  // of a micro-batch's sequences, which pass one behind the other
  // Whether a stage's two chunks are parts of two copies of the model. One goes through stages 0, 1, ..., p - 1 and has
  // the numbers 0, ..., p - 1; the other goes through p - 1, ..., 0 and has the numbers behind them. A stage's first
  // chunk is the one that has the earlier layers. A micro-batch here is one of each direction.
  bool two_directions = false;

  std::int64_t all_chunks() const { return stages * chunks; }
  std::int64_t passes() const { return micro_batches * slices; }  // of a kind through a chunk
  // Returns the k-th pass of a kind through a chunk: forward slice after slice, backward in the reverse order.
  PipelinePass nth_pass(BlockKind kind, std::int64_t chunk, std::int64_t k) const {
    const std::int64_t slice = kind == BlockKind::forward ? k % slices : slices - 1 - k % slices;
    return {kind, static_cast<std::int32_t>(chunk), make_id<MicroBatch>(k / slices), false,
            static_cast<std::int32_t>(slice)};
  }
  // Returns the number, among forwards, of the forward that the k-th backward needs.
  std::int64_t forward_of(std::int64_t k) const { return k / slices * slices + slices - 1 - k % slices; }
  // Returns the number of a stage's chunk in the order of the model.
  std::int64_t number_of(std::int64_t stage, std::int64_t chunk) const {
    const std::int64_t way = two_directions && 2 * stage >= stages ? 1 - chunk : chunk;
    return way * stages + (is_reversed(way) ? stages - 1 - stage : stage);
  }
  std::int64_t stage_of(std::int64_t number) const {
    return is_reversed(number / stages) ? stages - 1 - number % stages : number % stages;
  }
  // Returns whether a micro-batch enters the model, or leaves it, at the chunk of that number.
  bool is_first(std::int64_t number) const { return number == 0 || (two_directions && number == stages); }
  bool is_last(std::int64_t number) const { return is_first(number + 1) || number + 1 == all_chunks(); }
  // Returns whether a stage's chunk is of the second copy of the model.
  bool is_copy(std::int64_t stage, std::int64_t chunk) const {
    return two_directions && number_of(stage, chunk) >= stages;
  }

 private:
  bool is_reversed(std::int64_t chunk) const { return in_waves && chunk % 2 == 1; }
};
PipelineShape shape_of(const Layout& layout);

struct PassTimes {
  std::int64_t forward = 1, input_grad = 1, weight_grad = 1;
};

// What a pass holds of its stage's memory.
struct PassBytes {
  std::int64_t forward = 0;     // from the begin of its forward to the end of its input gradients
  std::int64_t input_grad = 0;  // from their begin to the end of its weight gradients: of what forward left, what these
                                // read too, and what input gradients leave, such as activations computed again
  std::int64_t while_input_grad() const { return std::max<std::int64_t>(0, input_grad - forward); }
};

struct PipelineProblem {
  PipelineShape shape;
  std::vector<PassTimes> times;         // by chunk in the order of the model, and slice
  std::int64_t message = 0;             // from one stage to another
  std::vector<PassBytes> bytes = {};    // as `times`; empty: memory does not count
  std::vector<std::int64_t> room = {};  // by stage: bytes for passes, where they count

  const PassTimes& times_of(std::int64_t number, std::int64_t slice) const {
    return times[static_cast<std::size_t>(number * shape.slices + slice)];
  }
  PassBytes bytes_of(std::int64_t number, std::int64_t slice) const {
    return bytes.empty() ? PassBytes{} : bytes[static_cast<std::size_t>(number * shape.slices + slice)];
  }
  std::int64_t room_of(std::int64_t stage) const {
    return bytes.empty() ? INT64_MAX / 2 : room[static_cast<std::size_t>(stage)];
  }
};
PipelineProblem problem_in_units(const PipelineShape& shape);

class PipelineRun {
 public:
  explicit PipelineRun(const PipelineProblem& problem);

  // Returns the pass that a free stage begins now, which must be ready, or nothing: then it waits. After a forward
  // `with_next` it is asked at once for the input gradient that forms a pair with it; both end together.
  using Rule = std::function<std::optional<PipelinePass>(std::int64_t stage)>;
  // Returns whether every pass was run. Where no stage finds anything to do, some are left.
  bool run(const Rule& rule);

  // The next pass of a kind through a chunk, where it is ready.
  std::optional<PipelinePass> ready_pass(BlockKind kind, std::int64_t stage, std::int64_t chunk) const;
  // When the next pass of a kind will be ready, as far as this is known: its inputs are there or on their way.
  std::optional<std::int64_t> ready_at(BlockKind kind, std::int64_t stage, std::int64_t chunk) const;
  std::int64_t now() const { return now_; }
  // Passes of a stage between the begin of their forward and the end of their weight gradients.
  std::int64_t held(std::int64_t stage) const { return held_[stage]; }
  std::int64_t room_left(std::int64_t stage) const { return problem_.room_of(stage) - bytes_held_[stage]; }
  std::int64_t begun(BlockKind kind, std::int64_t stage, std::int64_t chunk) const;
  const PipelineShape& shape() const { return problem_.shape; }
  const PassTimes& times(std::int64_t stage, const PipelinePass& pass) const;
  PassBytes bytes(std::int64_t stage, const PipelinePass& pass) const;

  const PipelineOrders& orders() const { return orders_; }
  std::int64_t end() const;  // of all passes

 private:
  struct Chunk {
    std::vector<std::int64_t> forward, input_grad;  // by pass that was begun: when it ends
    std::int64_t weight_grads = 0;                  // begun
  };
  // `beside`: what the other pass of a pair takes.
  void begin(std::int64_t stage, const PipelinePass& pass, std::int64_t beside = 0);
  std::optional<std::int64_t> arrival(const std::vector<std::int64_t>& ends, std::int64_t pass, bool by_message) const;

  const PipelineProblem& problem_;
  std::vector<Chunk> chunks_;                              // in the order of the model
  std::vector<std::int64_t> free_at_, held_, bytes_held_;  // by stage
  std::set<std::int64_t> moments_;
  PipelineOrders orders_;
  std::int64_t now_ = 0;
};

// Returns how long a step takes where steps follow each other and every stage keeps its order, or nothing where stages
// wait for each other for ever.
std::optional<std::int64_t> step_time(const PipelineProblem& problem, const PipelineOrders& orders);

}  // namespace weft
