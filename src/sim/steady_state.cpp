#include "sim/steady_state.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int32_t kCompared = 4;  // periods of up to four iterations are recognised
constexpr std::int32_t kMaxOverlap = 8;

}  // namespace

bool SteadyState::alike(std::int32_t a, std::int32_t b) const {
  const Seen &x = seen_[a], &y = seen_[b];
  return x.starts == y.starts && x.lengths == y.lengths && x.slowed == y.slowed;
}

std::int64_t SteadyState::elapsed(std::int32_t from, std::int32_t to) const {
  return seen_[to].first - seen_[from].first;
}

void SteadyState::look_for_repetition(std::int32_t k) {
  for (std::int32_t i = k - 1; i >= std::max(0, k - kCompared); --i) {
    if (!alike(i, k)) continue;
    every_ = k - i;
    // Of the iterations that run at a given instant, all must be ones that repeat: go on until the oldest is.
    const std::int64_t length = seen_[k].length, period = elapsed(i, k) / every_;
    const std::int64_t overlap = period > 0 ? (length - 1) / period : 0;
    enough_ = k + static_cast<std::int32_t>(std::clamp<std::int64_t>(overlap, 1, kMaxOverlap));
    return;
  }
}

bool SteadyState::completed(std::int32_t k, const FoldedIteration& times, std::int32_t max_iterations) {
  // Iterations complete in order: each operation follows its own previous execution through its queue.
  WEFT_CHECK(k == static_cast<std::int32_t>(seen_.size()));
  Seen now;
  now.first = INT64_MAX;
  for (const Nanos start : times.start) now.first = std::min(now.first, start.value);
  for (std::size_t n = 0; n < times.start.size(); ++n) {
    now.starts.push_back(times.start[n].value - now.first);
    now.lengths.push_back((times.end[n] - times.start[n]).value);
    now.length = std::max(now.length, times.end[n].value - now.first);
  }
  now.slowed = times.slowed;
  seen_.push_back(std::move(now));
  // Transfers that share links may start alike once and still not go on alike: what they left behind differed.
  const bool goes_on = every_ > 0 && alike(k - every_, k) && elapsed(k - every_, k) == elapsed(k - every_ - 1, k - 1);
  if (!goes_on) {
    every_ = 0;
    look_for_repetition(k);
  }
  if (k >= kCompared) {
    Seen& old = seen_[k - kCompared];
    old.starts = old.lengths = {};
    old.slowed = {};
  }
  if (every_ > 0 && k >= enough_) return true;
  const std::int32_t most = std::max(8, max_iterations);
  if (k < most || (every_ > 0 && k < most + kMaxOverlap)) return false;
  every_ = 0;
  return true;
}

// Returns the most by which an operation of `to` starts after the same of `from`. Within a fold that changes only after
// an operation that was slowed.
Nanos SteadyState::longest_shift(const FoldedIteration& from, const FoldedIteration& to) const {
  Nanos longest;
  auto a = from.slowed.begin(), b = to.slowed.begin();
  for (std::size_t n = 0; n < folding_.nodes.size(); ++n) {
    const FoldedNode& node = folding_.nodes[n];
    Nanos shift = to.start[n] - from.start[n];
    longest = std::max(longest, shift);
    const auto in_node = [&](auto slowed, const auto& list) {
      return slowed != list.end() && slowed->node == static_cast<std::int32_t>(n);
    };
    while (in_node(a, from.slowed) || in_node(b, to.slowed)) {
      const std::int32_t next_a = in_node(a, from.slowed) ? a->offset : node.count;
      const std::int32_t next_b = in_node(b, to.slowed) ? b->offset : node.count;
      const std::int32_t offset = std::min(next_a, next_b);
      const std::size_t operation = node.first + offset;
      const Nanos alone{folding_.alone_before[operation + 1] - folding_.alone_before[operation]};
      if (next_b == offset) shift += (b++)->length - alone;
      if (next_a == offset) shift -= (a++)->length - alone;
      if (offset + 1 < node.count) longest = std::max(longest, shift);
    }
  }
  return longest;
}

FoldedResult SteadyState::result(std::vector<FoldedIteration> iterations) const {
  FoldedResult result;
  result.iterations = std::move(iterations);
  result.repeats = every_ > 0;
  const auto last = static_cast<std::int32_t>(result.iterations.size()) - 1;
  result.periods = result.repeats ? every_ : last / 2;
  result.steady_first = last - result.periods;
  const auto first = static_cast<std::size_t>(result.steady_first), end = static_cast<std::size_t>(last);
  result.steady_begin = Nanos{seen_[first].first};
  // Where ranks drift apart, the step takes as long as the slowest of them.
  const Nanos longest = longest_shift(result.iterations[first], result.iterations[end]);
  result.period_ns = static_cast<double>(longest.value) / static_cast<double>(result.periods);
  return result;
}

}  // namespace weft
