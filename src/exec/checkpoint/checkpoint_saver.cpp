#include "exec/checkpoint/checkpoint_saver.hpp"

#include "base/error.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kMoment{100};

template <class Task>
std::string trouble_of(const Task& task) {
  try {
    task();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

CheckpointSaver::CheckpointSaver(const CheckpointJob& job, ShardWriter shard, std::int64_t items,
                                 const Communicator& ranks)
    : job_(job), rank_(ranks.rank()), ranks_(ranks.size()), shard_(std::move(shard)), items_(items) {}

void CheckpointSaver::updated(std::int64_t step, std::size_t item) {
  if (!is_due(step)) return;
  if (copied_ == 0) thread_.wait();  // where every step is saved, the copies of the last may still be written
  shard_.copy(item);
  if (++copied_ < items_) return;
  copied_ = 0;
  thread_.start([this, step] { write_shard(step); });
}

void CheckpointSaver::write_shard(std::int64_t step) {
  std::string trouble = trouble_of([&] { shard_.write(partial_folder(job_.folder, step + 1, job_.run_id), step + 1); });
  const std::lock_guard lock(mutex_);
  shards_.push_back({step, std::move(trouble)});
}

void CheckpointSaver::commit(std::int64_t step) {
  std::int64_t bytes = 0;
  std::string trouble = trouble_of([&] {
    if (job_.keep_folder) job_.keep_folder();
    bytes = put_together(job_.folder, {step + 1, job_.run, ranks_, job_.keep, job_.run_id});
  });
  const std::lock_guard lock(mutex_);
  commit_ = {step, std::move(trouble)};
  committed_bytes_ = bytes;
}

void CheckpointSaver::step_ended(std::int64_t step) {
  if (is_due(step)) {
    open_.push_back(step);
    if (items_ == 0) thread_.start([this, step] { write_shard(step); });  // no update will
  }
  summary_.busy_steps.push_back(is_open());
}

// The mutex is held.
const CheckpointSaver::Outcome* CheckpointSaver::own_outcome() const {
  if (open_.empty()) return nullptr;
  if (committing_) return commit_ ? &*commit_ : nullptr;
  return shards_.empty() ? nullptr : &shards_.front();
}

SharedSum::Counts CheckpointSaver::own_word() {
  SharedSum::Counts word{};
  word[kStop] = job_.asked_to_stop && job_.asked_to_stop() ? 1 : 0;
  const std::lock_guard lock(mutex_);
  if (const Outcome* outcome = own_outcome()) word[outcome->trouble.empty() ? kDone : kFailed] = 1;
  return word;
}

void CheckpointSaver::decide(const SharedSum::Counts& all) {
  if (open_.empty() || all[kDone] + all[kFailed] < (committing_ ? 1 : ranks_)) return;
  if (all[kFailed] > 0) return end_failed();
  const std::int64_t step = open_.front();
  if (!committing_) {
    committing_ = true;
    if (rank_ == 0) thread_.start([this, step] { commit(step); });
    return;
  }
  const std::lock_guard lock(mutex_);
  ++summary_.saved;
  summary_.last_step = step + 1;
  summary_.bytes = committed_bytes_;
  open_.pop_front();
  shards_.pop_front();
  commit_.reset();
  committing_ = false;
}

// Nobody writes to its folder any more. Who ends the run clears it away himself: rank 0 may learn of the end first.
void CheckpointSaver::end_failed() {
  std::string trouble;
  const std::int64_t step = open_.front();
  {
    const std::lock_guard lock(mutex_);
    if (const Outcome* outcome = own_outcome()) trouble = outcome->trouble;
    open_.pop_front();
    shards_.pop_front();
    commit_.reset();
    committing_ = false;
  }
  ++summary_.failed;
  if (rank_ == 0 || !trouble.empty()) remove_partial(job_.folder, step + 1, job_.run_id);
  if (trouble.empty()) return;
  const std::string words =
      fmt::format("rank {}: the checkpoint of step {} was not saved: {}", rank_, step + 1, trouble);
  if (job_.stop_on_error) throw RunFailed(words);
  if (job_.say) job_.say(words);
}

void CheckpointSaver::wait_a_moment() {
  thread_.wait_at_most(kMoment);
}

}  // namespace weft
