// Integer ids as types. An id is an index into one table and has no other meaning.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace weft {

template <class Tag>
struct Id {
  std::int32_t value = -1;

  friend constexpr auto operator<=>(Id, Id) = default;
  constexpr bool valid() const { return value >= 0; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
};

using Rank = Id<struct RankTag>;            // a process of the job; rank r runs on device r of the device map
using NodeId = Id<struct NodeTag>;          // a host with its devices
using LinkId = Id<struct LinkTag>;          // a physical link of a cluster
using LevelId = Id<struct LevelTag>;        // a class of links of a cluster
using ClassId = Id<struct ClassTag>;        // a rank class
using OpId = Id<struct OpTag>;              // an operation of a graph or plan
using ValueId = Id<struct ValueTag>;        // a value of a graph
using ResourceId = Id<struct ResourceTag>;  // something that operations share

template <class IdType>
constexpr IdType make_id(std::size_t index) {
  return IdType{static_cast<std::int32_t>(index)};
}

}  // namespace weft

template <class Tag>
struct std::hash<weft::Id<Tag>> {
  std::size_t operator()(weft::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.value); }
};
