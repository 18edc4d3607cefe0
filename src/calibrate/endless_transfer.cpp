#include "calibrate/endless_transfer.hpp"

#include <chrono>

#include "collective/algorithms.hpp"
#include "collective/lowered.hpp"
#include "collective/piece_sizes.hpp"
#include "cost/program_time.hpp"

namespace weft {
namespace {

constexpr std::int64_t kQueue = 1000;  // a number that no plan uses
constexpr std::chrono::milliseconds kLookForFailure{50};

}  // namespace

EndlessTransfer::EndlessTransfer(Communicator& communicator, std::int64_t elements, std::int64_t parts)
    : communicator_(communicator),
      program_(std::make_shared<const Program>(make_program({.algorithm = Algorithm::ring,
                                                             .kind = Collective::all_reduce,
                                                             .ranks = communicator.size(),
                                                             .parts = parts,
                                                             .in_place = true}))),
      data_(static_cast<std::size_t>(elements), 0.0F) {
  PreparedCall call;
  call.program = program_;
  call.spec = program_->spec;
  call.sizes = even_sizes(call.spec, elements);
  for (std::int64_t rank = 0; rank < communicator.size(); ++rank) call.members.push_back(rank);
  call.queue = kQueue;
  call.label = "beside compute";
  call.on_done = [this](Clock::time_point, Clock::time_point ended) {
    last_ended_ = ended;
    if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return next();
    const std::lock_guard lock(mutex_);
    ended_.notify_all();
  };
  call_ = &communicator.prepare(std::move(call));
}

void EndlessTransfer::next() {
  const std::lock_guard lock(mutex_);
  handle_ = communicator_.start(*call_, nullptr, data_.data());
}

void EndlessTransfer::start(std::int64_t rounds) {
  left_ = rounds;
  began_ = Clock::now();
  next();
}

double EndlessTransfer::wait() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kLookForFailure, [&] { return over(); })) {
    communicator_.done(handle_);  // throws where the run has failed
  }
  return std::chrono::duration<double>(last_ended_ - began_).count();
}

double EndlessTransfer::seconds_of_one(int rounds) {
  start(1);
  wait();
  start(rounds);
  return wait() / rounds;
}

double EndlessTransfer::seconds_of_one_waited_for(int rounds) {
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    start(1);
    wait();
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() / rounds;
}

Nanos EndlessTransfer::predicted(const Cluster& cluster) const {
  const std::vector<LoweredRank> lowered = lower(*program_, run_symbolically(*program_),
                                                 even_sizes(program_->spec, std::ssize(data_)), Bytes{sizeof(float)});
  std::vector<Rank> members;
  for (std::int64_t rank = 0; rank < communicator_.size(); ++rank) members.push_back(make_id<Rank>(rank));
  return program_time(lowered, cluster, members);
}

}  // namespace weft
