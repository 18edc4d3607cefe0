// One sweep over the compute spans of each rank, and one walk backwards for each gap between them: no instant is
// looked at twice. accounting_property_test.cpp asks the definition at every nanosecond instead.
#include "timeline/accounting.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "timeline/span_index.hpp"

namespace weft {
namespace {

struct Interval {
  Nanos begin, end;
};

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

Interval clip(const Span& span, const Interval& window) {
  const Nanos begin = std::clamp(span.start, window.begin, window.end);
  return {begin, std::clamp(span.end, begin, window.end)};
}

Interval steady_window(const Timeline& timeline) {
  const double length = timeline.period_ns * timeline.periods;
  // 2^53 ns, a hundred days: up to there a double counts every nanosecond.
  if (timeline.periods < 1 || !(timeline.period_ns > 0) || !(length < 9.007e15)) {
    fail("timeline: {} periods of {} ns, at least one, positive and below 2^53 ns in all, is allowed", timeline.periods,
         timeline.period_ns);
  }
  return {timeline.steady_begin, timeline.steady_begin + Nanos{std::llround(length)}};
}

// The spans of one rank that matter to the window, by start, operation and iteration.
struct RankSpans {
  std::vector<std::int32_t> compute;  // up to and with the first that starts after the window
  std::vector<std::int32_t> transfers;
};

std::vector<RankSpans> spans_by_rank(const Timeline& timeline, const Interval& window) {
  const auto& spans = timeline.spans;
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const auto key = [](const Span& s) { return std::tuple(s.start, s.operation, s.iteration); };
    return key(spans[at(a)]) < key(spans[at(b)]);
  };
  std::vector<RankSpans> ranks(timeline.ranks.size());
  std::vector<std::int32_t> next_after(timeline.ranks.size(), -1);
  for (std::int32_t i = 0; at(i) < spans.size(); ++i) {
    const TimelineOperation& operation = timeline.operations[at(spans[at(i)].operation)];
    const std::size_t rank = at(operation.rank);
    if (spans[at(i)].end <= window.begin) continue;
    const bool after = spans[at(i)].start >= window.end;
    if (operation.activity == Activity::transfer) {
      if (!after) ranks[rank].transfers.push_back(i);
    } else if (!after) {
      ranks[rank].compute.push_back(i);
    } else if (next_after[rank] < 0 || before(i, next_after[rank])) {
      next_after[rank] = i;
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (next_after[r] >= 0) ranks[r].compute.push_back(next_after[r]);
    std::sort(ranks[r].compute.begin(), ranks[r].compute.end(), before);
    std::sort(ranks[r].transfers.begin(), ranks[r].transfers.end(), before);
  }
  return ranks;
}

// One rank's time, sorted into its terms. Idle time is what no other term claims.
class RankLedger {
 public:
  RankLedger(const Timeline& timeline, SpanIndex* index, const Interval& window, std::int32_t rank)
      : timeline_(timeline), index_(index), window_(window), rank_(rank) {}

  RankAccount settle(const RankSpans& spans) {
    lay_out_transfers(spans.transfers);
    Nanos covered_to = window_.begin;
    for (const std::int32_t next : spans.compute) {
      const Span& span = timeline_.spans[at(next)];
      const Interval inside = clip(span, window_);
      if (inside.begin > covered_to) {
        explain({covered_to, inside.begin}, next);
        covered_to = inside.begin;
      }
      if (inside.end > covered_to) {
        computing_ += inside.end - covered_to;
        covered_to = inside.end;
      }
      add_slowdown(span, inside);
    }
    if (covered_to < window_.end) expose_own_transfers({covered_to, window_.end});
    return totals();
  }

  const std::vector<ExposedStretch>& exposed() const { return exposed_; }

 private:
  // At each instant the rank's running transfer that ends last (ties: the lowest operation), as disjoint stretches.
  void lay_out_transfers(const std::vector<std::int32_t>& transfers) {
    std::int32_t lasting = -1;
    for (const std::int32_t span : transfers) {
      const Span& s = timeline_.spans[at(span)];
      const Interval inside = clip(s, window_);
      if (inside.begin == inside.end) continue;
      if (lasting >= 0 && inside.begin < own_.back().end) {
        const Span& l = timeline_.spans[at(lasting)];
        if (std::tuple(s.end, -s.operation) < std::tuple(l.end, -l.operation)) continue;
        own_.back().end = inside.begin;
        if (own_.back().begin == own_.back().end) own_.pop_back();
      }
      own_.push_back({rank_, timeline_.operations[at(s.operation)].traffic, inside.begin, inside.end});
      lasting = span;
    }
    for (const ExposedStretch& stretch : own_) communicating_ += stretch.end - stretch.begin;
  }

  void add_slowdown(const Span& span, const Interval& inside) {
    if (inside.begin == inside.end) return;
    const auto length = static_cast<double>((span.end - span.start).value);
    const auto within = static_cast<double>((inside.end - inside.begin).value);
    const auto alone = static_cast<double>(timeline_.operations[at(span.operation)].alone.value);
    slowdown_ += std::max(0.0, within - alone * (within / length));
  }

  // Walks back from the operation that the gap waits for. Each predecessor explains the part in which it ran; between
  // the end of the last-finishing one and the start of what waited for it, nothing did.
  void explain(const Interval& gap, std::int32_t next) {
    if (index_ == nullptr) return expose_own_transfers(gap);
    backwards_.clear();
    Nanos unexplained_to = gap.end;
    for (std::int32_t span = index_->last_predecessor(next); span >= 0; span = index_->last_predecessor(span)) {
      const Span& s = timeline_.spans[at(span)];
      if (s.end <= gap.begin) break;
      unexplained_to = std::min(unexplained_to, s.end);
      const Nanos from = std::max(s.start, gap.begin);
      if (from < unexplained_to) {
        charge(s.operation, {from, unexplained_to});
        unexplained_to = from;
      }
      if (unexplained_to == gap.begin) break;
    }
    for (auto stretch = backwards_.rbegin(); stretch != backwards_.rend(); ++stretch) expose(*stretch);
  }

