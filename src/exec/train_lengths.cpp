#include "exec/train_lengths.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/initial_weights.hpp"
#include "exec/rank_exchange.hpp"
#include "exec/rank_run.hpp"

namespace weft {
namespace {

BatchShape shape_of(const Plan& plan) {
  const Layout& l = plan.layout;
  return {l.global_batch, l.micro_batch, l.seq, l.dp, plan.model.vocab};
}

// One rank's part of one plan, ready to run. What it refers to must stay where it is.
class PlanOnRank {
 public:
  PlanOnRank(const WholePlan& given, const LengthsJob& job, Communicator& communicator, Kernels& kernels)
      : view_(given, make_id<Rank>(communicator.rank())),
        parameters_(view_),
        settings_(job.settings),
        batches_(job.corpus, shape_of(given.plan()), job.settings.seed),
        compute_(view_, parameters_, settings_, batches_, training_),
        transfers_(view_, parameters_),
        run_(view_, communicator, kernels, compute_, transfers_) {}
  PlanOnRank(const PlanOnRank&) = delete;
  PlanOnRank& operator=(const PlanOnRank&) = delete;

  void begin_with_initial_weights() {
    for (const ParameterState& p : parameters_.all()) {
      initial_weights(p.tensors, settings_.seed, kept(p).begin, weights(p));
    }
  }

  // Its own step has ended everywhere on this rank, so nothing reads or writes what is copied.
  void take_over(const PlanOnRank& other) {
    const std::vector<TensorKind> kinds = kinds_of(settings_);
    for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
      const ParameterState &own = parameters_.all()[i], &from = other.parameters_.all()[i];
      std::ranges::copy(other.weights(from), weights(own).begin());
      for (const TensorKind kind : kinds) {
        if (kind == TensorKind::weight) continue;
        const Vector to = parameters_.own_moment(own, static_cast<int>(kind) - 1);
        const Vector source = other.parameters_.own_moment(from, static_cast<int>(kind) - 1);
        std::memcpy(to.data.address, source.data.address, to.bytes().value);
      }
    }
  }

  RankRun& run() { return run_; }
  double loss_sum(std::int64_t step) const { return training_.loss_sums[step]; }
  double tokens() const {
    const Layout& l = view_.plan().layout;
    return static_cast<double>(l.global_batch * l.seq);
  }

 private:
  // ZeRO-3 keeps a shard of the weights; everybody else the whole.
  ElementRange kept(const ParameterState& p) const {
    return parameters_.holds_whole(p, p.weight) ? ElementRange{0, p.elements} : parameters_.own(p);
  }
  std::span<float> weights(const ParameterState& p) const { return floats_of({view_.data(p.weight), kept(p).size()}); }

  RankView view_;
  ParameterStates parameters_;
  TrainSettings settings_;
  RankTraining training_;
  Batches batches_;
  ComputeBinder compute_;
  TransferBinder transfers_;
  RankRun run_;
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

LengthsResult train_lengths(const LengthsJob& job, Communicator& communicator, Kernels& kernels,
                            const OnLengthStep& on_step) {
  std::optional<Stay> place(std::in_place, communicator.whereabouts(), "preparation for step 1");
  std::vector<std::unique_ptr<PlanOnRank>> plans;
  for (const WholePlan* plan : job.plans) {
    plans.push_back(std::make_unique<PlanOnRank>(*plan, job, communicator, kernels));
  }
  LengthsResult result;
  for (std::int64_t step = 0; step < job.settings.steps; ++step) {
    result.chosen.push_back(length_of_step(job.settings.seed, step, plans.size()));
  }
  SharedSum sum(communicator);
  place.reset();
  meet(communicator);
  PlanOnRank* last = nullptr;
  for (std::int64_t step = 0; step < job.settings.steps;) {
    const std::size_t chosen = result.chosen[step];
    std::int64_t end = step;
    while (end < job.settings.steps && result.chosen[end] == chosen) ++end;
    PlanOnRank& now = *plans[chosen];
    const auto begin = std::chrono::steady_clock::now();
    if (last == nullptr) now.begin_with_initial_weights();
    if (last != nullptr && last != &now) now.take_over(*last);
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
