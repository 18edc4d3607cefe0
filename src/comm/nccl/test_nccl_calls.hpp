// Collectives in streams against the definition, on buffers of every layout, over whatever memory a device has. All
// ranks make the same cases in the same order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/half_float.hpp"
#include "collective/algorithms.hpp"
#include "comm/naive_collective.hpp"
#include "comm/stream_collectives.hpp"

namespace weft::nccl_calls {

class TestMemory {
 public:
  virtual ~TestMemory() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void write(std::byte* to, const std::vector<std::byte>& bytes) = 0;
  virtual std::vector<std::byte> read(const std::byte* from, std::size_t bytes) = 0;
  virtual void* stream(std::int64_t queue) = 0;
  virtual void wait() = 0;  // for all streams
  // After the writes and before the first call. Where a write waits for the whole device, so for calls of other ranks
  // that wait for this one, nobody may begin before all have written.
  virtual void all_written() {}
};

// Of this processor: calls are over when they return.
class HostMemory final : public TestMemory {
 public:
  // The test buffers begin with sixteen bytes more: some are aligned as vectors of the kernel are, some not.
  std::byte* allocate(std::size_t bytes) override { return memory_.emplace_back(std::vector<std::byte>(bytes)).data(); }
  void write(std::byte* to, const std::vector<std::byte>& bytes) override { std::copy(bytes.begin(), bytes.end(), to); }
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) override { return {from, from + bytes}; }
  void* stream(std::int64_t) override { return nullptr; }
  void wait() override {}

 private:
  std::deque<std::vector<std::byte>> memory_;
};

enum class Lie : std::uint8_t {
  together,  // in one place
  alike,     // in several places, cut alike on all ranks
  shards,    // the shares of each tensor side by side, as parameters lie
  unlike     // cut otherwise on every rank
};

struct Case {
  PreparedCall call;
  Lie lie = Lie::together;
  bool in_place = false;
};

// Segments of these lengths in this order, in places of another order with guards between them.
class TestBuffer {
 public:
  TestBuffer(TestMemory& memory, const std::vector<std::int64_t>& places) : memory_(memory) {
    std::int64_t bytes = kGuard;
    for (const std::int64_t place : places) bytes += place + kGuard;
    image_.assign(static_cast<std::size_t>(bytes), kGuardByte);
    base_ = memory.allocate(image_.size());
  }

  std::byte* base() const { return base_; }
  void add(std::int64_t begin, std::int64_t bytes) { segments_.push_back({base_ + begin, bytes}); }
  const std::vector<Segment>& segments() const { return segments_; }
  std::int64_t bytes() const {
    return std::accumulate(segments_.begin(), segments_.end(), std::int64_t{0},
                           [](std::int64_t sum, const Segment& s) { return sum + s.bytes; });
  }

  // From byte `begin` of the segments on.
  void store(const std::vector<std::byte>& bytes, std::int64_t begin = 0) {
    const std::byte* from = bytes.data();
    std::int64_t left = std::ssize(bytes);
    for (const Segment& s : segments_) {
      const std::int64_t skipped = std::min(begin, s.bytes), count = std::min(left, s.bytes - skipped);
      std::copy_n(from, count, image_.begin() + (s.data - base_) + skipped);
      begin -= skipped;
      from += count;
      left -= count;
    }
    memory_.write(base_, image_);
  }

  std::vector<std::byte> load() {
    std::vector<std::byte> bytes;
    image_ = memory_.read(base_, image_.size());
    for (const Segment& s : segments_) {
      const auto first = image_.begin() + (s.data - base_);
      bytes.insert(bytes.end(), first, first + s.bytes);
    }
    return bytes;
  }

  // Of what was loaded: whether nothing was written beside the segments.
  bool guards_are_whole() const {
    std::vector<Segment> in_order = segments_;
    std::ranges::sort(in_order, {}, &Segment::data);
    auto from = image_.begin();
    const auto is_guard = [](std::byte byte) { return byte == kGuardByte; };
    for (const Segment& s : in_order) {
      const auto first = image_.begin() + (s.data - base_);
      if (from < first && !std::all_of(from, first, is_guard)) return false;
      from = std::max(from, first + s.bytes);
    }
    return std::all_of(from, image_.end(), is_guard);
  }

  static constexpr std::int64_t kGuard = 16;

 private:
  static constexpr std::byte kGuardByte{0xa5};
  TestMemory& memory_;
  std::vector<std::byte> image_;
  std::byte* base_ = nullptr;
  std::vector<Segment> segments_;
};

