// Ranks arranged on named axes, and the groups that axes make.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "cluster/cluster.hpp"

namespace weft {

// An axis of a mesh. A new axis is a constant here and a name in kAxisNames; nothing else lists them.
struct Axis {
  std::uint8_t number = 0;
  friend auto operator<=>(const Axis&, const Axis&) = default;
  static const Axis tp, cp, dp, pp, etp, ep, edp;
};
inline constexpr Axis Axis::tp{0}, Axis::cp{1}, Axis::dp{2}, Axis::pp{3}, Axis::etp{4}, Axis::ep{5}, Axis::edp{6};
inline constexpr std::array<std::string_view, 7> kAxisNames{"tp", "cp", "dp", "pp", "etp", "ep", "edp"};
constexpr std::string_view name_of(Axis axis) {
  return kAxisNames[axis.number];
}

// A row-major arrangement in which the first axis of `order` varies fastest with the rank.
class Mesh {
 public:
  struct Extent {
    Axis axis;
    std::int64_t size;
  };
  // `order` innermost first, each axis once.
  explicit Mesh(std::vector<Extent> order);

  std::int64_t size() const { return size_; }
  std::int64_t extent(Axis axis) const;  // 1 where the mesh has no such axis
  std::int64_t coordinate(Axis axis, Rank rank) const;
  // The rank at the same coordinates but for `axis`.
  Rank neighbour(Rank rank, Axis axis, std::int64_t coordinate) const;
  // The ranks that differ from `rank` only along `axes`, ascending.
  std::vector<Rank> group(Rank rank, const std::vector<Axis>& axes) const;
  const std::vector<Extent>& order() const { return order_; }

 private:
  std::int64_t stride(Axis axis) const;
  std::vector<Extent> order_;
  std::int64_t size_ = 1;
};

// "tp,cp,dp,pp" -> axes, innermost first. Throws Error unless each of tp, cp, dp, pp is named exactly once.
std::vector<Axis> parse_mesh_order(std::string_view text);

}  // namespace weft
