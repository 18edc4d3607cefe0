// What a thread block of a paced collective does, apart from what depends on the machine: meetings, loads, the clock.
// The kernel runs it on a GPU, tests run it on threads.
#pragma once

#include <cstring>

#include "comm/paced_device/paced_launch.hpp"

namespace weft::paced {

struct Bf16 {
  std::uint16_t bits;
};

WEFT_HOST_DEVICE inline float widen(float x) {
  return x;
}
WEFT_HOST_DEVICE inline std::int32_t widen(std::int32_t x) {
  return x;
}
WEFT_HOST_DEVICE inline std::int64_t widen(std::int64_t x) {
  return x;
}
WEFT_HOST_DEVICE inline std::int32_t widen(std::uint8_t x) {
  return x;
}
WEFT_HOST_DEVICE inline float widen(Bf16 x) {
  const std::uint32_t bits = std::uint32_t{x.bits} << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

template <class T, class Sum>
WEFT_HOST_DEVICE T narrow(Sum x) {
  return static_cast<T>(x);
}
// To the nearest, to even in the middle.
template <>
WEFT_HOST_DEVICE inline Bf16 narrow<Bf16, float>(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  if (!is_nan) bits += 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits >> 16) | (is_nan ? 0x40U : 0U))};
}

struct Add {
  template <class Sum>
  static WEFT_HOST_DEVICE Sum combine(Sum a, Sum b) {
    return a + b;
  }
};
struct Max {
  template <class Sum>
  static WEFT_HOST_DEVICE Sum combine(Sum a, Sum b) {
    return a < b ? b : a;
  }
};
struct Min {
  template <class Sum>
  static WEFT_HOST_DEVICE Sum combine(Sum a, Sum b) {
    return b < a ? b : a;
  }
};

// Sixteen bytes at a time where all places allow it.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};
template <class T>
struct alignas(sizeof(T)) Single {
  static constexpr int kSize = 1;
  T elements[1];
};

WEFT_HOST_DEVICE inline bool is_aligned(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % 16 == 0;
}

// The part of an all_reduce that a member reduces for all: whole vectors, but for the last.
struct Share {
  std::int64_t begin = 0, size = 0;  // elements
};
template <class T>
WEFT_HOST_DEVICE Share share_of(std::int64_t elements, std::int64_t members, std::int64_t member) {
  constexpr std::int64_t kVector = Vector<T>::kSize;
  const std::int64_t each = (elements + members * kVector - 1) / (members * kVector) * kVector;
  const std::int64_t begin = member * each < elements ? member * each : elements;
  return {begin, begin + each < elements ? each : elements - begin};
}

// The threads of all blocks of a member share the groups of elements from..end.
template <class Group, class T, class Block>
WEFT_HOST_DEVICE void copy_groups(Block& block, T* to, const T* from, std::int64_t begin, std::int64_t end) {
  constexpr int kAtOnce = 8;  // loads under way of a thread
  const std::int64_t step = block.all_threads();
  for (std::int64_t i = begin + block.thread_of_all(); i < end; i += kAtOnce * step) {
    Group read[kAtOnce] = {};
    for (int k = 0; k < kAtOnce; ++k) {
      if (i + k * step < end) read[k] = block.load(reinterpret_cast<const Group*>(from) + i + k * step);
    }
    for (int k = 0; k < kAtOnce; ++k) {
      if (i + k * step < end) reinterpret_cast<Group*>(to)[i + k * step] = read[k];
    }
  }
}

template <class T, class Block>
WEFT_HOST_DEVICE void copy(Block& block, std::byte* to, const std::byte* from, std::int64_t count) {
  if (to == from) return;
  T* const out = reinterpret_cast<T*>(to);
  const T* const in = reinterpret_cast<const T*>(from);
  const std::int64_t vectors = is_aligned(to) && is_aligned(from) ? count / Vector<T>::kSize : 0;
  copy_groups<Vector<T>>(block, out, in, 0, vectors);
  copy_groups<Single<T>>(block, out, in, vectors * Vector<T>::kSize, count);
}

// One group of elements of every member, added up. Loads of several members are under way at a time.
template <class Group, class Operation, int kGroups, class Block, class Sum>
WEFT_HOST_DEVICE void sum_groups(Block& block, int members, std::int64_t first, std::int64_t step, std::int64_t end,
                                 Sum (&sums)[kGroups][Group::kSize]) {
  constexpr int kAtOnce = 4;
  for (int base = 0; base < members; base += kAtOnce) {
    Group read[kAtOnce][kGroups] = {};
    for (int k = 0; k < kAtOnce; ++k) {
      for (int g = 0; g < kGroups; ++g) {
        if (base + k >= members || first + g * step >= end) continue;
        read[k][g] = block.load(reinterpret_cast<const Group*>(block.sources()[base + k]) + first + g * step);
      }
    }
    for (int k = 0; k < kAtOnce; ++k) {
      if (base + k >= members) continue;
      for (int g = 0; g < kGroups; ++g) {
        for (int e = 0; e < Group::kSize; ++e) {
          const Sum next = widen(read[k][g].elements[e]);
          sums[g][e] = base + k == 0 ? next : Operation::combine(sums[g][e], next);
        }
      }
    }
  }
}

template <class Group, class Operation, class T, class Block>
WEFT_HOST_DEVICE void reduce_groups(Block& block, T* to, int members, bool averages, std::int64_t begin,
                                    std::int64_t end) {
  using Sum = decltype(widen(T{}));
  constexpr int kGroups = 2;
  const std::int64_t step = block.all_threads();
  for (std::int64_t i = begin + block.thread_of_all(); i < end; i += kGroups * step) {
    Sum sums[kGroups][Group::kSize] = {};
    sum_groups<Group, Operation, kGroups>(block, members, i, step, end, sums);
    for (int g = 0; g < kGroups; ++g) {
      Group result;
      for (int e = 0; e < Group::kSize; ++e) {
        result.elements[e] =
            narrow<T>(averages ? static_cast<Sum>(sums[g][e] / static_cast<Sum>(members)) : sums[g][e]);
      }
      if (i + g * step < end) reinterpret_cast<Group*>(to)[i + g * step] = result;
    }
  }
}

