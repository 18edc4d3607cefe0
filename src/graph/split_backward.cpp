#include "graph/split_backward.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr BlockKind kForward = BlockKind::forward, kInputGrad = BlockKind::input_grad,
                    kWeightGrad = BlockKind::weight_grad;

class Filler {
 public:
  Filler(const PipelineProblem& problem, const FillOptions& options)
      : run_(problem),
        options_(options),
        at_(static_cast<std::size_t>(problem.shape.stages), 0),
        last_was_forward_(at_.size(), false) {
    for (std::int64_t stage = 0; stage < problem.shape.stages; ++stage) {
      std::int64_t most = 0;
      for (std::int64_t chunk = 0; chunk < problem.shape.chunks; ++chunk) {
        std::int64_t& forward = for_forward_.emplace_back(0);
        for (std::int64_t slice = 0; slice < problem.shape.slices; ++slice) {
          const PassBytes bytes = problem.bytes_of(problem.shape.number_of(stage, chunk), slice);
          forward = std::max(forward, bytes.forward);
          most = std::max(most, bytes.while_input_grad());
        }
      }
      for_input_grad_.push_back(most);
    }
  }

  std::optional<PipelineOrders> orders() {
    if (!run_.run([&](std::int64_t stage) { return choose(stage); })) return {};
    return run_.orders();
  }

 private:
  std::optional<PipelinePass> choose(std::int64_t stage) {
    if (!options_.given.empty()) return given_or_weight_grad(stage);
    const std::optional<PipelinePass> backward = latest_chunk(kInputGrad, stage), forward = ready_forward(stage);
    const bool takes_backward =
        backward && (!forward || !options_.alternate || last_was_forward_[static_cast<std::size_t>(stage)]);
    if (takes_backward && must_make_room(stage, *backward)) return longest_waiting(stage);
    if (takes_backward || forward) {
      last_was_forward_[static_cast<std::size_t>(stage)] = !takes_backward;
      return takes_backward ? backward : forward;
    }
    return weight_grad(stage);
  }

  // Returns the next pass of the order given where it is ready, with its partner where it is one of a pair.
  std::optional<PipelinePass> given_or_weight_grad(std::int64_t stage) {
    const std::vector<PipelinePass>& order = options_.given[static_cast<std::size_t>(stage)];
    std::size_t& at = at_[static_cast<std::size_t>(stage)];
    if (at == order.size()) return weight_grad(stage);
    const bool is_second_of_pair = at > 0 && order[at - 1].with_next;
    const bool has_room =
        order[at].kind == kForward ? has_room_for(stage, order[at].chunk) : !must_make_room(stage, order[at]);
    const bool may_begin = is_second_of_pair || (has_room && is_ready(stage, order[at]) &&
                                                 (!order[at].with_next || is_ready(stage, order[at + 1])));
    if (!may_begin) return has_room ? weight_grad(stage) : longest_waiting(stage);
    PipelinePass pass = order[at++];
    if (pass.kind == BlockKind::backward) pass.kind = kInputGrad;
    return pass;
  }

  bool is_ready(std::int64_t stage, const PipelinePass& pass) const {
    const BlockKind kind = pass.kind == BlockKind::backward ? kInputGrad : pass.kind;
    return run_.ready_pass(kind, stage, pass.chunk).has_value();
  }

  std::optional<PipelinePass> latest_chunk(BlockKind kind, std::int64_t stage) const {
    for (std::int64_t chunk = run_.shape().chunks - 1; chunk >= 0; --chunk) {
      if (const auto pass = run_.ready_pass(kind, stage, chunk)) return pass;
    }
    return {};
  }

  std::optional<PipelinePass> ready_forward(std::int64_t stage) const {
    for (std::int64_t chunk = run_.shape().chunks - 1; chunk >= 0 && has_room_for(stage, chunk); --chunk) {
      if (const auto pass = run_.ready_pass(kForward, stage, chunk)) return pass;
    }
    return {};
  }

