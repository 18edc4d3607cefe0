#include "graph/held_tensor.hpp"

#include <algorithm>

namespace weft {
namespace {

const Split* split_of(const ParameterTensor& tensor, std::int32_t dim) {
  const auto found =
      std::find_if(tensor.splits.begin(), tensor.splits.end(), [&](const Split& s) { return s.dim == dim; });
  return found == tensor.splits.end() ? nullptr : &*found;
}

ElementRange block_of(std::int64_t size, const AxisPlace& place) {
  const std::int64_t own = size / place.ranks;
  return {place.rank * own, (place.rank + 1) * own};
}

// Equal shares that are padded: the last ranks may have fewer rows, or none.
void hold_padded_rows(HeldTensor& held, const AxisPlace& place) {
  const std::int64_t rows = held.whole.shape.front(), step = held.whole.padded_to * place.ranks;
  const std::int64_t own = (rows + step - 1) / step * held.whole.padded_to;
  const std::int64_t begin = std::min(rows, place.rank * own), end = std::min(rows, begin + own);
  held.rows = {{begin, end}};
  held.padding = own - (end - begin);
}

// Takes a share of every section, in whole units. Where a section has fewer units than ranks, consecutive ranks hold
// the same unit.
void hold_sections(HeldTensor& held, const AxisPlace& place) {
  std::vector<Section> sections = held.whole.sections;
  if (sections.empty()) sections.push_back({held.whole.shape.front()});
  std::int64_t first = 0;
  for (const Section& section : sections) {
    if (section.held) {
      const std::int64_t units = section.rows / section.unit;
      const std::int64_t copies = units < place.ranks ? place.ranks / units : 1;
      const ElementRange own = block_of(section.rows, {place.rank / copies, place.ranks / copies});
      held.rows.push_back({first + own.begin, first + own.end});
      held.copy = held.copy || place.rank % copies != 0;
    }
    first += section.rows;
  }
}

HeldTensor part_of(const ParameterTensor& whole, const Layout& layout, const TensorHolder& holder) {
  HeldTensor held;
  held.whole = whole;
  held.columns = {0, held.width()};
  const Split* const rows = split_of(whole, 0);
  const Split* const columns = split_of(whole, 1);
  if (columns != nullptr) held.columns = block_of(held.width(), holder.on(columns->axis, layout));
  if (rows == nullptr) {
    held.rows = {{0, whole.shape.front()}};
    held.copy = columns == nullptr && holder.on(whole.layer_axis, layout).rank > 0;
  } else if (whole.padded_to > 1) {
    hold_padded_rows(held, holder.on(rows->axis, layout));
  } else {
    hold_sections(held, holder.on(rows->axis, layout));
  }
  held.copy = held.copy || whole.repeated;
  return held;
}

}  // namespace

AxisPlace TensorHolder::on(Axis axis, const Layout& layout) const {
  return {axis == Axis::tp ? tp : axis == Axis::ep ? ep : axis == Axis::etp ? etp : 0, layout.extent(axis)};
}

std::int64_t HeldTensor::row_count() const {
  std::int64_t count = padding;
  for (const ElementRange& range : rows) count += range.size();
  return count;
}

GroupKind sharding_group(const Layout& layout, Role role) {
  if (is_of_experts(role)) return GroupKind::edp;
  return layout.has_shard_groups() ? GroupKind::shard : GroupKind::dp;
}

std::vector<HeldTensor> held_tensors(const Transformer& model, const Layout& layout, std::int32_t layer, Role role,
                                     const TensorHolder& holder) {
  const std::vector<ParameterTensor> all = parameter_tensors(model, layer, role, layout.tp);
  std::vector<HeldTensor> tensors;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (const Split* const among = split_of(all[i], kAmongTensors)) {
      const ElementRange own = block_of(std::ssize(all), holder.on(among->axis, layout));
      if (static_cast<std::int64_t>(i) < own.begin || static_cast<std::int64_t>(i) >= own.end) continue;
    }
    tensors.push_back(part_of(all[i], layout, holder));
    tensors.back().offset = offset;
    offset += tensors.back().elements();
  }
  return tensors;
}

}  // namespace weft
