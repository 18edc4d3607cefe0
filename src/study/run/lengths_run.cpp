#include "study/run/lengths_run.hpp"

#include <algorithm>

namespace weft {

double LengthStudy::median_s() const {
  std::vector<double> sorted = measured_s;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

LengthsRun::LengthsRun(const std::vector<std::int64_t>& lengths, const RunOptions& options, RanksAs ranks_as,
                       OnLengthLoss on_loss)
    : options_(options), on_loss_(std::move(on_loss)) {
  for (const std::int64_t length : lengths) {
    RunOptions own = options;
    own.inputs.layout.seq = length;
    own.only_best = true;
    own.calibration_budget = options.calibration_budget / static_cast<std::int64_t>(lengths.size());
    sessions_.push_back(std::make_unique<RunSession>(own, ranks_as, silent_));
  }
}

const PolicyStudy* LengthsRun::too_large() const {
  for (const auto& session : sessions_) {
    if (const PolicyStudy* const study = session->too_large()) return study;
  }
  return nullptr;
}

void LengthsRun::run_rank(Communicator& communicator) {
  LengthsJob job{{}, options_.settings, options_.corpus};
  for (const auto& session : sessions_) {
    job.plans.push_back(session->prepare_rank(communicator).whole.get());
    if (session->too_large() != nullptr) return;
  }
  const bool reports = communicator.rank() == 0;
  OnLengthStep on_step;
  if (reports && on_loss_) {
    on_step = [&](std::int64_t step, std::size_t chosen, double loss) {
      on_loss_(step + 1, job.plans[chosen]->plan().layout.seq, loss);
    };
  }
  const RankProcessor own = sessions_.front()->make_processor(communicator);
  LengthsResult result = train_lengths(job, communicator, own.get(), on_step);
  if (reports) result_ = std::move(result);
}

std::vector<LengthStudy> LengthsRun::studies() const {
  std::vector<LengthStudy> studies;
  for (const auto& session : sessions_) {
    const PolicyStudy& chosen = session->best_prediction();
    const Layout& layout = chosen.plan().layout;
    studies.push_back({layout.seq,
                       chosen.policy,
                       chosen.step_s,
                       session->study().plan.bound_s,
                       static_cast<double>(layout.global_batch * layout.seq),
                       {}});
  }
  for (std::size_t step = options_.warm_up; step < result_.chosen.size(); ++step) {
    studies[result_.chosen[step]].measured_s.push_back(result_.seconds[step]);
  }
  return studies;
}

}  // namespace weft
