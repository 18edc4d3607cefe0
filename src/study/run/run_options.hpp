// What is trained, on what, and what is measured and kept of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "cost/profile.hpp"
#include "exec/checkpoint/manifest.hpp"
#include "exec/data/batches.hpp"
#include "exec/train_rank.hpp"
#include "plan/whole_plan.hpp"
#include "study/inputs.hpp"

namespace weft {

struct CheckpointOptions {
  std::filesystem::path folder;
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 2;
  bool resume = false;
  bool stop_on_error = true;
  std::string identity;                   // of this training, by which its checkpoints are known
  std::function<bool()> stop_asked = {};  // whether the run shall save and end now; empty: never
};

// Whether plans may use the collectives of the library below (`native`): where they are predicted to be faster, ...
enum class NativeWish : std::uint8_t { automatic, never, always };

struct ValidationOptions {
  ValidationJob job;
  std::optional<std::string> data;  // the file of its corpus; none: the end of the training's
  double share = 0;                 // of it, then
};

struct RunOptions {
  Inputs inputs;
  std::vector<std::shared_ptr<const WholePlan>> plans;  // read from files; empty: made by `policies`
  std::vector<std::string> policies;                    // to predict
  bool only_best = false;                               // run the one with the shortest prediction
  TrainSettings settings;
  std::int64_t warm_up = 2;
  std::shared_ptr<const Corpus> corpus;
  std::optional<std::string> data;  // the file of the corpus; none: it is generated
  std::optional<ValidationOptions> validation;
  std::optional<Profile> profile;  // as given; otherwise measured
  std::string profile_name;
  std::chrono::nanoseconds calibration_budget = std::chrono::seconds(20);
  int threads = 0;                    // inside a kernel
  int gpu = 0;                        // which of this machine's, where it computes
  std::optional<std::string> record;  // the folder of what an oracle needs (docs/oracle.md)
  std::optional<CheckpointOptions> checkpoint;
  NativeWish native = NativeWish::automatic;
  bool links_given = false;                 // --cluster says what the links are
  bool memory_given = false;                // --memory or --cluster says what a device has: a run keeps within it
  std::vector<std::int64_t> lengths = {};   // of sequences, where there are several (lengths_run.hpp)
  GraphWish graphs = GraphWish::automatic;  // on GPUs
  // How many plans a run tries for a few steps before it trains, at most; none: as many as pay (RunSession).
  std::optional<std::int64_t> trials = {};
};

// This machine as `options` use it.
MachineFacts facts_of(const RunOptions& options, std::int64_t ranks);

}  // namespace weft
