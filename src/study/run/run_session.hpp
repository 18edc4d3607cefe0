// The course of a run on its ranks: measure the machine, plan, train policy after policy.
#pragma once

#include <deque>
#include <mutex>

#include "calibrate/calibrate.hpp"
#include "comm/paced_device/paced_device_world.hpp"
#include "exec/checkpoint/folder_lock.hpp"
#include "exec/train_rank.hpp"
#include "planner/overlap.hpp"
#include "study/run/rank_processor.hpp"
#include "study/run/run_listener.hpp"
#include "study/run/run_options.hpp"
#include "study/run/run_study.hpp"
#include "study/run/tried_plans.hpp"

namespace weft {

enum class RanksAs : std::uint8_t { threads, processes };

// One for each process. Ranks that are threads share it. The listener must outlive it.
class RunSession {
 public:
  RunSession(RunOptions options, RanksAs ranks_as, RunListener& listener);

  // One rank's part; `way` says in words how its messages go. All ranks of the run must take part.
  void run_rank(Communicator& communicator, const std::string& way);
  // The beginning of run_rank: measures links and machine, and plans everything. Returns the plan with the shortest
  // prediction.
  const PolicyStudy& prepare_rank(Communicator& communicator);
  const PolicyStudy& best_prediction() const;
  // What a rank computes with; on GPUs with the collectives that were measured.
  RankProcessor make_processor(Communicator& communicator);
  // Returns the first plan to run that needs more memory than was stated; then nothing runs. Null where all fit. All
  // ranks find the same.
  const PolicyStudy* too_large() const;
  // On the process of rank 0, when all have ended.
  const RunStudy& study() const { return study_; }
  // Whether all steps had been trained before. Then nothing has run, and there is no study.
  bool finished() const { return first_step_ >= options_.settings.steps; }
  std::int64_t first_step() const { return first_step_; }

  // Measures the machine and trains nothing.
  void calibrate_only(Communicator& communicator);
  const Profile& profile() const { return profile_; }

 private:
  bool processes() const { return ranks_as_ == RanksAs::processes; }
  bool is_paced() const { return options_.inputs.cluster.execution == kPacedGpuRanks; }
  bool on_gpus() const { return options_.inputs.cluster.execution.runtime == Runtime::cuda; }
  // Whether trials correct what was measured: plans must use collectives as they were measured.
  bool learns_from_trials() const {
    const bool measured = !options_.profile && options_.native != NativeWish::never;
    return on_gpus() && measured && (is_paced() || (processes() && !options_.links_given));
  }
  bool reports(const Communicator& communicator) const { return communicator.rank() == 0; }
  void find_start(Communicator& communicator);
  std::string start_in_words();
  void take_folder();
  CheckpointJob checkpoint_job(const std::string& policy) const;
  std::string links_in_words(const std::string& way) const;
  void measure_links(Communicator& communicator);
  std::vector<WholePlan> plans_in_parts(const PlanRequest& request, const SharedGraph& graph) const;
  void measure_machine(Communicator& communicator);
  class RankTrials;  // rank_trials.hpp
  std::size_t plans_to_try(const Communicator& communicator) const;
  void try_steps(Communicator& communicator);
  void learn_from_steps(Communicator& communicator);
  std::optional<PolicyStudy> taken_plan(const std::string& searched) const;
  PlanStudy study_policies() const;
  std::vector<TriedStep> tried_steps() const;
  void settle_profile(const Communicator& communicator);
  void plan(const Communicator& communicator);
  void compare_plans(Communicator& communicator) const;
  void apply_native_wish(bool has_library);
  void use_links_of_library();
  void train(Communicator& communicator, std::size_t policy);
  std::vector<double> learning_rates(std::int64_t steps) const;
  void write(const PolicyStudy& predicted, KeptTensors& kept, const TrainResult& result) const;

  RunOptions options_;
  RanksAs ranks_as_;
  RunListener& listener_;
  std::int64_t first_step_ = 0;  // the number of steps trained before
  std::unique_ptr<const CheckpointReader> resume_;
  std::unique_ptr<FolderLock> folder_lock_;  // on rank 0
  std::string run_id_;                       // that checkpoints carry; drawn by rank 0
  std::once_flag started_, planned_for_calibration_, planned_, profiled_;
  struct Prepared;  // what the calibration runs on
  std::shared_ptr<const Prepared> calibration_;
  Profile profile_;
  PacedDeviceWorld paced_world_;  // of ranks on partitions of one GPU
  RunStudy study_;
  std::vector<std::size_t> to_run_;
  std::deque<TriedPlan> tried_;
  std::mutex turns_mutex_;
  std::deque<std::once_flag> turns_;  // of what one of this process's ranks does for all of them (RankTrials)
  std::shared_ptr<StreamCollectives> collectives_;  // of this process, once it has some
  std::vector<std::unique_ptr<KeptTensors>> kept_;  // by policy
};

}  // namespace weft
