// Saves a rank's state while it trains, in step with the other ranks and without a barrier.
//
// A parameter and its moments are of one step from the end of its update to its next update; so each is copied by the
// update itself, whatever order the policy gives them, and a factor of K-FAC's curvature by its inversion, which may
// run while the next step computes. A thread writes the copies. What came of it goes into the sum that ranks make of
// their losses at the end of every step and read a step later: so all know at the same step that all shards are there
// (or that one is not), and rank 0 puts the checkpoint together.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "exec/checkpoint/background_task.hpp"
#include "exec/checkpoint/shard_writer.hpp"
#include "exec/rank_exchange.hpp"

namespace weft {

struct CheckpointJob {
  std::filesystem::path folder;
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 2;
  bool stop_on_error = true;
  std::string run;  // of the manifest
  // Whether somebody has asked this process to end. May be null.
  std::function<bool()> asked_to_stop = {};
  // Told of saves that failed where the run goes on. May be null.
  std::function<void(const std::string&)> say = {};
  std::string run_id = {};  // run_id.hpp; the same on all ranks
  // Called by rank 0 before it adds a checkpoint; throws Error where the folder is another run's. May be null.
  std::function<void()> keep_folder = {};
};

// The same on all ranks.
struct SaveSummary {
  std::int64_t saved = 0, failed = 0;
  std::int64_t bytes = 0;        // of the last one, all ranks; known to rank 0
  std::int64_t last_step = 0;    // that was saved, from 1
  std::int64_t waits = 0;        // times that the run stood still until the last save was on disk
  std::vector<bool> busy_steps;  // from the first step of the run: something was copied or written
};

// All but its thread's work is for the worker of the rank. Steps count from 0, as those of RankRun.
class CheckpointSaver {
 public:
  CheckpointSaver(const CheckpointJob& job, ShardWriter shard, std::int64_t items, const Communicator& ranks);

  void set_last_step(std::int64_t step) { last_ = step; }
  bool is_due(std::int64_t step) const { return step == last_ || (job_.every > 0 && (step + 1) % job_.every == 0); }
  // Called for every item of the shard when it is of this step. No item of a step that is due may be of the next one
  // before all of them have been copied.
  void updated(std::int64_t step, std::size_t item);

  // What follows all ranks do alike, in this order: step_ended() when a step's compute has ended, then own_word() into
  // a sum whose result goes to decide() of all.
  void step_ended(std::int64_t step);
  SharedSum::Counts own_word();
  // Throws RunFailed on a rank whose shard could not be written, where that ends the run.
  void decide(const SharedSum::Counts& all);
  static bool says_stop(const SharedSum::Counts& all) { return all[kStop] > 0; }

  // Whether a save of a step before this one is not yet on disk. Its copies are complete when this step has ended.
  bool is_open_before(std::int64_t step) const { return !open_.empty() && open_.front() < step; }
  bool is_open() const { return !open_.empty(); }
  void count_wait() { ++summary_.waits; }
  // For the own thread, but not so long that other ranks would think that this one is lost.
  void wait_a_moment();
  const SaveSummary& summary() const { return summary_; }

 private:
  enum Word : std::size_t { kDone, kFailed, kStop };
  struct Outcome {
    std::int64_t step = 0;
    std::string trouble;  // "": it is on disk
  };
  void write_shard(std::int64_t step);
  void commit(std::int64_t step);
  void end_failed();
  const Outcome* own_outcome() const;  // of the first open save's current part; null: not known yet

  const CheckpointJob job_;
  const std::int64_t rank_, ranks_;
  ShardWriter shard_;
  const std::int64_t items_;
  std::int64_t last_ = -1;
  std::int64_t copied_ = 0;        // items of the save that is being copied
  std::deque<std::int64_t> open_;  // steps whose saves are not decided
  bool committing_ = false;        // all shards of the first of them are there
  SaveSummary summary_;

  mutable std::mutex mutex_;       // guards what follows
  std::deque<Outcome> shards_;     // of open saves, in order
  std::optional<Outcome> commit_;  // rank 0
  std::int64_t committed_bytes_ = 0;
  BackgroundTask thread_;  // last: it uses the others
};

}  // namespace weft
