// The plans that a run tried for a few steps before it trained, and which of them its search takes then. A prediction
// errs most where it promises most, so what was tried counts for more than what was predicted.
#pragma once

#include <deque>
#include <span>
#include <string>

#include "study/plan/plan_study.hpp"

namespace weft {

struct TriedPlan {
  std::string name;                // whose decisions it carries out, and which of them where there are several
  PlanStudy study = {};            // with this policy alone
  double predicted_s = 0;          // of a step, when it was tried
  std::vector<double> turns = {};  // the median step of each time that it was tried, in seconds
  bool taken = false;

  const PolicyStudy& policy() const { return study.policies.front(); }
  double measured_s() const;  // the mean of its turns
};

// Plans that differ in their policy's name alone have the same.
std::string digest_without_name(const Plan& plan);

// Trials of the same plan differ by about so much; those that lie closer to the fastest are tried once more. On
// processors other programs and other guests of the machine have their share in it.
inline constexpr double kTrialSpreadOnGpus = 0.02, kTrialSpread = 0.2;
// Plans that are predicted to take so much longer than the shortest prediction are not worth a trial.
inline constexpr double kWorthATrial = 0.15;

// Returns the numbers of those worth another turn, the fastest first, at most `most`; none where the fastest is clear.
std::vector<std::size_t> too_close_to_call(const std::deque<TriedPlan>& tried, double spread, std::size_t most);
// Returns the number of the fastest.
std::size_t fastest_of(const std::deque<TriedPlan>& tried);

// Returns the numbers of the plans to try beside those whose digests are known: distinct ones that fit and are
// predicted to come close to the best, the shortest prediction first, at most `most`.
std::vector<std::size_t> worth_a_trial(std::span<const PolicyStudy> predicted, const std::vector<std::string>& known,
                                       double best_s, std::size_t most);

// A profile in which transfers and compute hurt each other twice as much: a search in it hides what pays in any case.
Profile cautious(Profile profile, const Device& device);

}  // namespace weft
