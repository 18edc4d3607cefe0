// Coordinates by mixed-radix arithmetic: the extents are the digits' bases, the first axis the lowest digit.
#include "cluster/mesh.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"

namespace weft {

Mesh::Mesh(std::vector<Extent> order) : order_(std::move(order)) {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto [axis, size] = order_[i];
    if (size < 1) fail("mesh: {} {} must be at least 1", name_of(axis), size);
    for (std::size_t j = 0; j < i; ++j) {
      if (order_[j].axis == axis) fail("mesh: axis {} is named twice", name_of(axis));
    }
    size_ = checked_product({size_, size}, "mesh");
    if (size_ > std::numeric_limits<std::int32_t>::max()) {
      fail("mesh: {} {} makes more ranks than {}", name_of(axis), size, std::numeric_limits<std::int32_t>::max());
    }
  }
}

std::int64_t Mesh::extent(Axis axis) const {
  for (const Extent& entry : order_) {
    if (entry.axis == axis) return entry.size;
  }
  return 1;
}

// Returns the distance in ranks between neighbours along `axis`. For an axis that the mesh does not have any number
// serves, since its only coordinate is 0.
std::int64_t Mesh::stride(Axis axis) const {
  std::int64_t stride = 1;
  for (const Extent& entry : order_) {
    if (entry.axis == axis) break;
    stride *= entry.size;
  }
  return stride;
}

std::int64_t Mesh::coordinate(Axis axis, Rank rank) const {
  WEFT_CHECK(rank.valid() && rank.value < size_);
  return rank.value / stride(axis) % extent(axis);
}

Rank Mesh::neighbour(Rank rank, Axis axis, std::int64_t coordinate) const {
  WEFT_CHECK(coordinate >= 0 && coordinate < extent(axis));
  const std::int64_t moved = rank.value + (coordinate - this->coordinate(axis, rank)) * stride(axis);
  return Rank{static_cast<std::int32_t>(moved)};
}

std::vector<Rank> Mesh::group(Rank rank, const std::vector<Axis>& axes) const {
  std::vector<Rank> members{rank};
  // Inner axes come first: all that they reach is nearer than one stride of the next axis, so the list stays ascending.
  for (const auto& [axis, size] : order_) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
    std::vector<Rank> wider;
    wider.reserve(members.size() * static_cast<std::size_t>(size));
    for (std::int64_t coordinate = 0; coordinate < size; ++coordinate) {
      for (const Rank member : members) wider.push_back(neighbour(member, axis, coordinate));
    }
    members = std::move(wider);
  }
  return members;
}

std::vector<Axis> parse_mesh_order(std::string_view text) {
  constexpr std::array kAxes{Axis::tp, Axis::cp, Axis::dp, Axis::pp};
  std::vector<Axis> order;
  for (const std::string& name : split(text, ',')) {
    const auto axis = std::find_if(kAxes.begin(), kAxes.end(), [&](Axis a) { return name_of(a) == name; });
    if (axis == kAxes.end()) fail("mesh order '{}': '{}' is not one of tp, cp, dp, pp", text, name);
    if (std::find(order.begin(), order.end(), *axis) != order.end()) {
      fail("mesh order '{}': {} is named twice", text, name);
    }
    order.push_back(*axis);
  }
  for (const Axis axis : kAxes) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) {
      fail("mesh order '{}': {} is missing; each of tp, cp, dp, pp is named once", text, name_of(axis));
    }
  }
  return order;
}

}  // namespace weft
