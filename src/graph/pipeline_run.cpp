#include "graph/pipeline_run.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/layout.hpp"

namespace weft {

PipelineShape shape_of(const Layout& layout) {
  return {layout.pp, layout.vpp, layout.micro_batches(), row_of(layout.schedule).in_waves};
}

PipelineProblem problem_in_units(const PipelineShape& shape) {
  return {shape, std::vector<PassTimes>(static_cast<std::size_t>(shape.all_chunks())), 0};
}

PipelineRun::PipelineRun(const PipelineProblem& problem)
    : problem_(problem),
      chunks_(static_cast<std::size_t>(problem.shape.all_chunks())),
      free_at_(static_cast<std::size_t>(problem.shape.stages), 0),
      held_(free_at_.size(), 0),
      orders_(free_at_.size()) {}

const PassTimes& PipelineRun::times(std::int64_t stage, std::int64_t chunk) const {
  return problem_.times[problem_.shape.number_of(stage, chunk)];
}

std::int64_t PipelineRun::begun(BlockKind kind, std::int64_t stage, std::int64_t chunk) const {
  const Chunk& c = chunks_[problem_.shape.number_of(stage, chunk)];
  return kind == BlockKind::forward      ? std::ssize(c.forward)
         : kind == BlockKind::input_grad ? std::ssize(c.input_grad)
                                         : c.weight_grads;
}

std::optional<std::int64_t> PipelineRun::arrival(const std::vector<std::int64_t>& ends, std::size_t micro_batch,
                                                 bool by_message) const {
  if (micro_batch >= ends.size()) return {};
  return ends[micro_batch] + (by_message ? problem_.message : 0);
}

std::optional<std::int64_t> PipelineRun::ready_at(BlockKind kind, std::int64_t stage, std::int64_t chunk) const {
  const PipelineShape& shape = problem_.shape;
  const std::int64_t number = shape.number_of(stage, chunk), next = begun(kind, stage, chunk);
  if (next == shape.micro_batches) return {};
  const Chunk& own = chunks_[number];
  const auto micro_batch = static_cast<std::size_t>(next);
  const auto by_message = [&](std::int64_t other) { return shape.stage_of(other) != stage; };
  if (kind == BlockKind::forward) {
    if (number == 0) return 0;
    return arrival(chunks_[number - 1].forward, micro_batch, by_message(number - 1));
  }
  if (kind == BlockKind::weight_grad) return arrival(own.input_grad, micro_batch, false);
  if (number + 1 == shape.all_chunks()) return arrival(own.forward, micro_batch, false);
  return arrival(chunks_[number + 1].input_grad, micro_batch, by_message(number + 1));
}

std::optional<PipelinePass> PipelineRun::ready_pass(BlockKind kind, std::int64_t stage, std::int64_t chunk) const {
  const std::optional<std::int64_t> at = ready_at(kind, stage, chunk);
  if (!at || *at > now_) return {};
  return PipelinePass{kind, static_cast<std::int32_t>(chunk), make_id<MicroBatch>(begun(kind, stage, chunk))};
}

void PipelineRun::begin(std::int64_t stage, const PipelinePass& pass) {
  const std::int64_t number = problem_.shape.number_of(stage, pass.chunk);
  const PassTimes& times = problem_.times[number];
  Chunk& chunk = chunks_[number];
  std::int64_t end = now_;
  switch (pass.kind) {
    case BlockKind::forward:
      chunk.forward.push_back(end += times.forward);
      ++held_[stage];
      break;
    case BlockKind::input_grad:
      chunk.input_grad.push_back(end += times.input_grad);
      break;
    case BlockKind::weight_grad:
      end += times.weight_grad;
      ++chunk.weight_grads;
      --held_[stage];
      break;
    default:
      WEFT_CHECK(false);
  }
  free_at_[stage] = end;
  orders_[stage].push_back(pass);
  moments_.insert(end);
  if (problem_.message > 0 && pass.kind != BlockKind::weight_grad) moments_.insert(end + problem_.message);
}

bool PipelineRun::run(const Rule& rule) {
  std::int64_t left = 3 * problem_.shape.all_chunks() * problem_.shape.micro_batches;
  for (moments_.insert(0); !moments_.empty();) {
    now_ = *moments_.begin();
    moments_.erase(moments_.begin());
    for (std::int64_t stage = 0; stage < problem_.shape.stages; ++stage) {
      if (free_at_[stage] > now_) continue;
      const std::optional<PipelinePass> pass = rule(stage);
      if (!pass) continue;
      begin(stage, *pass);
      --left;
    }
  }
  return left == 0;
}

std::int64_t PipelineRun::end() const {
  return *std::max_element(free_at_.begin(), free_at_.end());
}

namespace {

// Repeats the orders of all stages without a pause between steps.
class RepeatedSteps {
 public:
  RepeatedSteps(const PipelineProblem& problem, const PipelineOrders& orders)
      : problem_(problem), orders_(orders), free_at_(orders.size(), 0) {}