  // A forward leaves room for the input gradients of one pass. Without pairs, a stage with several chunks also leaves
  // some for the later ones: the micro-batches in its earlier ones wait for them.
  bool has_room_for(std::int64_t stage, std::int64_t chunk) const {
    const std::int64_t last = options_.given.empty() ? run_.shape().chunks - 1 : chunk;
    std::int64_t bytes = for_input_grad_[static_cast<std::size_t>(stage)];
    for (std::int64_t c = chunk; c <= last; ++c) {
      bytes += for_forward_[static_cast<std::size_t>(stage * run_.shape().chunks + c)];
    }
    const std::int64_t passes = options_.most_held[static_cast<std::size_t>(stage)] - run_.held(stage);
    return passes > last - chunk && bytes <= run_.room_left(stage);
  }

  // Whether input gradients need the memory of weight gradients that wait.
  bool must_make_room(std::int64_t stage, const PipelinePass& input_grad) const {
    return run_.bytes(stage, input_grad).while_input_grad() > run_.room_left(stage) && longest_waiting(stage);
  }

  std::optional<PipelinePass> weight_grad(std::int64_t stage) const {
    const std::optional<PipelinePass> found = longest_waiting(stage);
    if (found && options_.patience > 0 && is_soon_busy(stage, *found)) return {};
    return found;
  }

  // Returns the weight gradients that have waited for the most others of their chunk.
  std::optional<PipelinePass> longest_waiting(std::int64_t stage) const {
    std::optional<PipelinePass> found;
    std::int64_t most = 0;
    for (std::int64_t chunk = run_.shape().chunks - 1; chunk >= 0; --chunk) {
      const std::int64_t waiting = run_.begun(kInputGrad, stage, chunk) - run_.begun(kWeightGrad, stage, chunk);
      const auto pass = run_.ready_pass(kWeightGrad, stage, chunk);
      if (!pass || waiting <= most) continue;
      found = pass;
      most = waiting;
    }
    return found;
  }

  bool is_soon_busy(std::int64_t stage, const PipelinePass& weight_grad) const {
    const double until = static_cast<double>(run_.now()) +
                         options_.patience * static_cast<double>(run_.times(stage, weight_grad).weight_grad);
    for (std::int64_t chunk = 0; chunk < run_.shape().chunks; ++chunk) {
      const auto backward = run_.ready_at(kInputGrad, stage, chunk);
      if (backward && *backward > run_.now() && static_cast<double>(*backward) <= until) return true;
    }
    return false;
  }

  PipelineRun run_;
  const FillOptions& options_;
  std::vector<std::size_t> at_;               // by stage: in the order given
  std::vector<bool> last_was_forward_;        // by stage, of the last pass that was no weight gradient
  std::vector<std::int64_t> for_forward_;     // by stage and chunk: the most bytes that a forward of any slice takes
  std::vector<std::int64_t> for_input_grad_;  // by stage: the most bytes that input gradients take while they run
};

// The moments of one micro-batch's passes; the next micro-batch's are kPeriod later.
class WavePattern {
 public:
  static constexpr std::int64_t kPeriod = 6;  // two forwards, two input gradients and two weight gradients

  WavePattern(const PipelineShape& shape, const WaveSteps& steps)
      : shape_(shape), moments_(shape.all_chunks()), taken_(static_cast<std::size_t>(shape.stages)) {
    const std::int64_t stages = shape.stages, all = shape.all_chunks();
    std::int64_t at = 0;
    for (std::int64_t number = 0; number < all; ++number) {
      if (number > 0) at += number < stages ? steps.forward_down : number == stages ? 1 : steps.forward_up;
      at = moment(kForward, number) = free_from(number, at);
    }
    for (std::int64_t number = all - 1; number >= 0; --number) {
      const bool turns = number == all - 1 || number == stages - 1;
      at += turns ? 1 : number >= stages ? steps.backward_down : steps.backward_up;
      at = moment(kInputGrad, number) = free_from(number, at);
    }
    for (std::int64_t stage = 0; stage < stages; ++stage) place_weight_grads(stage);
  }