template <class Operation, class T, class Block>
WEFT_HOST_DEVICE void reduce_sources(Block& block, T* to, const PacedLaunch& launch, std::int64_t count) {
  bool aligned = is_aligned(to);
  for (int member = 0; member < launch.members; ++member) aligned = aligned && is_aligned(block.sources()[member]);
  const std::int64_t vectors = aligned ? count / Vector<T>::kSize : 0;
  const bool averages = launch.op == ReduceOp::average;
  reduce_groups<Vector<T>, Operation>(block, to, launch.members, averages, 0, vectors);
  reduce_groups<Single<T>, Operation>(block, to, launch.members, averages, vectors * Vector<T>::kSize, count);
}

// `first`: the element of every member's source with which it begins.
template <class T, class Block>
WEFT_HOST_DEVICE void reduce(Block& block, const PacedLaunch& launch, const PacedCall& call, std::byte* to,
                             std::int64_t first, std::int64_t count) {
  if (count == 0) return;
  block.sync();  // the sources of the call before are not read any more
  for (int member = block.thread(); member < launch.members; member += block.threads()) {
    block.sources()[member] =
        block.load(&launch.group->published[member][call.entry].src) + first * static_cast<std::int64_t>(sizeof(T));
  }
  block.sync();
  T* const out = reinterpret_cast<T*>(to);
  if (launch.op == ReduceOp::max) return reduce_sources<Max>(block, out, launch, count);
  if (launch.op == ReduceOp::min) return reduce_sources<Min>(block, out, launch, count);
  reduce_sources<Add>(block, out, launch, count);
}

template <class T, class Block>
WEFT_HOST_DEVICE void first_phase(Block& block, const PacedLaunch& launch, const PacedCall& call) {
  using Kind = NcclCall::Kind;
  constexpr std::int64_t kWidth = sizeof(T);
  const auto source_of = [&](int member) { return block.load(&launch.group->published[member][call.entry].src); };
  if (call.kind == Kind::all_reduce) {
    const Share own = share_of<T>(call.elements, launch.members, launch.self);
    reduce<T>(block, launch, call, call.dst + own.begin * kWidth, own.begin, own.size);
  } else if (call.kind == Kind::reduce_scatter) {
    reduce<T>(block, launch, call, call.dst, launch.self * call.elements, call.elements);
  } else if (call.kind == Kind::reduce) {
    if (call.peer == launch.self) reduce<T>(block, launch, call, call.dst, 0, call.elements);
  } else if (call.kind == Kind::all_gather) {
    for (int member = 0; member < launch.members; ++member) {
      copy<T>(block, call.dst + member * call.elements * kWidth, source_of(member), call.elements);
    }
  } else if (call.kind != Kind::send) {  // broadcast or receive
    copy<T>(block, call.dst, source_of(call.peer), call.elements);
  }
}

// An all_reduce: what the other members have reduced.
template <class T, class Block>
WEFT_HOST_DEVICE void second_phase(Block& block, const PacedLaunch& launch, const PacedCall& call) {
  if (call.kind != NcclCall::Kind::all_reduce) return;
  for (int member = 0; member < launch.members; ++member) {
    if (member == launch.self) continue;
    const Share share = share_of<T>(call.elements, launch.members, member);
    const std::int64_t begin = share.begin * static_cast<std::int64_t>(sizeof(T));
    const std::byte* const reduced = block.load(&launch.group->published[member][call.entry].dst);
    copy<T>(block, call.dst + begin, reduced + begin, share.size);
  }
}

// Ends early where a meeting fails: then all kernels do.
template <class T, class Block>
WEFT_HOST_DEVICE void carry_out(Block& block, const PacedLaunch& launch) {
  for (int i = block.thread(); block.index() == 0 && i < launch.call_count; i += block.threads()) {
    const PacedCall& call = launch.calls[i];
    if (call.kind == NcclCall::Kind::receive) continue;
    launch.group->published[launch.self][call.entry] = {call.src, call.dst};
  }
  std::uint64_t arrived = launch.arrived + launch.arrivals_of_meeting();
  if (!block.meet(arrived)) return;
  for (int i = 0; i < launch.call_count; ++i) first_phase<T>(block, launch, launch.calls[i]);
  if (launch.has_second_phase) {
    arrived += launch.arrivals_of_meeting();
    if (!block.meet(arrived)) return;
    for (int i = 0; i < launch.call_count; ++i) second_phase<T>(block, launch, launch.calls[i]);
  }
  block.meet(launch.arrived + launch.arrivals());
}

// Waits as long as the links would have taken since it is called. False where the kernels are to end.
template <class Clock>
WEFT_HOST_DEVICE bool keep_pace(Clock& clock, const Pace& pace) {
  const std::int64_t begin = clock.now();
  std::int64_t last = begin + pace.latency;
  while (clock.now() < last) {
    if (clock.is_aborted()) return false;
  }
  if (pace.moving == 0) return true;
  clock.use_links(pace);
  auto left = static_cast<double>(pace.moving);
  bool aborted = false;
  while (left > 0 && !aborted) {
    const std::int64_t now = clock.now();
    left -= static_cast<double>(now - last) / clock.most_collectives_on_a_link(pace);
    last = now;
    aborted = clock.is_aborted();
  }
  clock.leave_links(pace);
  return !aborted;
}

}  // namespace weft::paced
