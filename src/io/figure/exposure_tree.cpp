#include "io/figure/exposure_tree.hpp"

#include <algorithm>
#include <cctype>

#include "io/figure/timeline_frame.hpp"

namespace weft {
namespace {

std::string without_numbers(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!is_digit) {
      result += c;
    } else if (result.empty() || result.back() != '#') {
      result += '#';
    }
  }
  return result;
}

ExposureNode& child_named(ExposureNode& node, const std::string& name) {
  const auto found = std::ranges::find(node.children, name, &ExposureNode::name);
  return found != node.children.end() ? *found : node.children.emplace_back(ExposureNode{name, 0, {}});
}

void sort_by_time(ExposureNode& node) {
  std::ranges::stable_sort(node.children, std::ranges::greater{}, &ExposureNode::seconds);
  for (ExposureNode& child : node.children) sort_by_time(child);
}

// The transfers of a rank and kind, by start.
using TransfersByRankAndKind = std::vector<EnumArray<TrafficKind, std::vector<Span>, kTrafficKinds>>;

TransfersByRankAndKind transfers_of(const Timeline& timeline) {
  TransfersByRankAndKind transfers(timeline.ranks.size());
  for (const Span& span : timeline.spans) {
    const TimelineOperation& operation = timeline.operations[static_cast<std::size_t>(span.operation)];
    if (operation.activity == Activity::compute) continue;
    transfers[static_cast<std::size_t>(operation.rank)][operation.traffic].push_back(span);
  }
  for (auto& of_rank : transfers) {
    for (int kind = 0; kind < kTrafficKinds; ++kind) {
      std::ranges::sort(of_rank[static_cast<TrafficKind>(kind)], {},
                        [](const Span& span) { return std::pair(span.start, span.end); });
    }
  }
  return transfers;
}

struct WaitedPart {
  std::int32_t operation = -1;  // -1: unknown
  Nanos time;
};

// Cuts a stretch by the transfer that ran and ended last. Spans that start after the stretch are not looked at.
std::vector<WaitedPart> parts_of(const ExposedStretch& stretch, const std::vector<Span>& spans) {
  std::vector<WaitedPart> parts;
  const auto behind = std::ranges::lower_bound(spans, stretch.end, {}, &Span::start);
  Nanos at = stretch.begin;
  constexpr std::ptrdiff_t kLookedAt = 64;  // transfers of one kind that are under way together are few
  const auto first = behind - std::min(kLookedAt, behind - spans.begin());
  while (at < stretch.end) {
    const Span* running = nullptr;
    Nanos next = stretch.end;
    for (auto span = first; span != behind; ++span) {
      if (span->start > at) next = std::min(next, span->start);
      if (span->start > at || span->end <= at) continue;
      if (running == nullptr || span->end > running->end) running = &*span;
    }
    if (running != nullptr) next = std::min(next, running->end);
    parts.push_back({running == nullptr ? -1 : running->operation, next - at});
    at = next;
  }
  return parts;
}

}  // namespace

ExposureNode exposure_tree(const PageTimeline& page) {
  const Timeline& timeline = page.timeline;
  const TransfersByRankAndKind transfers = transfers_of(timeline);
  const double divisor = 1e9 * std::max(1.0, weight_of_ranks(timeline)) * steps_shown(page);
  ExposureNode root{"exposed", 0, {}};
  for (const ExposedStretch& stretch : page.exposed) {
    const TimelineRank& rank = timeline.ranks[static_cast<std::size_t>(stretch.rank)];
    for (const WaitedPart& part : parts_of(stretch, transfers[static_cast<std::size_t>(stretch.rank)][stretch.kind])) {
      const double seconds = static_cast<double>(part.time.value) * static_cast<double>(rank.ranks) / divisor;
      const std::string transfer = part.operation < 0
                                       ? "unknown"
                                       : without_numbers(timeline.names[static_cast<std::size_t>(
                                             timeline.operations[static_cast<std::size_t>(part.operation)].name)]);
      ExposureNode* node = &root;
      node->seconds += seconds;
      for (const std::string& name : {std::string(name_of(stretch.kind)), transfer, rank.name}) {
        node = &child_named(*node, name);
        node->seconds += seconds;
      }
    }
  }
  sort_by_time(root);
  return root;
}

}  // namespace weft