  std::int64_t moment(BlockKind kind, std::int64_t stage, const PipelinePass& pass) const {
    return moments_[shape_.number_of(stage, pass.chunk)][place_of(kind)] + kPeriod * pass.micro_batch.value;
  }

 private:
  static std::size_t place_of(BlockKind kind) { return kind == kForward ? 0 : kind == kInputGrad ? 1 : 2; }
  std::int64_t& moment(BlockKind kind, std::int64_t number) { return moments_[number][place_of(kind)]; }

  std::int64_t free_from(std::int64_t number, std::int64_t at) {
    auto& taken = taken_[shape_.stage_of(number)];
    while (taken[at % kPeriod]) ++at;
    taken[at % kPeriod] = true;
    return at;
  }

  // Takes the free unit behind each input gradient; of the two ways to do so the one that holds activations shorter.
  void place_weight_grads(std::int64_t stage) {
    const std::int64_t first = shape_.number_of(stage, 0), second = shape_.number_of(stage, 1);
    const auto taken = taken_[stage];
    const auto place = [&](std::int64_t earlier, std::int64_t later) {
      taken_[stage] = taken;
      moment(kWeightGrad, earlier) = free_from(earlier, moment(kInputGrad, earlier) + 1);
      moment(kWeightGrad, later) = free_from(later, moment(kInputGrad, later) + 1);
      return moment(kWeightGrad, earlier) + moment(kWeightGrad, later);
    };
    const std::int64_t first_leads = place(first, second), second_leads = place(second, first);
    if (first_leads <= second_leads) place(first, second);
  }

  PipelineShape shape_;
  std::vector<std::array<std::int64_t, 3>> moments_;  // by chunk in the order of the model
  std::vector<std::array<bool, kPeriod>> taken_;      // by stage
};

class WaveRule {
 public:
  WaveRule(const PipelineProblem& problem, const WaveSteps& steps)
      : run_(problem), pattern_(problem.shape, steps), at_(static_cast<std::size_t>(problem.shape.stages), 0) {
    for (std::int64_t stage = 0; stage < problem.shape.stages; ++stage) {
      std::vector<PipelinePass> passes = passes_in_pattern(stage);
      const auto last =
          std::find_if(passes.rbegin(), passes.rend(), [](const PipelinePass& pass) { return pass.kind == kForward; });
      passes.erase(last.base(), passes.end());
      until_last_forward_.push_back(std::move(passes));
    }
  }

  PipelineOrders orders() {
    WEFT_CHECK(run_.run([&](std::int64_t stage) { return choose(stage); }));
    return run_.orders();
  }

 private:
  std::vector<PipelinePass> passes_in_pattern(std::int64_t stage) const {
    std::vector<PipelinePass> passes;
    for (const BlockKind kind : {kForward, kInputGrad, kWeightGrad}) {
      for (std::int32_t chunk = 0; chunk < 2; ++chunk) {
        for (const MicroBatch mb : IdRange<MicroBatch>(run_.shape().micro_batches)) passes.push_back({kind, chunk, mb});
      }
    }
    const auto moment = [&](const PipelinePass& pass) { return pattern_.moment(pass.kind, stage, pass); };
    std::sort(passes.begin(), passes.end(),
              [&](const PipelinePass& a, const PipelinePass& b) { return moment(a) < moment(b); });
    return passes;
  }

  std::optional<PipelinePass> choose(std::int64_t stage) {
    const auto place = static_cast<std::size_t>(stage);
    const std::vector<PipelinePass>& given = until_last_forward_[place];
    if (at_[place] == given.size()) {
      const auto backward = earliest(kInputGrad, stage);
      return backward ? backward : earliest(kWeightGrad, stage);
    }
    const auto pass = run_.ready_pass(given[at_[place]].kind, stage, given[at_[place]].chunk);
    if (pass) ++at_[place];
    return pass;
  }

