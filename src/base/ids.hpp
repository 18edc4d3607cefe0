// Integer ids as types, and containers that they index. An id is an index into one table and has no other meaning.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

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
using QueueId = Id<struct QueueTag>;        // a queue of a rank class
using BlockId = Id<struct BlockTag>;        // an issue block of a rank class
using MicroBatch = Id<struct BatchTag>;     // a micro-batch of a step
using InstanceId = Id<struct InstanceTag>;  // an instance of an unfolded plan
using JointId = Id<struct JointTag>;        // a transfer of an unfolded plan with members in several rank classes

inline constexpr MicroBatch kOncePerStep{-1};  // of operations and values that a step has once, not per micro-batch

template <class IdType>
constexpr IdType make_id(std::size_t index) {
  return IdType{static_cast<std::int32_t>(index)};
}

// Consecutive ids.
template <class IdType>
class IdRange {
 public:
  struct Iterator {
    std::int32_t value;
    constexpr IdType operator*() const { return {value}; }
    constexpr Iterator& operator++() { return ++value, *this; }
    friend constexpr bool operator==(Iterator, Iterator) = default;
  };
  explicit constexpr IdRange(std::int64_t count) : end_(static_cast<std::int32_t>(count)) {}
  constexpr IdRange(IdType first, IdType end) : first_(first.value), end_(end.value) {}
  constexpr Iterator begin() const { return {first_}; }
  constexpr Iterator end() const { return {end_}; }
  constexpr std::size_t size() const { return static_cast<std::size_t>(end_ - first_); }
  constexpr IdType operator[](std::size_t i) const { return {first_ + static_cast<std::int32_t>(i)}; }
  // The inverse of operator[].
  constexpr std::int32_t position_of(IdType id) const { return id.value - first_; }

 private:
  std::int32_t first_ = 0, end_;
};

// A vector that ids of one kind index. Plain positions index it too, for loops that go through several of them.
template <class IdType, class T>
class IdVector : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  using std::vector<T>::operator[];
  constexpr decltype(auto) operator[](IdType id) { return (*this)[id.index()]; }
  constexpr decltype(auto) operator[](IdType id) const { return (*this)[id.index()]; }
  IdRange<IdType> ids() const { return IdRange<IdType>(static_cast<std::int64_t>(this->size())); }
  // The id of an element that is at the end now, or that the next push_back adds.
  IdType last_id() const { return make_id<IdType>(this->size() - 1); }
  IdType next_id() const { return make_id<IdType>(this->size()); }
  bool contains(IdType id) const { return id.valid() && id.index() < this->size(); }
};

// An array with an element for each value of an enumeration that counts from 0.
template <class Enum, class T, std::size_t count>
struct EnumArray : std::array<T, count> {
  using std::array<T, count>::operator[];
  constexpr T& operator[](Enum value) { return this->data()[static_cast<std::size_t>(value)]; }
  constexpr const T& operator[](Enum value) const { return this->data()[static_cast<std::size_t>(value)]; }
};

}  // namespace weft

template <class Tag>
struct std::hash<weft::Id<Tag>> {
  std::size_t operator()(weft::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.value); }
};
