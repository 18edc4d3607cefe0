#include "comm/call_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "comm/paced_links.hpp"

namespace weft {
namespace {

// A transport knows ranks and bytes, but not the operation that they belong to; this adds it to the message.
template <class Work>
auto named(const Trouble& trouble, const Communicator::Prepared& call, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const RunFailed& failure) {
    throw RunFailed(fmt::format("{}: {}", trouble.at(call.in_words()), failure.what()));
  }
}

}  // namespace

void CallQueue::append(Prepared& call) {
  call.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &call;
  last_ = &call;
}

bool CallQueue::advance() {
  if (active_ == nullptr) {
    if (first_ == nullptr) return false;
    active_ = std::exchange(first_, first_->next);
    active_->began = time_on(paced_);
    last_progress_ = Clock::now();
    begin();
    return true;
  }
  const bool moved = advance_active();
  if (moved) {
    last_progress_ = Clock::now();
  } else {
    look_for_trouble();
  }
  return moved;
}

bool CallQueue::advance_active() {
  if (!checking_) {
    const bool moved = named(shared_.trouble, *active_, [&] { return active_->advance(); });
    if (!active_->is_over()) return moved;
    if (active_->native != nullptr) shared_.library_idle.happened(Clock::now());
    ended_ = std::exchange(active_, nullptr);
    return true;
  }
  CallCheck& check = *active_->check;
  const bool moved = named(shared_.trouble, *active_, [&] { return check.advance(); });
  if (!check.done()) return moved;
  if (const auto words = check.mismatch()) {
    throw RunFailed(shared_.trouble.at(fmt::format("queue {}: {}", active_->call.queue, *words)));
  }
  checking_ = false;
  run();
  return true;
}

void CallQueue::begin() {
  active_->note.turn = ++*active_->turns;
  checking_ = shared_.check;
  if (!checking_) return run();
  named(shared_.trouble, *active_, [&] { active_->check->start(active_->note); });
}

void CallQueue::run() {
  std::optional<InLibrary> inside;
  if (active_->native != nullptr && active_->native->blocks()) inside.emplace(shared_.in_library, *active_);
  named(shared_.trouble, *active_, [&] { active_->start(); });
}

void CallQueue::look_for_trouble() {
  const Clock::time_point now = Clock::now();
  if (now - std::max(last_progress_, last_look_) < kWatchPeriod) return;
  last_look_ = now;
  // Moving bytes count as progress, but a rank may be lost all the same.
  const std::uint64_t moved = shared_.transport.moved();
  if (std::exchange(moved_, moved) != moved) last_progress_ = now;
  if (active_->native != nullptr && !checking_) {
    if (const auto words = shared_.trouble.of_library(active_->in_words())) throw RunFailed(*words);
    return;
  }
  const std::string awaited =
      checking_ ? fmt::format("what rank {} calls", active_->check->waits_for_rank()) : active_->awaited();
  if (const auto words = shared_.trouble.of_waiting(active_->in_words(), awaited, now - last_progress_)) {
    throw RunFailed(*words);
  }
}

}  // namespace weft