  std::optional<PipelinePass> earliest(BlockKind kind, std::int64_t stage) const {
    const auto first = run_.ready_pass(kind, stage, 0), second = run_.ready_pass(kind, stage, 1);
    if (!first || !second) return first ? first : second;
    return pattern_.moment(kind, stage, *first) < pattern_.moment(kind, stage, *second) ? first : second;
  }

  PipelineRun run_;
  WavePattern pattern_;
  std::vector<std::vector<PipelinePass>> until_last_forward_;  // by stage
  std::vector<std::size_t> at_;                                // in it
};

// One stage's order of ZBV, phase after phase. It is written for at least 2p - 1 micro-batches, which fill the
// pipeline; of those that a step does not have, the passes are left out.
class ZeroBubbleStage {
 public:
  ZeroBubbleStage(const PipelineShape& shape, std::int64_t stage)
      : micro_batches_(shape.micro_batches),
        planned_(std::max(2 * shape.stages - 1, shape.micro_batches)),
        stage_(stage),
        to_end_(shape.stages - stage) {}

  std::vector<PipelinePass> order() {
    fill();
    while (next_[0][0] < planned_) one_of_each(true);
    while (next_[1][0] < planned_) one_of_each(false);
    drain();
    return std::move(order_);
  }

 private:
  static std::size_t place_of(BlockKind kind) { return kind == kForward ? 0 : kind == kInputGrad ? 1 : 2; }
  void pass(BlockKind kind, std::int32_t chunk) {
    const std::int64_t number = next_[chunk][place_of(kind)]++;
    if (number < micro_batches_) order_.push_back({kind, chunk, make_id<MicroBatch>(number)});
  }
  void backward(std::int32_t chunk) {
    pass(kInputGrad, chunk);
    pass(kWeightGrad, chunk);
  }

  // The first micro-batch comes back to this stage after 2 (p - stage) - 1 units, and as a gradient after as many as
  // there are stages before it and back.
  void fill() {
    for (std::int64_t i = 0; i < 2 * to_end_ - 1; ++i) pass(kForward, 0);
    for (std::int64_t i = 0; i < stage_; ++i) {
      pass(kForward, 1);
      pass(kForward, 0);
    }
    for (std::int64_t i = 0; i < to_end_; ++i) {
      pass(kForward, 1);
      backward(1);
    }
  }
  void one_of_each(bool begins_another) {
    if (begins_another) pass(kForward, 0);
    backward(0);
    pass(kForward, 1);
    backward(1);
  }
  // Gradients that other stages wait for come first; weight gradients keep the stage busy until it begins the next
  // step.
  void drain() {
    for (std::int64_t i = 0; i < stage_; ++i) {
      pass(kInputGrad, 0);
      pass(kInputGrad, 1);
    }
    for (std::int64_t i = 0; i < to_end_; ++i) backward(0);
    for (const std::int32_t chunk : {1, 0}) {
      while (next_[chunk][2] < next_[chunk][1]) pass(kWeightGrad, chunk);
    }
  }

  std::int64_t micro_batches_, planned_, stage_, to_end_;
  std::array<std::array<std::int64_t, 3>, 2> next_{};  // by chunk and kind
  std::vector<PipelinePass> order_;
};

}  // namespace

PipelineOrders zero_bubble_waves(const PipelineShape& shape) {
  WEFT_CHECK(shape.in_waves && shape.chunks == 2);
  PipelineOrders orders;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) orders.push_back(ZeroBubbleStage(shape, stage).order());
  return orders;
}

std::optional<PipelineOrders> fill_with_weight_grads(const PipelineProblem& problem, const FillOptions& options) {
  return Filler(problem, options).orders();
}

PipelineOrders repeat_in_waves(const PipelineShape& shape, const WaveSteps& steps) {
  WEFT_CHECK(shape.in_waves && shape.chunks == 2);
  const PipelineProblem problem = problem_in_units(shape);
  return WaveRule(problem, steps).orders();
}

}  // namespace weft
