// The library's own collectives against the definition of each (collective/semantics.hpp): every rank fills its input
// with values that say (rank, piece, place), and computes what its output must hold.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"
#include "comm/mpi/test_session.hpp"
#include "comm/native_library.hpp"

namespace weft {
namespace {

// Small whole numbers: sums are exact in every type.
std::int64_t value_of(std::int64_t rank, std::int64_t piece, std::int64_t place) {
  return (rank + 1) * 7 + piece * 3 + place % 11;
}

std::int64_t reduced_value(const Content& content, std::int64_t ranks, std::int64_t place, ReduceOp op) {
  std::vector<std::int64_t> values;
  for (std::int64_t r = 0; r < ranks; ++r) {
    if (content.from.contains(r)) values.push_back(value_of(r, content.piece, place));
  }
  if (op == ReduceOp::max) return std::ranges::max(values);
  if (op == ReduceOp::min) return std::ranges::min(values);
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// A rank's input or output buffer, and what its slots hold, place by place.
template <class Element>
class Buffer {
 public:
  Buffer(const NativeRequest& request, std::int64_t rank) : request_(request), rank_(rank) {
    const std::int64_t in = input_elements(request.spec, request.sizes, rank);
    const std::int64_t out = output_elements(request.spec, request.sizes, rank);
    input.resize(in);
    output.resize(out);
    in_place.resize(std::max(in, out));
    fill(input, [](std::int64_t slot) { return slot; });
    fill(in_place, [&](std::int64_t slot) { return in_place_slot_of_input(request_.spec, rank_, slot); });
  }

  void expect_output() const {
    expect(output, [](std::int64_t slot) { return slot; });
  }
  void expect_in_place() const {
    expect(in_place, [&](std::int64_t slot) { return in_place_slot_of_output(request_.spec, rank_, slot); });
  }

  std::vector<Element> input;
  std::vector<Element> output;
  std::vector<Element> in_place;

 private:
  std::int64_t elements_of(std::int64_t piece) const { return request_.sizes[piece]; }

  // Where a slot of the buffer begins: the buffer with the more slots says how long the slots before it are.
  std::int64_t begin_of(std::int64_t place_of_slot, bool as_output) const {
    std::int64_t begin = 0;
    for (std::int64_t slot = 0; slot < place_of_slot; ++slot) {
      begin += elements_of(
          (as_output ? required_content(request_.spec, rank_, slot) : initial_content(request_.spec, rank_, slot))
              .piece);
    }
    return begin;
  }

  // In place, offsets count in the buffer that has all slots: the output of a gather, the input of a scatter.
  bool counts_as_output(bool is_output, std::int64_t slot, std::int64_t place) const {
    return slot == place ? is_output : !is_output;
  }

  template <class Where>
  void fill(std::vector<Element>& buffer, const Where& where) const {
    for (std::int64_t slot = 0; slot < input_slots(request_.spec, rank_); ++slot) {
      const Content content = initial_content(request_.spec, rank_, slot);
      const std::int64_t begin = begin_of(where(slot), counts_as_output(false, slot, where(slot)));
      for (std::int64_t i = 0; i < elements_of(content.piece); ++i) {
        buffer.at(begin + i) = static_cast<Element>(value_of(rank_, content.piece, i));
      }
    }
  }

  template <class Where>
  void expect(const std::vector<Element>& buffer, const Where& where) const {
    for (std::int64_t slot = 0; slot < output_slots(request_.spec, rank_); ++slot) {
      const Content content = required_content(request_.spec, rank_, slot);
      const std::int64_t begin = begin_of(where(slot), counts_as_output(true, slot, where(slot)));
      for (std::int64_t i = 0; i < elements_of(content.piece); ++i) {
        auto expected = static_cast<Element>(reduced_value(content, request_.spec.ranks, i, request_.op));
        if (reduces(request_.spec.kind) && request_.op == ReduceOp::average) {
          expected /= static_cast<Element>(request_.spec.ranks);
        }
        ASSERT_EQ(buffer.at(begin + i), expected) << "slot " << slot << ", place " << i;
      }
    }
  }

  const NativeRequest& request_;
  std::int64_t rank_;
};

template <class Element>
void check(Transport& transport, const NativeRequest& request) {
  const auto self = std::ranges::find(request.members, transport.rank());
  if (self == request.members.end()) return;
  const std::int64_t rank = self - request.members.begin();
  SCOPED_TRACE(fmt::format("{} of {} by {}, {} ranks, {} pieces, root {}, {} elements", name_of(request.spec.kind),
                           name_of(request.type), name_of(request.op), request.spec.ranks, request.spec.pieces,
                           request.spec.root, std::accumulate(request.sizes.begin(), request.sizes.end(), 0LL)));
  const std::unique_ptr<NativeCollective> collective = transport.features().library->prepare(request);
  ASSERT_NE(collective, nullptr);
  Buffer<Element> buffer(request, rank);
  const auto bytes = [](std::vector<Element>& elements) { return reinterpret_cast<std::byte*>(elements.data()); };
  const auto run_polled = [&](std::byte* input, std::byte* output) {
    collective->start(input, output);
    while (!collective->done()) std::this_thread::yield();
  };
  collective->run(bytes(buffer.input), bytes(buffer.output));
  buffer.expect_output();
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::ranges::fill(buffer.output, Element{0});
    run_polled(bytes(buffer.input), bytes(buffer.output));
    buffer.expect_output();
  }
  Buffer<Element> other(request, rank);
  collective->run(bytes(buffer.in_place), bytes(buffer.in_place));
  buffer.expect_in_place();
  run_polled(bytes(other.in_place), bytes(other.in_place));
  other.expect_in_place();
}

// Pieces of 3, 0, 5, 1, 3, ... elements: what one rank gets differs from what another gets.
PieceSizes uneven_sizes(const CollectiveSpec& spec) {
  PieceSizes sizes;
  for (std::int64_t i = 0; i < piece_count(spec); ++i) sizes.push_back(std::vector<std::int64_t>{3, 0, 5, 1}[i % 4]);
  return sizes;
}

const std::vector<std::int64_t> kSizes = {0, 1, 1003, 12 * 4096};

template <class Element>
void check_sizes(Transport& transport, NativeRequest request, const std::vector<std::int64_t>& sizes = kSizes) {
  const std::int64_t ranks = std::ssize(request.members);
  for (const std::int64_t per_rank : {1, 3}) {
    request.spec.ranks = ranks;
    request.spec.pieces = per_rank * ranks;
    if (request.spec.kind == Collective::barrier) request.spec.pieces = 1;
    for (const std::int64_t elements : sizes) {
      request.sizes = even_sizes(request.spec, elements);
      check<Element>(transport, request);
    }
    if (request.spec.kind == Collective::barrier) continue;
    request.sizes = uneven_sizes(request.spec);
    check<Element>(transport, request);
  }
}

std::vector<std::int64_t> everyone(std::int64_t ranks) {
  std::vector<std::int64_t> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

class NativeOfEveryKind : public testing::TestWithParam<Collective> {};

TEST_P(NativeOfEveryKind, GivesWhatTheDefinitionRequires) {
  const std::unique_ptr<Transport> transport = make_mpi_transport(test_session(), {});
  std::vector<std::vector<std::int64_t>> groups = {everyone(transport->size())};
  groups.push_back(groups.front());
  std::ranges::reverse(groups.back());  // the collective's ranks are not the transport's
  if (transport->size() > 2) groups.push_back({transport->size() - 1, 0});
  for (const std::vector<std::int64_t>& members : groups) {
    if (GetParam() == Collective::send_recv && members.size() != 2) continue;
    NativeRequest request{.spec = {.kind = GetParam()}, .members = members, .sizes = {}};
    request.spec.root = has_root(GetParam()) ? std::ssize(members) - 1 : 0;
    request.type = ElementType::i32;
    check_sizes<std::int32_t>(*transport, request);
    request.type = ElementType::fp32;
    check_sizes<float>(*transport, request, {1003});
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, NativeOfEveryKind,
                         testing::Values(Collective::broadcast, Collective::reduce, Collective::gather,
                                         Collective::scatter, Collective::all_gather, Collective::reduce_scatter,
                                         Collective::all_reduce, Collective::all_to_all, Collective::send_recv,
                                         Collective::barrier),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

TEST(Native, ReducesByEveryOperationInEveryTypeTheLibraryKnows) {
  const std::unique_ptr<Transport> transport = make_mpi_transport(test_session(), {});
  for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::min}) {
      NativeRequest request{.spec = {.kind = kind, .ranks = transport->size(), .pieces = transport->size()},
                            .op = op,
                            .members = everyone(transport->size()),
                            .sizes = {}};
      request.sizes = even_sizes(request.spec, 1003);
      request.type = ElementType::fp32;
      check<float>(*transport, request);
      request.type = ElementType::i32;
      check<std::int32_t>(*transport, request);
      request.type = ElementType::i64;
      check<std::int64_t>(*transport, request);
    }
  }
}

TEST(Native, MovesHalfPrecisionButDoesNotReduceIt) {
  const std::unique_ptr<Transport> transport = make_mpi_transport(test_session(), {});
  NativeRequest request{.spec = {.kind = Collective::all_gather},
                        .type = ElementType::bf16,
                        .members = everyone(transport->size()),
                        .sizes = {}};
  check_sizes<std::uint16_t>(*transport, request);
  request.spec = {.kind = Collective::all_reduce, .ranks = transport->size(), .pieces = 1};
  request.sizes = {16};
  EXPECT_EQ(transport->features().library->prepare(request), nullptr);
}

// The library would trust the counts, and write past the end of somebody's buffer.
TEST(Native, MembersThatPrepareDifferentCallsAreNamed) {
  const std::unique_ptr<Transport> transport = make_mpi_transport(test_session(), {});
  if (transport->size() < 2) GTEST_SKIP() << "one rank has no peer";
  NativeRequest request{.spec = {.kind = Collective::all_reduce, .ranks = transport->size(), .pieces = 1},
                        .members = everyone(transport->size()),
                        .sizes = {transport->rank() == 1 ? 104 : 100}};
  try {
    transport->features().library->prepare(request);
    FAIL() << "not noticed";
  } catch (const RunFailed& failure) {
    EXPECT_STREQ(failure.what(),
                 "rank 1 prepares a native all_reduce of 104 x fp32, sum, root 0 on queue 0, but rank 0 a native "
                 "all_reduce of 100 x fp32, sum, root 0 on queue 0");
  }
}

TEST(Native, HasNoCallForMoreElementsThanTheLibraryCounts) {
  const std::unique_ptr<Transport> transport = make_mpi_transport(test_session(), {});
  NativeRequest request{.spec = {.kind = Collective::all_reduce, .ranks = transport->size(), .pieces = 2},
                        .members = everyone(transport->size()),
                        .sizes = {1 << 30, 1 << 30}};
  EXPECT_EQ(transport->features().library->prepare(request), nullptr);
  request.sizes = {1 << 30, (1 << 30) - 1};
  EXPECT_NE(transport->features().library->prepare(request), nullptr);
}

}  // namespace
}  // namespace weft
