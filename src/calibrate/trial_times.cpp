#include "calibrate/trial_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/text.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

using Key = TrialRatios::key_type;

constexpr std::array kTimed = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                               Collective::all_to_all};

std::optional<Key> key_of(const Timeline& timeline, const TimelineOperation& op) {
  if (op.activity != Activity::transfer || op.collective < 0) return std::nullopt;
  const std::string& name = timeline.names[op.collective];
  const auto* const found = std::ranges::find(kTimed, name, [](Collective each) { return name_of(each); });
  if (found == kTimed.end()) return std::nullopt;
  return Key{{*found, op.group_size}, op.bytes};
}

struct Waiting {
  double nanos = 0;
  std::int64_t executions = 0;
};

// The time in which a rank computes nothing is shared by the transfers that run meanwhile.
class RankWaiting {
 public:
  void add(const Span& span, std::optional<Key> transfer) { spans_.push_back({&span, transfer}); }

  void add_to(std::map<Key, Waiting>& sums) {
    std::ranges::sort(spans_, {}, [](const Each& each) { return each.span->start; });
    std::optional<Nanos> computed;  // until then
    std::vector<Each> since;        // transfers that began no earlier than the last computation
    for (const Each& each : spans_) {
      if (each.transfer) {
        since.push_back(each);
        continue;
      }
      if (computed && each.span->start > *computed) share(*computed, each.span->start, since, sums);
      std::erase_if(since, [&](const Each& transfer) { return transfer.span->end <= each.span->start; });
      computed = std::max(computed.value_or(each.span->end), each.span->end);
    }
  }

 private:
  struct Each {
    const Span* span;
    std::optional<Key> transfer;
  };

  static void share(Nanos begin, Nanos end, const std::vector<Each>& transfers, std::map<Key, Waiting>& sums) {
    const auto inside = [&](const Each& each) {
      return static_cast<double>(
          std::max(Nanos{0}, std::min(end, each.span->end) - std::max(begin, each.span->start)).value);
    };
    double all = 0;
    for (const Each& each : transfers) all += inside(each);
    if (all == 0) return;
    for (const Each& each : transfers) {
      if (inside(each) == 0) continue;
      Waiting& sum = sums[*each.transfer];
      sum.nanos += static_cast<double>((end - begin).value) * inside(each) / all;
      ++sum.executions;
    }
  }

  std::vector<Each> spans_;
};

// The mean of what compute waits for each execution, over ranks and steady steps.
std::map<Key, double> waiting_for(const Timeline& folded) {
  // One step more, because a step's last transfers end where the next one's computation begins.
  const Timeline timeline = expanded(folded, folded.steady_first, folded.steady_first + folded.periods);
  std::vector<RankWaiting> ranks(timeline.ranks.size());
  for (const Span& span : timeline.spans) {
    const TimelineOperation& op = timeline.operations[span.operation];
    const std::optional<Key> key = key_of(timeline, op);
    if (op.activity == Activity::compute || key) ranks[op.rank].add(span, key);
  }
  std::map<Key, Waiting> sums;
  for (RankWaiting& rank : ranks) rank.add_to(sums);
  std::map<Key, double> means;
  for (const auto& [key, sum] : sums) means[key] = sum.nanos / static_cast<double>(sum.executions);
  return means;
}

double log_distance(Bytes a, Bytes b) {
  return std::abs(std::log(static_cast<double>(std::max(a, Bytes{1}).value)) -
                  std::log(static_cast<double>(std::max(b, Bytes{1}).value)));
}

}  // namespace

TrialRatios compare_trial(const Timeline& predicted, const Timeline& measured) {
  const std::map<Key, double> expected = waiting_for(predicted);
  TrialRatios ratios;
  for (const auto& [key, nanos] : waiting_for(measured)) {
    const auto found = expected.find(key);
    if (found != expected.end() && found->second > 0 && nanos > 0) ratios[key] = nanos / found->second;
  }
  return ratios;
}

void scale_by_trial(const TrialRatios& ratios, LibraryProfile& library) {
  for (auto& [group, points] : library.measured) {
    std::vector<std::pair<Bytes, double>> own;
    for (const auto& [key, ratio] : ratios) {
      if (key.first == group) own.emplace_back(key.second, ratio);
    }
    if (own.empty()) continue;
    for (LibraryProfile::Point& point : points) {
      const double ratio = std::ranges::min_element(own, {}, [&](const auto& each) {
                             return log_distance(each.first, point.bytes);
                           })->second;
      point.time = nanos_from_seconds(seconds(point.time) * ratio);
      point.after_pause = nanos_from_seconds(seconds(point.after_pause) * ratio);
    }
  }
}

std::string to_text(const TrialRatios& ratios) {
  std::string text;
  for (const auto& [key, ratio] : ratios) {
    const auto& [group, bytes] = key;
    text += fmt::format("{}{} {} {} {}", text.empty() ? "" : ";", static_cast<int>(group.collective), group.members,
                        bytes.value, std::llround(ratio * 1e6));
  }
  return text;
}

TrialRatios trial_ratios_from(const std::string& text) {
  TrialRatios ratios;
  if (text.empty()) return ratios;
  for (const std::string& entry : split(text, ';')) {
    const std::vector<std::string> numbers = split(entry, ' ');
    const auto at = [&](std::size_t i) { return parse_integer(numbers.at(i), "a trial's times"); };
    const LibraryProfile::Group group{static_cast<Collective>(at(0)), at(1)};
    ratios[{group, Bytes{at(2)}}] = static_cast<double>(at(3)) * 1e-6;
  }
  return ratios;
}

}  // namespace weft
