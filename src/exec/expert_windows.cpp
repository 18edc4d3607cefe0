#include "exec/expert_windows.hpp"

#include <algorithm>

namespace weft {
namespace {

bool goes_back(Phase phase) {
  return phase == Phase::input_grad || phase == Phase::weight_grad;
}

// An empty window takes the place of the other.
ElementRange around(ElementRange a, ElementRange b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

ExpertTable& ExpertWindows::of(const Operation& op, std::int32_t micro_batch, const Origin& part) {
  const auto [found, is_new] =
      tables_.try_emplace({op.layer, micro_batch, goes_back(op.phase), part.begin, part.end, part.of});
  ExpertTable& table = found->second;
  if (!is_new) return table;
  const std::int64_t balanced = std::min(shape_.capacity, (shape_.choices + shape_.experts - 1) / shape_.experts);
  const ElementRange window{balanced * part.begin / part.of, balanced * part.end / part.of};
  table.outgoing.assign(static_cast<std::size_t>(shape_.experts), window);
  table.incoming = table.outgoing;
  return table;
}

void ExpertWindows::join(std::int32_t layer, std::int32_t micro_batch, Phase phase,
                         std::vector<ElementRange>& joined) const {
  joined.clear();
  const auto first = tables_.lower_bound({layer, micro_batch, goes_back(phase), 0, 0, 0});
  for (auto at = first; at != tables_.end(); ++at) {
    const auto& [of_layer, of_batch, back, begin, end, of] = at->first;
    if (of_layer != layer || of_batch != micro_batch || back != goes_back(phase)) break;
    joined.resize(at->second.incoming.size());
    for (std::size_t block = 0; block < joined.size(); ++block) {
      joined[block] = around(joined[block], at->second.incoming[block]);
    }
  }
}

void find_windows(const Matrix& routing, std::int64_t capacity, std::span<ElementRange> by_expert) {
  std::ranges::fill(by_expert, ElementRange{});
  for (std::int64_t r = 0; r < routing.rows; ++r) {
    const float* const slots = static_cast<const float*>(routing.data) + r * routing.stride;
    for (std::int64_t j = 0; j < routing.columns / 2; ++j) {
      if (slots[j] < 0) continue;
      const auto slot = static_cast<std::int64_t>(slots[j]);
      ElementRange& window = by_expert[static_cast<std::size_t>(slot / capacity)];
      window = around(window, {slot % capacity, slot % capacity + 1});
    }
  }
}

}  // namespace weft
