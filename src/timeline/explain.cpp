// Three sweeps over each rank: what the exposed parts wait for, what ran beside the hidden ones, and the sums by kind.
#include "timeline/explain.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "timeline/accounting.hpp"
#include "timeline/exposure_reasons.hpp"

namespace weft {
namespace {

constexpr EnumArray<ExposureReason, std::string_view, kExposureReasons> kReasonNames = {
    "dependency", "held_back", "issue_order", "queue_busy", "link_busy", "memory", "latency", "late_peer"};

std::size_t at(std::int32_t index) {
  return index;
}

// Compute operations that run after the window's begin, folded ones written out.
std::vector<ReadyCompute> computing_of(const Timeline& timeline, const SpanIndex& index,
                                       const std::vector<std::int32_t>& executions) {
  std::vector<ReadyCompute> computing;
  const auto add = [&](const Span& span) {
    computing.push_back({span.operation, ready_at(index, span.operation, span.iteration), span.start, span.end});
  };
  for (const std::int32_t execution : executions) {
    if (at(execution) < timeline.spans.size()) {
      add(timeline.spans[at(execution)]);
      continue;
    }
    const std::size_t id = at(execution) - timeline.spans.size();
    const FoldedSpan& folded = timeline.folded[id];
    Nanos now = folded.start;
    for (std::int32_t i = folded.first; i < folded.first + folded.count; ++i) {
      const TimelineOperation& operation = timeline.operations[at(i)];
      const Nanos end = now + operation.alone;
      if (operation.activity == Activity::compute) add({i, folded.iteration, now, now, now, end});
      now = end;
    }
  }
  std::stable_sort(computing.begin(), computing.end(),
                   [](const ReadyCompute& a, const ReadyCompute& b) { return a.start < b.start; });
  return computing;
}

// Sums in nanoseconds of the whole window, so that they hold exactly.
struct KindSums {
  ExplainedTransfer transfer;
  Nanos busy, hidden, exposed, alone;
  std::map<std::int32_t, Nanos> behind;
  std::map<std::tuple<ExposureReason, std::int32_t, std::int32_t, std::int32_t>, Nanos> reasons;
};

class RankExplanation {
 public:
  RankExplanation(const Timeline& timeline, const SpanIndex& index, const ExplainedOperations& operations)
      : timeline_(timeline), index_(index), operations_(operations), window_(steady_window(timeline)) {}

  std::vector<ExplainedTransfer> of(std::int32_t rank, const RankSpans& spans, std::vector<ExposedPart> exposed) {
    sums_.clear();
    for (std::size_t i = 0; i < timeline_.operations.size(); ++i) count(rank, i);
    for (const Span& span : spans.transfers) {
      const Interval inside = clip(span, window_);
      of_transfer(span.operation).busy += inside.end - inside.begin;
    }
    for (const ExposedPart& part : exposed) {
      of_transfer(part.transfer.operation).exposed += part.transfer.end - part.transfer.begin;
    }
    RankHistory history{computing_of(timeline_, index_, spans.computing), spans.transfers, std::move(exposed)};
    add_hidden(lasting_transfers(spans.transfers, window_), history);
    for (const ReasonedTime& r : find_reasons(timeline_, index_, history, operations_.fixed)) {
      of_transfer(r.operation).reasons[{r.reason, kind_of(r.cause), r.cause_rank, kind_of(r.waiting)}] += r.time;
    }
    std::vector<ExplainedTransfer> result;
    for (auto& [kind, sums] : sums_) result.push_back(finished(kind, sums));
    return result;
  }

 private:
  std::int32_t kind_of(std::int32_t operation) const { return operation < 0 ? -1 : operations_.kind[at(operation)]; }
  KindSums& of_transfer(std::int32_t operation) { return sums_[kind_of(operation)]; }

  void count(std::int32_t rank, std::size_t id) {
    const TimelineOperation& operation = timeline_.operations[id];
    if (operation.rank != rank || operation.activity != Activity::transfer) return;
    KindSums& sums = sums_[operations_.kind[id]];
    ++sums.transfer.instances;
    sums.transfer.bytes += operation.bytes;
    sums.alone += operation.alone;
  }

