#include "graph/sharding.hpp"

#include <algorithm>

#include "base/enum_name.hpp"

namespace weft {

std::string_view name_of(Share share) {
  static constexpr std::string_view kNames[] = {"blocks", "sequences", "mirrored"};
  return enum_name(kNames, share);
}

bool Sharding::is_partial(Axis axis) const {
  return std::find(partial.begin(), partial.end(), axis) != partial.end();
}

std::optional<Share> Sharding::rows_over(Axis axis) const {
  for (const Split& split : splits) {
    if (split.dim == 0 && split.axis == axis) return split.share;
  }
  return std::nullopt;
}

void Sharding::add_partial(Axis axis) {
  if (!is_partial(axis)) partial.push_back(axis);
}

void Sharding::remove(Axis axis) {
  std::erase_if(splits, [&](const Split& split) { return split.axis == axis; });
  std::erase(partial, axis);
}

Sharding of_rows(const Sharding& sharding) {
  Sharding rows = sharding;
  std::erase_if(rows.splits, [](const Split& split) { return split.dim != 0; });
  return rows;
}

std::vector<ElementRange> positions_of(Share share, std::int64_t sequence, AxisPlace place) {
  const bool mirrored = share == Share::mirrored && place.ranks > 1 && sequence % (2 * place.ranks) == 0;
  const std::int64_t blocks = mirrored ? 2 * place.ranks : place.ranks, length = sequence / blocks;
  std::vector<ElementRange> stretches{{place.rank * length, (place.rank + 1) * length}};
  if (mirrored) {
    const std::int64_t other = blocks - 1 - place.rank;
    stretches.push_back({other * length, (other + 1) * length});
  }
  return stretches;
}

std::vector<ElementRange> rows_of_share(Share share, WholeRows whole, AxisPlace place, ElementRange of_share) {
  const std::int64_t sequences = share == Share::blocks ? 1 : whole.sequences, length = whole.rows / sequences;
  const std::vector<ElementRange> stretches = positions_of(share, length, place);
  std::vector<ElementRange> found;
  std::int64_t in_share = 0;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    for (const ElementRange& stretch : stretches) {
      const ElementRange wanted = overlap(of_share, {in_share, in_share + stretch.size()});
      const std::int64_t shift = sequence * length + stretch.begin - in_share;
      in_share += stretch.size();
      if (wanted.empty()) continue;
      if (!found.empty() && found.back().end == wanted.begin + shift) {
        found.back().end = wanted.end + shift;
      } else {
        found.push_back({wanted.begin + shift, wanted.end + shift});
      }
    }
  }
  return found;
}

}  // namespace weft
