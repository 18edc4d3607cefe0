#include "exec/train_lengths.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "exec/rank_exchange.hpp"

namespace weft {
namespace {

BatchShape shape_of(const Plan& plan) {
  const Layout& l = plan.layout;
  return {l.global_batch, l.micro_batch, l.seq, l.dp, plan.model.vocab};
}

// Copies in the memory of a rank. Of a device it waits for the copies alone: other ranks may share it, and wait for
// this one.
class HandOver {
 public:
  explicit HandOver(const Processor& processor) : processor_(processor) {
    if (processor.device == nullptr) return;
    stream_ = processor.device->make_stream(StreamPriority::usual);
    copied_ = processor.device->make_event();
  }

  void copy(const std::vector<std::pair<Vector, Vector>>& from_and_to) const {
    Accelerator* const device = processor_.device;
    if (device != nullptr) device->use(stream_);
    for (const auto& [from, to] : from_and_to) processor_.kernels.copy(as_row(from), as_row(to));
    if (device == nullptr) return processor_.kernels.synchronize();
    device->record(copied_, stream_);
    while (!device->is_over(copied_)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  static Matrix as_row(const Vector& all) { return Matrix::dense(all.data, 1, all.size); }

  const Processor& processor_;
  StreamId stream_;
  EventId copied_;
};

// Returns all that a step leaves in this rank's memory for the next one: what operations read of the iteration before,
// be it weights, moments, factors of curvature or errors of compression. Plans of one model, cluster and layout have
// the same values in the same order, wherever they place them. Contents are bits here, whatever their type: places are
// aligned, so counting on to whole words touches nothing else.
std::vector<Vector> state_between_steps(const RankView& view) {
  constexpr std::int64_t kWord = sizeof(float);
  static_assert(kAlignment % kWord == 0);
  std::set<ValueId> values;
  for (const Operation& op : view.original().operations) {
    if (op.rank_class != view.rank_class()) continue;
    for (const Read& read : op.reads) {
      if (read.distance > 0) values.insert(read.value);
    }
  }
  std::vector<Vector> state;
  for (const ValueId value : values) {
    const Bytes bytes = view.plan().graph.value(value).bytes();
    state.push_back({{view.data(value).address, ElementType::fp32}, (bytes.value + kWord - 1) / kWord});
  }
  return state;
}

// One rank's part of one plan, ready to run. What it refers to must stay where it is.
class PlanOnRank {
 public:
  PlanOnRank(const WholePlan& given, const LengthsJob& job, Communicator& communicator, const Processor& processor)
      : view_(given, make_id<Rank>(communicator.rank()), processor.device),
        parameters_(view_),
        settings_(job.settings),
        batches_(job.corpus, shape_of(given.plan()), job.settings.seed),
        compute_(view_, parameters_, settings_, batches_, training_),
        transfers_(view_, parameters_),
        // Steps of a plan seldom follow each other, so they are not recorded.
        run_(make_plan_run(view_, communicator, processor, compute_, transfers_, {.graphs = GraphWish::never})),
        state_(state_between_steps(view_)) {
    run_->rehearse(/*validates=*/false);
  }
  PlanOnRank(const PlanOnRank&) = delete;
  PlanOnRank& operator=(const PlanOnRank&) = delete;

  void begin_with_initial_weights() { parameters_.set_initial_weights(settings_.seed); }

  // Its own step has ended everywhere on this rank, so nothing reads or writes what is copied.
  void take_over(const PlanOnRank& other, const HandOver& hand_over) {
    WEFT_CHECK(state_.size() == other.state_.size());
    std::vector<std::pair<Vector, Vector>> copies;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      WEFT_CHECK(state_[i].size == other.state_[i].size);
      if (state_[i].size > 0) copies.emplace_back(other.state_[i], state_[i]);
    }
    hand_over.copy(copies);
  }

  PlanRun& run() { return *run_; }
  double loss_sum(std::int64_t step) const { return training_.loss_sums[step]; }
  double tokens() const {
    const Layout& l = view_.plan().layout;
    return static_cast<double>(l.global_batch * l.seq);
  }

 private:
  RankView view_;
  ParameterStates parameters_;
  TrainSettings settings_;
  RankTraining training_;
  Batches batches_;
  ComputeBinder compute_;
  TransferBinder transfers_;
  std::unique_ptr<PlanRun> run_;
  std::vector<Vector> state_;
};

}  // namespace

std::size_t length_of_step(std::uint64_t seed, std::int64_t step, std::size_t lengths) {
  const auto count = static_cast<std::int64_t>(lengths);
  const std::int64_t round = step / count;
  std::vector<std::size_t> order(lengths);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::uint64_t random = mix_bits(seed + mix_bits(static_cast<std::uint64_t>(round)));
  for (std::size_t left = lengths; left > 1; --left) {
    random = mix_bits(random);
    std::swap(order[left - 1], order[random % left]);
  }
  return order[step % count];
}

LengthsResult train_lengths(const LengthsJob& job, Communicator& communicator, const Processor& processor,
                            const OnLengthStep& on_step) {
  std::optional<Stay> place(std::in_place, communicator.whereabouts(), "preparation for step 1");
  std::vector<std::unique_ptr<PlanOnRank>> plans;
  for (const WholePlan* plan : job.plans) {
    plans.push_back(std::make_unique<PlanOnRank>(*plan, job, communicator, processor));
  }
  LengthsResult result;
  for (std::int64_t step = 0; step < job.settings.steps; ++step) {
    result.chosen.push_back(length_of_step(job.settings.seed, step, plans.size()));
  }
  SharedSum sum(communicator);
  const HandOver hand_over(processor);
  // A device loads a kernel at its first use, for which it may wait for other ranks.
  if (plans.size() > 1) plans.front()->take_over(*plans.back(), hand_over);
  if (!result.chosen.empty()) plans[result.chosen.front()]->begin_with_initial_weights();
  place.reset();
  meet(communicator);
  PlanOnRank* last = nullptr;
  for (std::int64_t step = 0; step < job.settings.steps;) {
    const std::size_t chosen = result.chosen[step];
    std::int64_t end = step;
    while (end < job.settings.steps && result.chosen[end] == chosen) ++end;
    PlanOnRank& now = *plans[chosen];
    const auto begin = std::chrono::steady_clock::now();
    if (last != nullptr && last != &now) now.take_over(*last, hand_over);
    now.run().run(step, end);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double each = took.count() / static_cast<double>(end - step);
    for (; step < end; ++step) {
      result.seconds.push_back(each);
      sum.start(now.loss_sum(step));
      result.losses.push_back(sum.take() / now.tokens());
      if (on_step) on_step(step, chosen, result.losses.back());
    }
    last = &now;
  }
  meet(communicator);  // nobody's memory goes while others may still read it
  return result;
}

}  // namespace weft