inline std::int64_t sum_of(const std::vector<std::int64_t>& list) {
  return std::accumulate(list.begin(), list.end(), std::int64_t{0});
}

// `cuts`: bytes of every segment. The places stand in a random order.
inline TestBuffer scattered(TestMemory& memory, const std::vector<std::int64_t>& cuts, std::mt19937& random) {
  TestBuffer buffer(memory, cuts);
  std::vector<std::size_t> order(cuts.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::int64_t> begins(cuts.size());
  std::int64_t at = TestBuffer::kGuard;
  for (const std::size_t i : order) {
    begins[i] = at;
    at += cuts[i] + TestBuffer::kGuard;
  }
  for (std::size_t i = 0; i < cuts.size(); ++i) buffer.add(begins[i], cuts[i]);
  return buffer;
}

// A share's part of two tensors: of the first, every share has as much.
inline TestBuffer as_shards(TestMemory& memory, const std::vector<std::int64_t>& shares, std::int64_t width) {
  const std::int64_t first = *std::min_element(shares.begin(), shares.end()) / width / 2 * width;
  const std::int64_t of_first = first * std::ssize(shares);
  TestBuffer buffer(memory, {of_first, sum_of(shares) - of_first});
  std::int64_t second = TestBuffer::kGuard + of_first + TestBuffer::kGuard;
  for (std::int64_t r = 0; r < std::ssize(shares); ++r) {
    buffer.add(TestBuffer::kGuard + r * first, first);
    buffer.add(second, shares[r] - first);
    second += shares[r] - first;
  }
  return buffer;
}

// Cuts each block in three, some of them empty.
inline std::vector<std::int64_t> cut(const std::vector<std::int64_t>& blocks, std::int64_t width,
                                     std::mt19937& random) {
  const std::uint32_t a = static_cast<std::uint32_t>(random() % 5), b = static_cast<std::uint32_t>(random() % 5);
  std::vector<std::int64_t> cuts;
  for (const std::int64_t bytes : blocks) {
    const std::int64_t elements = bytes / width, first = elements * a / 8, second = elements * b / 8;
    for (const std::int64_t part : {first, second, elements - first - second}) cuts.push_back(part * width);
  }
  return cuts;
}

// Elements that go to or come from each member in this buffer of a member; one block where none are told apart.
inline std::vector<std::int64_t> blocks_of(const PreparedCall& call, std::int64_t member, bool output, bool in_place) {
  const std::int64_t n = call.spec.ranks, width = size_of(call.type).value;
  const bool whole = in_place || (call.spec.kind == Collective::all_gather) == output;
  const bool divided = is_divided(call.spec.kind) && (whole || call.spec.kind == Collective::all_to_all);
  std::vector<std::int64_t> blocks;
  for (std::int64_t other = 0; divided && other < n; ++other) {
    const bool of_pairs = call.spec.kind == Collective::all_to_all;
    const std::int64_t slots = call.spec.pieces / n;
    const std::int64_t block = !of_pairs ? other : output ? other * n + member : member * n + other;
    const auto first = call.sizes.begin() + block * slots;
    blocks.push_back(std::accumulate(first, first + slots, std::int64_t{0}) * width);
  }
  if (divided) return blocks;
  return {width *
          (output ? output_elements(call.spec, call.sizes, member) : input_elements(call.spec, call.sizes, member))};
}

inline TestBuffer buffer_for(TestMemory& memory, const Case& of, std::int64_t member, bool output,
                             std::mt19937& random) {
  const std::int64_t width = size_of(of.call.type).value;
  const std::vector<std::int64_t> blocks = blocks_of(of.call, member, output, of.in_place);
  if (of.lie == Lie::together) return scattered(memory, {sum_of(blocks)}, random);
  if (of.lie == Lie::shards) return as_shards(memory, blocks, width);
  return scattered(memory, cut(blocks, width, random), random);
}

inline double value_of(ElementType type, const std::byte* from) {
  const auto get = [&](auto value) {
    std::memcpy(&value, from, sizeof(value));
    return value;
  };
  if (type == ElementType::fp32) return static_cast<double>(get(float{}));
  if (type == ElementType::i64) return static_cast<double>(get(std::int64_t{}));
  WEFT_CHECK(type == ElementType::bf16);
  return static_cast<double>(float_from_bf16(get(std::uint16_t{})));
}

inline std::vector<std::byte> sum_of_values(ElementType type, const std::vector<std::byte>& a,
                                            const std::vector<std::byte>& b) {
  std::vector<std::byte> sum(a.size());
  for (std::size_t i = 0; i < a.size(); i += static_cast<std::size_t>(size_of(type).value)) {
    store_value(type, sum.data() + i, value_of(type, a.data() + i) + value_of(type, b.data() + i));
  }
  return sum;
}

inline std::string in_words(const Case& of) {
  return fmt::format("{} ({}) of {} elements {}, {} among {}, lie {}{}{}", name_of(of.call.spec.kind),
                     of.call.program != nullptr ? of.call.program->name : "native", sum_of(of.call.sizes),
                     name_of(of.call.type), name_of(of.call.op), fmt::join(of.call.members, " "),
                     static_cast<int>(of.lie), of.in_place ? ", in place" : "", of.call.accumulate ? ", added" : "");
}

struct Bound {
  Case of;
  std::int64_t member = 0;
  TestBuffer input, output;  // in place: only the output
  std::size_t prepared = 0;
  const TestBuffer& in() const { return of.in_place ? output : input; }
};

inline std::int64_t slots_bytes(const PreparedCall& call, std::int64_t slots) {
  return std::accumulate(call.sizes.begin(), call.sizes.begin() + slots, std::int64_t{0}) * size_of(call.type).value;
}

inline void run_once(StreamCollectives& collectives, TestMemory& memory, std::vector<Bound>& all) {
  std::vector<std::vector<std::byte>> sums;
  for (Bound& b : all) {
    const PreparedCall& call = b.of.call;
    const std::vector<std::byte> values = input_bytes(call.spec, call.sizes, call.type, b.member);
    std::vector<std::byte> before(static_cast<std::size_t>(b.output.bytes()));
    for (std::size_t i = 0; call.accumulate && i < before.size();
         i += static_cast<std::size_t>(size_of(call.type).value)) {
      store_value(call.type, before.data() + i, static_cast<double>(i % 7));
    }
    b.output.store(before);
    sums.push_back(std::move(before));
    if (b.of.in_place) {
      b.output.store(values, slots_bytes(call, in_place_slot_of_input(call.spec, b.member, 0)));
    } else {
      b.input.store(values);
    }
  }
  memory.all_written();
  for (Bound& b : all) {
    collectives.start(b.prepared, b.in().segments(), b.output.segments(), memory.stream(b.of.call.queue));
  }
  memory.wait();
  EXPECT_EQ(collectives.failure(), "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    Bound& b = all[i];
    const PreparedCall& call = b.of.call;
    std::vector<std::byte> expected = expected_bytes(call.spec, call.sizes, call.type, call.op, b.member);
    if (call.accumulate) expected = sum_of_values(call.type, expected, sums[i]);
    std::vector<std::byte> got = b.output.load();
    if (b.of.in_place) {
      const auto begin = got.begin() + slots_bytes(call, in_place_slot_of_output(call.spec, b.member, 0));
      got = {begin, begin + std::ssize(expected)};
    }
    EXPECT_TRUE(got == expected) << "member " << b.member << ": " << in_words(b.of);
    EXPECT_TRUE(b.output.guards_are_whole()) << "member " << b.member << ": " << in_words(b.of);
  }
}

// Two executions of every case that this rank has a part in.
inline void check_cases(StreamCollectives& collectives, TestMemory& memory, std::int64_t rank,
                        const std::vector<Case>& cases) {
  std::vector<Bound> all;
  std::uint32_t number = 0;
  for (const Case& of : cases) {
    ++number;
    const auto self = std::find(of.call.members.begin(), of.call.members.end(), rank);
    if (self == of.call.members.end()) continue;
    std::mt19937 random(number * 1000 + (of.lie == Lie::unlike ? static_cast<std::uint32_t>(rank) : 0));
    const std::int64_t member = self - of.call.members.begin();
    std::mt19937 same = random;
    TestBuffer input = buffer_for(memory, of, member, false, random),
               output = buffer_for(memory, of, member, true, same);
    all.push_back({of, member, std::move(input), std::move(output)});
    Bound& b = all.back();
    b.prepared = collectives.prepare(of.call, b.in().segments(), b.output.segments());
  }
  collectives.connect();
  run_once(collectives, memory, all);
  run_once(collectives, memory, all);
}

inline PreparedCall call_of(Collective kind, std::vector<std::int64_t> members, std::int64_t elements, ElementType type,
                            ReduceOp op) {
  PreparedCall call;
  const std::int64_t n = std::ssize(members);
  call.spec = {.kind = kind, .ranks = n, .pieces = is_divided(kind) ? n : 1};
  call.sizes = even_sizes(call.spec, elements);
  call.type = type;
  call.op = op;
  call.members = std::move(members);
  call.segments = 16;
  call.label = "test";
  return call;
}

// Every collective of these members; the odd sizes leave the members shares of different lengths.
inline void add_cases(std::vector<Case>& cases, const std::vector<std::int64_t>& members,
                      const std::vector<std::int64_t>& sizes) {
  const auto n = std::ssize(members);
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                Collective::all_to_all, Collective::send_recv}) {
    if (kind == Collective::send_recv && n != 2) continue;
    for (const ElementType type : {ElementType::fp32, ElementType::bf16, ElementType::i64, ElementType::u8}) {
      if (type == ElementType::u8 && reduces(kind)) continue;  // encoded tensors travel and are not added up
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        if (op == ReduceOp::max && !reduces(kind)) continue;
        for (const std::int64_t elements : sizes) {
          for (const Lie lie : {Lie::together, Lie::alike, Lie::shards, Lie::unlike}) {
            if (lie == Lie::shards && (!is_divided(kind) || kind == Collective::all_to_all)) continue;
            for (const bool in_place : {false, true}) {
              if (in_place &&
                  (kind == Collective::send_recv || (kind == Collective::all_to_all && elements % n != 0))) {
                continue;
              }
              Case& of = cases.emplace_back(Case{call_of(kind, members, elements, type, op), lie, in_place});
              of.call.queue = std::ssize(cases) % 2;
              if (kind != Collective::reduce_scatter || in_place || op != ReduceOp::sum) continue;
              cases.push_back(of);
              cases.back().call.accumulate = true;
            }
          }
        }
      }
    }
  }
}

