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

constexpr double kScale = 1e6;  // of ratios as text

using Key = std::pair<LibraryProfile::Group, Bytes>;

constexpr std::array kTimed = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                               Collective::all_to_all};

std::optional<Key> key_of(const Timeline& timeline, const TimelineOperation& op) {
  if (op.activity != Activity::transfer || op.collective < 0) return std::nullopt;
  const std::string& name = timeline.names[op.collective];
  const auto* const found = std::ranges::find(kTimed, name, [](Collective each) { return name_of(each); });
  if (found == kTimed.end()) return std::nullopt;
  return Key{{*found, op.group_size}, op.bytes};
}

struct Taken {
  double nanos = 0;
  std::int64_t executions = 0;
};

// By iteration what something took in it.
using TakenByStep = std::map<std::int32_t, Taken>;

// Of the steps' means the one in the middle.
double middle(const TakenByStep& steps) {
  std::vector<double> means;
  for (const auto& [iteration, taken] : steps) means.push_back(taken.nanos / static_cast<double>(taken.executions));
  const auto half = means.begin() + std::ssize(means) / 2;
  std::ranges::nth_element(means, half);
  return *half;
}

// The time in which a rank computes nothing is shared by the transfers that run meanwhile.
class RankWaiting {
 public:
  void add(const Span& span, std::optional<Key> transfer) { spans_.push_back({&span, transfer}); }

  void add_to(std::map<Key, TakenByStep>& sums) {
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

  static void share(Nanos begin, Nanos end, const std::vector<Each>& transfers, std::map<Key, TakenByStep>& sums) {
    const auto inside = [&](const Each& each) {
      return static_cast<double>(
          std::max(Nanos{0}, std::min(end, each.span->end) - std::max(begin, each.span->start)).value);
    };
    double all = 0;
    for (const Each& each : transfers) all += inside(each);
    if (all == 0) return;
    for (const Each& each : transfers) {
      if (inside(each) == 0) continue;
      Taken& sum = sums[*each.transfer][each.span->iteration];
      sum.nanos += static_cast<double>((end - begin).value) * inside(each) / all;
      ++sum.executions;
    }
  }

  std::vector<Each> spans_;
};

struct TakenInStep {
  std::map<std::string, double> compute;  // by phase, the mean of its operations
  std::map<Key, double> waiting;          // by transfer, what compute waits for an execution
};

TakenInStep taken_in_step(const Timeline& folded) {
  // One step more, because a step's last transfers end where the next one's computation begins.
  const Timeline timeline = expanded(folded, folded.steady_first, folded.steady_first + folded.periods);
  std::vector<RankWaiting> ranks(timeline.ranks.size());
  std::map<std::int32_t, TakenByStep> phases;
  for (const Span& span : timeline.spans) {
    const TimelineOperation& op = timeline.operations[span.operation];
    const std::optional<Key> key = key_of(timeline, op);
    if (op.activity == Activity::compute || key) ranks[op.rank].add(span, key);
    if (op.activity != Activity::compute) continue;
    Taken& taken = phases[op.phase][span.iteration];
    taken.nanos += static_cast<double>((span.end - span.start).value);
    ++taken.executions;
  }
  std::map<Key, TakenByStep> waiting;
  for (RankWaiting& rank : ranks) rank.add_to(waiting);
  TakenInStep taken;
  for (const auto& [phase, steps] : phases) taken.compute[timeline.names[phase]] = middle(steps);
  for (const auto& [key, steps] : waiting) taken.waiting[key] = middle(steps);
  return taken;
}

double log_distance(Bytes a, Bytes b) {
  return std::abs(std::log(static_cast<double>(std::max(a, Bytes{1}).value)) -
                  std::log(static_cast<double>(std::max(b, Bytes{1}).value)));
}

}  // namespace

TrialRatios compare_trial(const Timeline& predicted, const Timeline& measured) {
  const TakenInStep expected = taken_in_step(predicted), found = taken_in_step(measured);
  TrialRatios ratios;
  const auto compare = [](const auto& expected_times, const auto& found_times, auto& into) {
    for (const auto& [key, nanos] : found_times) {
      const auto of_prediction = expected_times.find(key);
      if (of_prediction == expected_times.end() || of_prediction->second <= 0 || nanos <= 0) continue;
      into[key] = nanos / of_prediction->second;
    }
  };
  compare(expected.compute, found.compute, ratios.compute);
  compare(expected.waiting, found.waiting, ratios.transfers);
  return ratios;
}

void scale_by_trial(const TrialRatios& ratios, LibraryProfile& library) {
  for (auto& [group, points] : library.measured) {
    std::vector<std::pair<Bytes, double>> own;
    for (const auto& [key, ratio] : ratios.transfers) {
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

void scale_by_trial(const TrialRatios& ratios, DeviceProfile& device) {
  for (auto& [key, time] : device.operations) {
    const auto ratio = ratios.compute.find(std::string(name_of(key.phase)));
    if (ratio != ratios.compute.end()) time = std::max(Nanos{1}, nanos_from_seconds(seconds(time) * ratio->second));
  }
}

std::string to_text(const TrialRatios& ratios) {
  std::vector<std::string> entries;
  for (const auto& [phase, ratio] : ratios.compute) {
    entries.push_back(fmt::format("{} {}", phase, std::llround(ratio * kScale)));
  }
  for (const auto& [key, ratio] : ratios.transfers) {
    const auto& [group, bytes] = key;
    entries.push_back(fmt::format("{} {} {} {}", static_cast<int>(group.collective), group.members, bytes.value,
                                  std::llround(ratio * kScale)));
  }
  return fmt::format("{}", fmt::join(entries, ";"));
}

TrialRatios trial_ratios_from(const std::string& text) {
  TrialRatios ratios;
  if (text.empty()) return ratios;
  for (const std::string& entry : split(text, ';')) {
    const std::vector<std::string> words = split(entry, ' ');
    const auto number = [&](std::size_t i) { return parse_integer(words.at(i), "a trial's times"); };
    if (words.size() == 2) {
      ratios.compute[words[0]] = static_cast<double>(number(1)) / kScale;
      continue;
    }
    const LibraryProfile::Group group{static_cast<Collective>(number(0)), number(1)};
    ratios.transfers[{group, Bytes{number(2)}}] = static_cast<double>(number(3)) / kScale;
  }
  return ratios;
}

}  // namespace weft