  // What remains of the stretches without the exposed parts, and the compute operation that ran then.
  void add_hidden(const std::vector<TransferPart>& stretches, const RankHistory& history) {
    auto exposed = history.exposed.begin();
    auto compute = history.computing.begin();
    for (const TransferPart& stretch : stretches) {
      Nanos from = stretch.begin;
      while (from < stretch.end) {
        while (exposed != history.exposed.end() && exposed->transfer.end <= from) ++exposed;
        const bool meets = exposed != history.exposed.end() && exposed->transfer.begin < stretch.end;
        const Nanos to = meets ? std::max(from, exposed->transfer.begin) : stretch.end;
        hide(stretch.operation, {from, to}, compute, history);
        from = meets ? std::min(exposed->transfer.end, stretch.end) : stretch.end;
      }
    }
  }

  // Ascending over all calls. Where compute spans overlap, the one that began first counts.
  void hide(std::int32_t transfer, const Interval& part, std::vector<ReadyCompute>::const_iterator& compute,
            const RankHistory& history) {
    if (part.begin == part.end) return;
    KindSums& sums = of_transfer(transfer);
    sums.hidden += part.end - part.begin;
    Nanos now = part.begin;
    while (now < part.end) {
      while (compute != history.computing.end() && compute->end <= now) ++compute;
      const bool meets = compute != history.computing.end() && compute->start < part.end;
      const Nanos waiting_to = meets ? std::max(now, compute->start) : part.end;
      if (waiting_to > now) sums.behind[-1] += waiting_to - now;
      now = waiting_to;
      if (!meets) continue;
      const Nanos to = std::min(compute->end, part.end);
      sums.behind[kind_of(compute->operation)] += to - now;
      now = to;
    }
  }

  ExplainedTransfer finished(std::int32_t kind, const KindSums& sums) const {
    const auto seconds = [&](Nanos t) { return static_cast<double>(t.value) * 1e-9 / timeline_.periods; };
    ExplainedTransfer result = sums.transfer;
    result.kind = kind;
    result.alone_s = static_cast<double>(sums.alone.value) * 1e-9;
    result.busy_s = seconds(sums.busy);
    result.hidden_s = seconds(sums.hidden);
    result.exposed_s = seconds(sums.exposed);
    result.beside_s = seconds(sums.busy - sums.hidden - sums.exposed);
    for (const auto& [behind, time] : sums.behind) result.hidden_behind.push_back({behind, seconds(time)});
    for (const auto& [why, time] : sums.reasons) {
      const auto& [reason, cause, cause_rank, waiting] = why;
      result.exposures.push_back({reason, cause, cause_rank, waiting, seconds(time)});
    }
    const auto larger = [](const auto& a, const auto& b) { return a.seconds > b.seconds; };
    std::stable_sort(result.hidden_behind.begin(), result.hidden_behind.end(), larger);
    std::stable_sort(result.exposures.begin(), result.exposures.end(), larger);
    return result;
  }

  const Timeline& timeline_;
  const SpanIndex& index_;
  const ExplainedOperations& operations_;
  Interval window_;
  std::map<std::int32_t, KindSums> sums_;  // by kind
};

}  // namespace

std::string_view name_of(ExposureReason reason) {
  return kReasonNames[reason];
}

std::vector<std::vector<ExplainedTransfer>> explain(const Timeline& timeline, SpanIndex& index,
                                                    const ExplainedOperations& operations) {
  WEFT_CHECK(operations.kind.size() == timeline.operations.size());
  WEFT_CHECK(operations.fixed.size() == timeline.operations.size());
  const std::vector<RankSpans> spans = spans_by_rank(timeline, steady_window(timeline), &index);
  const std::vector<ExposedPart> exposed = exposed_parts(timeline, index);
  RankExplanation explanation(timeline, index, operations);
  std::vector<std::vector<ExplainedTransfer>> ranks;
  auto part = exposed.begin();
  for (std::int32_t r = 0; at(r) < timeline.ranks.size(); ++r) {
    const auto end = std::find_if(part, exposed.end(), [&](const ExposedPart& p) { return p.rank != r; });
    ranks.push_back(explanation.of(r, spans[at(r)], {part, end}));
    part = end;
  }
  return ranks;
}

}  // namespace weft
