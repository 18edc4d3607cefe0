#include "sim/steady_state.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int32_t kCompared = 4;  // periods of up to four iterations are recognised
constexpr std::int32_t kMostOverlap = 8;

}  // namespace

bool SteadyState::alike(std::int32_t a, std::int32_t b) const {
  const Seen &x = seen_[static_cast<std::size_t>(a)], &y = seen_[static_cast<std::size_t>(b)];
  return x.starts == y.starts && x.lengths == y.lengths;
}

std::int64_t SteadyState::elapsed(std::int32_t from, std::int32_t to) const {
  return seen_[static_cast<std::size_t>(to)].first - seen_[static_cast<std::size_t>(from)].first;
}

void SteadyState::look_for_repetition(std::int32_t k) {
  for (std::int32_t i = k - 1; i >= std::max(0, k - kCompared); --i) {
    if (!alike(i, k)) continue;
    every_ = k - i;
    // Of the iterations that run at a given instant, all must be ones that repeat: go on until the oldest is.
    const std::int64_t length = seen_[static_cast<std::size_t>(k)].length, period = elapsed(i, k) / every_;
    const std::int64_t overlap = period > 0 ? (length - 1) / period : 0;
    enough_ = k + static_cast<std::int32_t>(std::clamp<std::int64_t>(overlap, 1, kMostOverlap));
    return;
  }
}

bool SteadyState::completed(std::int32_t k, const std::vector<SimTimes>& times, std::int32_t max_iterations) {
  // Iterations complete in order: each operation follows its own previous execution through its queue.
  WEFT_CHECK(k == static_cast<std::int32_t>(seen_.size()));
  Seen now;
  now.first = INT64_MAX;
  for (const SimTimes& t : times) now.first = std::min(now.first, t.start.value);
  for (const SimTimes& t : times) {
    now.starts.push_back(t.start.value - now.first);
    now.lengths.push_back((t.end - t.start).value);
    now.length = std::max(now.length, t.end.value - now.first);
  }
  seen_.push_back(std::move(now));
  // Transfers that share links may start alike once and still not go on alike: what they left behind differed.
  const bool goes_on = every_ > 0 && alike(k - every_, k) && elapsed(k - every_, k) == elapsed(k - every_ - 1, k - 1);
  if (!goes_on) {
    every_ = 0;
    look_for_repetition(k);
  }
  if (k >= kCompared) {
    Seen& old = seen_[static_cast<std::size_t>(k - kCompared)];
    old.starts = old.lengths = {};
  }
  if (every_ > 0 && k >= enough_) return true;
  const std::int32_t most = std::max(8, max_iterations);
  if (k < most || (every_ > 0 && k < most + kMostOverlap)) return false;
  every_ = 0;
  return true;
}

SimResult SteadyState::result(std::vector<std::vector<SimTimes>> iterations) const {
  SimResult result;
  result.iterations = std::move(iterations);
  result.repeats = every_ > 0;
  const auto last = static_cast<std::int32_t>(result.iterations.size()) - 1;
  result.periods = result.repeats ? every_ : last / 2;
  result.steady_first = last - result.periods;
  const auto first = static_cast<std::size_t>(result.steady_first), end = static_cast<std::size_t>(last);
  result.steady_begin = Nanos{seen_[first].first};
  // Where ranks drift apart, the step takes as long as the slowest of them.
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < result.iterations[first].size(); ++i) {
    longest = std::max(longest, (result.iterations[end][i].start - result.iterations[first][i].start).value);
  }
  result.period_ns = static_cast<double>(longest) / static_cast<double>(result.periods);
  return result;
}

}  // namespace weft
