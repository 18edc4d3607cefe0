// Ranks arranged on named axes, and the groups that axes make.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "cluster/cluster.hpp"

namespace weft {

enum class Axis { tp, cp, dp, pp, etp, ep, edp };
std::string_view name_of(Axis axis);

// A row-major arrangement: the first axis of `order` varies fastest with the rank.
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
