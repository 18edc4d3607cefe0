// What `weft run` does on its ranks: measure the machine, plan, train policy after policy.
#pragma once

#include <functional>
#include <mutex>
#include <ostream>

#include "app/run_options.hpp"
#include "app/run_study.hpp"
#include "base/machine.hpp"
#include "calibrate/calibrate.hpp"
#include "exec/train_rank.hpp"

namespace weft {

// One for each process. Ranks that are threads share it.
class RunSession {
 public:
  // `progress`: where lines about the run go, or null.
  RunSession(RunOptions options, Launch launch, std::ostream* progress);

  // One rank's part. All ranks of the run must take part.
  void run_rank(Communicator& communicator, const std::string& way);
  // On the process of rank 0, when all have ended.
  const RunStudy& study() const { return study_; }

  // The machine alone is measured, nothing is trained.
  void calibrate_only(Communicator& communicator);
  const Profile& profile() const { return profile_; }

 private:
  bool processes() const { return launch_.kind != LaunchKind::local; }
  bool reports(const Communicator& communicator) const { return communicator.rank() == 0; }
  void measure_links(Communicator& communicator);
  void measure_machine(Communicator& communicator);
  MachineFacts facts(std::int64_t ranks) const;
  void plan();
  void train(Communicator& communicator, std::size_t policy);
  void write(const PolicyStudy& predicted, KeptTensors& kept, const TrainResult& result) const;
  void show(std::int64_t step, double loss, const std::string& policy);

  RunOptions options_;
  Launch launch_;
  std::ostream* progress_;
  std::once_flag planned_for_calibration_, planned_, profiled_, linked_;
  struct Prepared;  // what the calibration runs on
  std::shared_ptr<const Prepared> calibration_;
  Profile profile_;
  RunStudy study_;
  std::vector<std::size_t> to_run_;
  std::vector<std::unique_ptr<KeptTensors>> kept_;  // by policy
  std::chrono::steady_clock::time_point last_shown_;
};

}  // namespace weft