// Every program that training uses, in one part and in three, out of place and in place.
inline std::vector<Case> program_cases(std::int64_t ranks, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> world(static_cast<std::size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  std::vector<Case> cases;
  const auto add = [&](const ProgramRequest& request, std::int64_t elements, ElementType type, ReduceOp op, Lie lie) {
    Case of{call_of(request.kind, world, elements, type, op), lie, request.in_place};
    of.call.program = std::make_shared<const Program>(make_program(request));
    of.call.spec = of.call.program->spec;
    of.call.sizes = even_sizes(of.call.spec, elements);
    of.call.queue = std::ssize(cases) % 2;
    cases.push_back(of);
    if (request.kind != Collective::reduce_scatter || request.in_place || op != ReduceOp::sum) return;
    of.call.accumulate = true;
    cases.push_back(of);
  };
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                Collective::all_to_all, Collective::broadcast, Collective::send_recv}) {
    if (kind == Collective::send_recv && ranks != 2) continue;
    for (const Algorithm algorithm : algorithms_for(kind)) {
      for (const std::int64_t parts : {1, 3}) {
        for (const bool in_place : {false, true}) {
          const std::int64_t inner = algorithm == Algorithm::hierarchical ? (ranks % 2 == 0 ? 2 : 1) : 0;
          const ProgramRequest request{.algorithm = algorithm,
                                       .kind = kind,
                                       .ranks = ranks,
                                       .parts = parts,
                                       .in_place = in_place,
                                       .inner = inner};
          for (const std::int64_t elements : sizes) {
            if (in_place && kind == Collective::all_to_all && elements % (ranks * ranks * parts) != 0) continue;
            if (in_place && kind == Collective::send_recv) continue;
            add(request, elements, ElementType::fp32, ReduceOp::sum, Lie::together);
            add(request, elements, ElementType::bf16, ReduceOp::sum, Lie::unlike);
            if (!reduces(kind)) continue;
            add(request, elements, ElementType::i64, ReduceOp::max, Lie::alike);
            add(request, elements, ElementType::fp32, ReduceOp::min, Lie::unlike);
            if (ranks % 2 == 0 && ranks < 5) add(request, elements, ElementType::fp32, ReduceOp::average, Lie::alike);
          }
        }
      }
    }
  }
  return cases;
}

// The world, and on four ranks both ways to take them in pairs; messages in both directions.
inline std::vector<Case> all_cases(std::int64_t ranks, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> world(static_cast<std::size_t>(ranks));
  std::iota(world.begin(), world.end(), 0);
  std::vector<Case> cases;
  add_cases(cases, world, sizes);
  if (ranks == 2) add_cases(cases, {1, 0}, {37});
  if (ranks == 4) {
    for (const std::vector<std::int64_t>& pair :
         std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 3}, {0, 2}, {3, 1}, {1, 3}}) {
      add_cases(cases, pair, {37});
    }
  }
  return cases;
}

}  // namespace weft::nccl_calls
