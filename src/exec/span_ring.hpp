// The spans of a run's last steps: as many as an account of it needs, so that memory does not grow with its length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/rank_span.hpp"

namespace weft {

class SpanRing {
 public:
  // Of one rank; rank 0 gathers those of all. 131 steps of a thousand operations; more would not change a mean.
  static constexpr std::size_t kMaxSpans = std::size_t{1} << 17;
  // Steps overlap: those that run, the one before that is looked at, one that counts and its neighbours.
  static constexpr std::int64_t kMinSteps = 8;

  // How many of so many steps are kept, of so many operations each.
  static std::int64_t steps_kept(std::int64_t steps, std::size_t instances) {
    const auto room = static_cast<std::int64_t>(kMaxSpans / std::max<std::size_t>(instances, 1));
    return std::min(steps, std::max(room, kMinSteps));
  }

  SpanRing() = default;
  SpanRing(std::int64_t kept, std::size_t instances)
      : kept_(kept), instances_(instances), spans_(static_cast<std::size_t>(kept) * instances) {}

  RankSpan& at(std::int64_t step, std::size_t instance) { return spans_[row(step) + instance]; }
  std::span<const RankSpan> of_step(std::int64_t step) const { return {spans_.data() + row(step), instances_}; }
  // Before its first operation: the place may hold an older step.
  void clear(std::int64_t step) {
    std::fill_n(spans_.begin() + static_cast<std::ptrdiff_t>(row(step)), instances_, RankSpan{});
  }
  // Those kept of so many that have run, the oldest first.
  std::vector<RankSpan> in_order(std::int64_t steps) const {
    std::vector<RankSpan> all;
    all.reserve(spans_.size());
    for (std::int64_t step = std::max<std::int64_t>(0, steps - kept_); step < steps; ++step) {
      const std::span<const RankSpan> one = of_step(step);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
  std::size_t row(std::int64_t step) const { return static_cast<std::size_t>(step % kept_) * instances_; }

  std::int64_t kept_ = 0;
  std::size_t instances_ = 0;
  std::vector<RankSpan> spans_;
};

}  // namespace weft
