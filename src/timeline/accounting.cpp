// One sweep over the compute spans of each rank, and one walk backwards for each gap between them: no instant is
// looked at twice. accounting_property_test.cpp asks the definition at every nanosecond instead.
#include "timeline/accounting.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "timeline/rank_spans.hpp"
#include "timeline/span_index.hpp"

namespace weft {
namespace {

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

// One rank's time, sorted into its terms. Idle time is what no other term claims.
class RankLedger {
 public:
  RankLedger(const Timeline& timeline, SpanIndex* index, const Interval& window, std::int32_t rank)
      : timeline_(timeline), index_(index), window_(window), rank_(rank) {}

  RankAccount settle(const RankSpans& spans) {
    lay_out_transfers(spans.transfers);
    covered_to_ = window_.begin;
    bool after = false;  // the first compute after the window explains its last gap
    for (auto next = spans.computing.begin(); next != spans.computing.end() && !after; ++next) {
      const auto span = at(*next), plain = timeline_.spans.size();
      after = span < plain ? add_compute(timeline_.spans[span], *next) : add_folded(span - plain);
    }
    if (covered_to_ < window_.end) expose_own_transfers({covered_to_, window_.end});
    return totals();
  }

  const std::vector<ExposedStretch>& exposed() const { return exposed_; }

 private:
  // True where it starts after the window: nothing later matters.
  bool add_compute(const Span& span, std::int32_t execution) {
    const Interval inside = clip(span, window_);
    if (inside.begin > covered_to_) {
      explain({covered_to_, inside.begin}, execution);
      covered_to_ = inside.begin;
    }
    if (inside.end > covered_to_) {
      computing_ += inside.end - covered_to_;
      covered_to_ = inside.end;
    }
    add_slowdown(span, inside);
    return span.start >= window_.end;
  }

  // Between two compute operations of a folded span lies nothing but transfers that the second waited for.
  bool add_folded(std::size_t id) {
    const FoldedSpan& folded = timeline_.folded[id];
    Nanos now = folded.start;
    waited_for_.clear();
    for (std::int32_t i = folded.first; i < folded.first + folded.count; ++i) {
      const TimelineOperation& operation = timeline_.operations[at(i)];
      const Span span{i, folded.iteration, now, now, now, now + operation.alone};
      now = span.end;
      if (now <= window_.begin) continue;
      if (operation.activity == Activity::transfer) {
        waited_for_.push_back({rank_, operation.traffic, span.start, span.end});
        continue;
      }
      if (covered_to_ >= folded.start) {
        const Nanos to = std::min(span.start, window_.end);
        for (ExposedStretch stretch : waited_for_) {
          stretch.begin = std::max(stretch.begin, covered_to_);
          stretch.end = std::min(stretch.end, to);
          if (stretch.begin < stretch.end) expose(stretch);
        }
        covered_to_ = std::max(covered_to_, to);
      }
      if (add_compute(span, index_->folded_begin(id) + (i - folded.first))) return true;
      waited_for_.clear();
    }
    return false;
  }

  // At each instant the rank's running transfer that ends last (ties: the lowest operation), as disjoint stretches.
  void lay_out_transfers(const std::vector<Span>& transfers) {
    const Span* lasting = nullptr;
    for (const Span& s : transfers) {
      const Interval inside = clip(s, window_);
      if (inside.begin == inside.end) continue;
      if (lasting != nullptr && inside.begin < own_.back().end) {
        const Span& l = *lasting;
        if (std::tuple(s.end, -s.operation) < std::tuple(l.end, -l.operation)) continue;
        own_.back().end = inside.begin;
        if (own_.back().begin == own_.back().end) own_.pop_back();
      }
      own_.push_back({rank_, timeline_.operations[at(s.operation)].traffic, inside.begin, inside.end});
      lasting = &s;
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
    for (std::int32_t i = index_->last_predecessor(next); i >= 0; i = index_->last_predecessor(i)) {
      const SpanIndex::Place place = index_->place(i);
      const Span& s = place.span;
      if (s.end <= gap.begin) break;
      unexplained_to = std::min(unexplained_to, s.end);
      // All of another rank's folded span is the same to this rank.
      const bool own = timeline_.operations[at(s.operation)].rank == rank_;
      if (!own) i = place.first;
      const Nanos from = std::max(own ? s.start : place.first_start, gap.begin);
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
    if (own == operation) {
      backwards_.push_back({rank_, timeline_.operations[at(own)].traffic, part.begin, part.end});
      return;
    }
    Nanos exposed;
    if (own >= 0) {
      // As measured, a peer's end of a transfer may last longer than this rank's own: the rest is waiting for the peer.
      auto stretch =
          std::partition_point(own_.begin(), own_.end(), [&](const ExposedStretch& s) { return s.begin < part.end; });
      while (stretch != own_.begin() && (--stretch)->end > part.begin) {
        const Nanos begin = std::max(stretch->begin, part.begin), end = std::min(stretch->end, part.end);
        backwards_.push_back({rank_, stretch->kind, begin, end});
        exposed += end - begin;
      }
    }
    bubble_ += part.end - part.begin - exposed;
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
  std::vector<ExposedStretch> waited_for_;  // transfers of a folded span since its last compute operation
  std::vector<ExposedStretch> exposed_;
  std::array<Nanos, kTrafficKinds> exposed_by_{};
  Nanos covered_to_;
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

namespace {

Accounting account_with(const Timeline& timeline, SpanIndex* index) {
  const Interval window = steady_window(timeline);
  const std::vector<RankSpans> spans = spans_by_rank(timeline, window, index);
  Accounting accounting;
  double weights = 0;
  for (std::int32_t r = 0; at(r) < timeline.ranks.size(); ++r) {
    RankLedger ledger(timeline, index, window, r);
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

}  // namespace

Accounting account(const Timeline& timeline, SpanIndex& index) {
  return account_with(timeline, &index);
}

Accounting account(const Timeline& timeline) {
  check_timeline(timeline);
  if (timeline.dependency_begin.empty()) return account_with(timeline, nullptr);
  steady_window(timeline);  // before the work of an index
  SpanIndex index(timeline);
  return account_with(timeline, &index);
}

}  // namespace weft