  // Returns when each stage has ended one more step; nothing where they wait for each other.
  std::optional<std::vector<std::int64_t>> next() {
    const std::size_t passes = problem_.shape.all_chunks() * problem_.shape.micro_batches;
    forward_.assign(passes, -1);
    input_grad_.assign(passes, -1);
    std::vector<std::size_t> at(orders_.size(), 0);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t stage = 0; stage < orders_.size(); ++stage) {
        while (at[stage] < orders_[stage].size() && execute(stage, orders_[stage][at[stage]])) {
          ++at[stage];
          moves = true;
        }
      }
    }
    for (std::size_t stage = 0; stage < orders_.size(); ++stage) {
      if (at[stage] < orders_[stage].size()) return {};
    }
    return free_at_;
  }

 private:
  bool execute(std::size_t stage, const PipelinePass& pass) {
    const PipelineShape& shape = problem_.shape;
    const auto own_stage = static_cast<std::int64_t>(stage);
    const std::int64_t number = shape.number_of(own_stage, pass.chunk);
    const auto end_of = [&](std::vector<std::int64_t>& ends, std::int64_t chunk) -> std::int64_t& {
      return ends[chunk * shape.micro_batches + pass.micro_batch.value];
    };
    const auto after = [&](std::vector<std::int64_t>& ends, std::int64_t chunk) {
      const std::int64_t end = end_of(ends, chunk);
      return end < 0 || shape.stage_of(chunk) == own_stage ? end : end + problem_.message;
    };
    const PassTimes& times = problem_.times[number];
    const bool is_last = number + 1 == shape.all_chunks();
    std::int64_t ready = 0, length = times.weight_grad;
    if (pass.kind == BlockKind::forward) {
      ready = number == 0 ? 0 : after(forward_, number - 1);
      length = times.forward;
    } else if (pass.kind == BlockKind::input_grad) {
      ready = end_of(forward_, number) < 0 ? -1 : is_last ? end_of(forward_, number) : after(input_grad_, number + 1);
      length = times.input_grad;
    } else {
      ready = end_of(input_grad_, number);
    }
    if (ready < 0) return false;
    free_at_[stage] = std::max(free_at_[stage], ready) + length;
    if (pass.kind == BlockKind::forward) end_of(forward_, number) = free_at_[stage];
    if (pass.kind == BlockKind::input_grad) end_of(input_grad_, number) = free_at_[stage];
    return true;
  }

  const PipelineProblem& problem_;
  const PipelineOrders& orders_;
  std::vector<std::int64_t> free_at_;               // by stage
  std::vector<std::int64_t> forward_, input_grad_;  // by chunk and micro-batch: when it ends; -1: not begun
};

}  // namespace

std::optional<std::int64_t> step_time(const PipelineProblem& problem, const PipelineOrders& orders) {
  // Waiting times settle when every stage has once waited for every other.
  constexpr int kStepsUntilSteady = 3;
  RepeatedSteps steps(problem, orders);
  std::vector<std::int64_t> before, after;
  for (int step = 0; step < kStepsUntilSteady; ++step) {
    const auto ends = steps.next();
    if (!ends) return {};
    before = std::move(after);
    after = *ends;
  }
  std::int64_t longest = 0;
  for (std::size_t stage = 0; stage < after.size(); ++stage) longest = std::max(longest, after[stage] - before[stage]);
  return longest;
}

}  // namespace weft
