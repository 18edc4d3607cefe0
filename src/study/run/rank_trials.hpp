// The part of one rank in the trials of a run. Before a run trains, it tries a few steps: of the serial plan, of what
// its search chooses, and of the best plans of other policies. The search then takes the plan that was fastest. Between
// GPUs the run also takes over what these steps say of transfers. Nothing of what they train is kept. Plans are those
// of the run's own inputs, on the connections that the run will use.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "calibrate/trial_overlap.hpp"
#include "exec/rank_exchange.hpp"
#include "study/run/run_session.hpp"

namespace weft {

// Steps of a trial on processors, and those of them that do not count.
inline constexpr std::int64_t kStepsOfTrial = 6, kWarmUpOfTrial = 2;
inline constexpr std::size_t kMostLessons = 2;  // from plans that a search chose

class RunSession::RankTrials {
 public:
  // `most`: plans to try.
  RankTrials(RunSession& session, Communicator& communicator, std::size_t most);

  // The serial step and what the search chooses. Where the session learns from trials, they correct what was measured.
  void learn();
  // Other plans beside those; the search takes the fastest of all.
  void decide();

 private:
  std::size_t tried() const { return session_.tried_.size(); }
  bool is_first() const { return session_.reports(communicator_); }

  // One of this process's ranks does it, the others wait until it is done. Only in such work does anything change that
  // ranks share, and it begins when all ranks have come to it, so none of them still reads what was before.
  template <class Work>
  void once(const Work& work) {
    meet(communicator_);
    std::once_flag* flag = nullptr;
    {
      const std::lock_guard lock(session_.turns_mutex_);
      while (session_.turns_.size() <= turn_) session_.turns_.emplace_back();
      flag = &session_.turns_[turn_++];
    }
    std::call_once(*flag, work);
  }

  // Adds the plan that a policy makes under a profile. Returns whether it is one to try, the same on all ranks.
  bool add_plan(const std::string& policy, const std::string& name, const Profile& profile);
  void add(const std::string& name, PlanStudy study);
  bool may_run(const TriedPlan& plan) const;
  bool is_known(const TriedPlan& plan) const;
  // Trains a few steps. Returns on rank 0 what was measured, elsewhere nothing.
  std::optional<PolicyRun> try_plan(std::size_t number);
  void keep_turn(std::size_t number, double measured_s);

  void try_serial_step(bool learns);
  void try_searched(bool learns);
  void try_others();
  void add_others(std::size_t most);
  void try_cautious();
  void try_close_ones_again();

  bool learn_overlap(std::size_t number);
  void learn_from_all();
  OverlapFacts fit_of_all() const;
  OverlapFacts facts_known() const;
  Profile with_facts(Profile profile, const OverlapFacts& facts) const;
  void take_over(const OverlapFacts& facts);
  double step_of(const WholePlan& whole, const Profile& profile) const;

  RunSession& session_;
  Communicator& communicator_;
  const std::size_t most_;
  const RunOptions& options_;
  std::optional<std::string> searched_;  // the policy that searches, where plans are not given
  OverlapFacts alone_;                   // what was measured of transfers by themselves
  bool has_searched_ = false;
  std::size_t turn_ = 0;
};

}  // namespace weft
