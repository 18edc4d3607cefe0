// One sweep over the compute spans of each rank, and one walk backwards for each gap between them: no instant is
// looked at twice. accounting_property_test.cpp asks the definition at every nanosecond instead.
#include "timeline/accounting.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "timeline/rank_spans.hpp"
#include "timeline/span_index.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

// One rank's time, sorted into its terms. Idle time is what no other term claims.
class RankLedger {
 public:
  RankLedger(const Timeline& timeline, SpanIndex* index, const Interval& window, std::int32_t rank,
             bool keeps_parts = false)
      : timeline_(timeline), index_(index), window_(window), rank_(rank), keeps_parts_(keeps_parts) {}

  RankAccount settle(const RankSpans& spans) {
    own_ = lasting_transfers(spans.transfers, window_);
    for (const TransferPart& part : own_) communicating_ += part.end - part.begin;
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
  const std::vector<ExposedPart>& parts() const { return parts_; }

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
        waited_for_.push_back({i, folded.iteration, span.start, span.end});
        continue;
      }
      if (covered_to_ >= folded.start) {
        const Nanos to = std::min(span.start, window_.end);
        for (TransferPart part : waited_for_) {
          part.begin = std::max(part.begin, covered_to_);
          part.end = std::min(part.end, to);
          if (part.begin < part.end) expose(part, i);
        }
        covered_to_ = std::max(covered_to_, to);
      }
      if (add_compute(span, index_->folded_begin(id) + (i - folded.first))) return true;
      waited_for_.clear();
    }
    return false;
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
        charge(s, {from, unexplained_to});
        unexplained_to = from;
      }
      if (unexplained_to == gap.begin) break;
    }
    const std::int32_t waiting = backwards_.empty() ? -1 : (*index_)[next].operation;
    for (auto exposed = backwards_.rbegin(); exposed != backwards_.rend(); ++exposed) expose(*exposed, waiting);
  }

  void charge(const Span& span, const Interval& part) {
    const std::int32_t own = own_member(span.operation);
    if (own == span.operation) {
      backwards_.push_back({own, span.iteration, part.begin, part.end});
      return;
    }
    Nanos exposed;
    if (own >= 0) {
      // As measured, a peer's end of a transfer may last longer than this rank's own: the rest is waiting for the peer.
      auto stretch =
          std::partition_point(own_.begin(), own_.end(), [&](const TransferPart& s) { return s.begin < part.end; });
      while (stretch != own_.begin() && (--stretch)->end > part.begin) {
        const Nanos begin = std::max(stretch->begin, part.begin), end = std::min(stretch->end, part.end);
        backwards_.push_back({stretch->operation, stretch->iteration, begin, end});
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
        std::partition_point(own_.begin(), own_.end(), [&](const TransferPart& s) { return s.end <= gap.begin; });
    for (; stretch != own_.end() && stretch->begin < gap.end; ++stretch) {
      expose({stretch->operation, stretch->iteration, std::max(stretch->begin, gap.begin),
              std::min(stretch->end, gap.end)},
             -1);
    }
  }

  void expose(const TransferPart& part, std::int32_t waiting) {
    if (keeps_parts_) parts_.push_back({rank_, part, waiting});
    const TrafficKind kind = timeline_.operations[at(part.operation)].traffic;
    exposed_by_[kind] += part.end - part.begin;
    if (!exposed_.empty() && exposed_.back().end == part.begin && exposed_.back().kind == kind) {
      exposed_.back().end = part.end;
    } else {
      exposed_.push_back({rank_, kind, part.begin, part.end});
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
  bool keeps_parts_;
  std::vector<TransferPart> own_;
  std::vector<TransferPart> backwards_;
  std::vector<TransferPart> waited_for_;  // transfers of a folded span since its last compute operation
  std::vector<ExposedStretch> exposed_;
  std::vector<ExposedPart> parts_;
  EnumArray<TrafficKind, Nanos, kTrafficKinds> exposed_by_{};
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

std::vector<ExposedPart> exposed_parts(const Timeline& timeline, SpanIndex& index) {
  const Interval window = steady_window(timeline);
  const std::vector<RankSpans> spans = spans_by_rank(timeline, window, &index);
  std::vector<ExposedPart> parts;
  for (std::int32_t r = 0; at(r) < timeline.ranks.size(); ++r) {
    RankLedger ledger(timeline, &index, window, r, true);
    ledger.settle(spans[at(r)]);
    parts.insert(parts.end(), ledger.parts().begin(), ledger.parts().end());
  }
  return parts;
}

Accounting account(const Timeline& timeline) {
  check_timeline(timeline);
  if (timeline.dependency_begin.empty()) return account_with(timeline, nullptr);
  steady_window(timeline);  // before the work of an index
  SpanIndex index(timeline);
  return account_with(timeline, &index);
}

}  // namespace weft