  void charge(std::int32_t operation, const Interval& part) {
    const std::int32_t own = own_member(operation);
    if (own < 0) {
      bubble_ += part.end - part.begin;
    } else {
      backwards_.push_back({rank_, timeline_.operations[at(own)].traffic, part.begin, part.end});
    }
  }

  // This rank's part in a transfer; -1 where it has none, or the operation computes.
  std::int32_t own_member(std::int32_t operation) const {
    const auto& operations = timeline_.operations;
    if (operations[at(operation)].activity == Activity::compute) return -1;
    if (operations[at(operation)].rank == rank_) return operation;
    const auto members = index_->members(operation);
    const auto own = std::find_if(members.begin(), members.end(),
                                  [&](std::int32_t member) { return operations[at(member)].rank == rank_; });
    return own == members.end() ? -1 : *own;
  }

  void expose_own_transfers(const Interval& gap) {
    auto stretch =
        std::partition_point(own_.begin(), own_.end(), [&](const ExposedStretch& s) { return s.end <= gap.begin; });
    for (; stretch != own_.end() && stretch->begin < gap.end; ++stretch) {
      expose({rank_, stretch->kind, std::max(stretch->begin, gap.begin), std::min(stretch->end, gap.end)});
    }
  }

  void expose(const ExposedStretch& stretch) {
    exposed_by_[static_cast<std::size_t>(stretch.kind)] += stretch.end - stretch.begin;
    if (!exposed_.empty() && exposed_.back().end == stretch.begin && exposed_.back().kind == stretch.kind) {
      exposed_.back().end = stretch.end;
    } else {
      exposed_.push_back(stretch);
    }
  }

  RankAccount totals() const {
    const auto per_step = [&](double nanos) { return nanos * 1e-9 / timeline_.periods; };
    const auto per_step_of = [&](Nanos nanos) { return per_step(static_cast<double>(nanos.value)); };
    const Nanos length = window_.end - window_.begin;
    const Nanos exposed = std::accumulate(exposed_by_.begin(), exposed_by_.end(), Nanos{});
    // Where compute spans overlap, their slowdowns may add up to more than the time they share.
    const double slowdown = std::min(slowdown_, static_cast<double>(computing_.value));
    RankAccount account;
    account.step_s = per_step_of(length);
    account.compute_s = per_step(static_cast<double>(computing_.value) - slowdown);
    account.slowdown_s = per_step(slowdown);
    account.exposed_s = per_step_of(exposed);
    for (std::size_t k = 0; k < exposed_by_.size(); ++k) account.exposed_by[k] = per_step_of(exposed_by_[k]);
    account.bubble_s = per_step_of(bubble_);
    account.idle_s = per_step_of(length - computing_ - exposed - bubble_);
    account.comm_s = per_step_of(communicating_);
    return account;
  }

  const Timeline& timeline_;
  SpanIndex* index_;  // null: dependencies unknown
  Interval window_;
  std::int32_t rank_;
  std::vector<ExposedStretch> own_;
  std::vector<ExposedStretch> backwards_;
  std::vector<ExposedStretch> exposed_;
  std::array<Nanos, kTrafficKinds> exposed_by_{};
  Nanos computing_, bubble_, communicating_;
  double slowdown_ = 0;
};

// Calls combine(into's term, from's term) for every term.
template <class Combine>
void for_each_term(RankAccount& into, const RankAccount& from, Combine combine) {
  constexpr double RankAccount::* kTerms[] = {
      &RankAccount::step_s,   &RankAccount::compute_s, &RankAccount::slowdown_s, &RankAccount::exposed_s,
      &RankAccount::bubble_s, &RankAccount::idle_s,    &RankAccount::comm_s};
  for (const auto term : kTerms) combine(into.*term, from.*term);
  for (std::size_t k = 0; k < kTrafficKinds; ++k) combine(into.exposed_by[k], from.exposed_by[k]);
}

}  // namespace

double hidden_pct(const RankAccount& account) {
  if (!(account.comm_s > 0)) return std::numeric_limits<double>::quiet_NaN();
  return 100 * (1 - account.exposed_s / account.comm_s);
}

Accounting account(const Timeline& timeline) {
  check_timeline(timeline);
  const Interval window = steady_window(timeline);
  std::optional<SpanIndex> index;
  if (!timeline.dependency_begin.empty()) index.emplace(timeline);
  const std::vector<RankSpans> spans = spans_by_rank(timeline, window);

  Accounting accounting;
  double weights = 0;
  for (std::int32_t r = 0; at(r) < timeline.ranks.size(); ++r) {
    RankLedger ledger(timeline, index ? &*index : nullptr, window, r);
    accounting.ranks.push_back(ledger.settle(spans[at(r)]));
    accounting.exposed.insert(accounting.exposed.end(), ledger.exposed().begin(), ledger.exposed().end());
    const auto weight = static_cast<double>(timeline.ranks[at(r)].ranks);
    weights += weight;
    for_each_term(accounting.mean, accounting.ranks.back(), [&](double& sum, double term) { sum += weight * term; });
    for_each_term(accounting.max, accounting.ranks.back(), [](double& max, double term) { max = std::max(max, term); });
  }
  if (weights > 0) {
    for_each_term(accounting.mean, accounting.mean, [&](double& mean, double sum) { mean = sum / weights; });
  }
  return accounting;
}

}  // namespace weft
