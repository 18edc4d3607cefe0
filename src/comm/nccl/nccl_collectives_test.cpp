// All of it but NCCL itself: ranks are threads, their devices the memory of the host, and what stands for NCCL checks
// that all members of a communicator make the same calls.
#include "comm/nccl/nccl_collectives.hpp"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "comm/nccl/test_nccl_calls.hpp"
#include "comm/nccl/wire_form.hpp"
#include "comm/reduce_kernels.hpp"
#include "comm/tcp/test_threads.hpp"

namespace weft {
namespace {

using nccl_calls::Case;
using nccl_calls::HostMemory;

// Threads that come together again and again; the last one acts for all.
class Meeting {
 public:
  explicit Meeting(std::size_t members) : members_(members) {}
  void meet(const std::function<void()>& by_last) {
    std::unique_lock lock(mutex_);
    if (++arrived_ == members_) {
      by_last();
      arrived_ = 0;
      ++times_;
      all_here_.notify_all();
      return;
    }
    const std::uint64_t now = times_;
    if (!all_here_.wait_for(lock, std::chrono::seconds(20), [&] { return times_ != now; })) {
      throw RunFailed("the other ranks did not come");
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t members_, arrived_ = 0;
  std::uint64_t times_ = 0;
};

struct FakeCommunicator {
  explicit FakeCommunicator(std::size_t members) : meeting(members), calls(members) {}
  Meeting meeting;
  std::vector<std::span<const NcclCall>> calls;  // by member
  std::string difference;
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> messages;  // by sender and receiver
};

struct FakeWorld {
  explicit FakeWorld(std::size_t count) : ranks(count), meeting(count), words(count), colors(count), made(count) {}
  std::size_t ranks;
  Meeting meeting;
  std::vector<std::string> words;
  std::vector<std::pair<int, int>> colors;  // with the position
  std::vector<std::shared_ptr<FakeCommunicator>> made;
  int splits = 0;

  std::vector<std::string> exchange(std::size_t rank, const std::string& mine) {
    words[rank] = mine;
    std::vector<std::string> all;
    meeting.meet([] {});
    all = words;
    meeting.meet([] {});
    return all;
  }
};

bool is_message(const NcclCall& call) {
  return call.kind == NcclCall::Kind::send || call.kind == NcclCall::Kind::receive;
}

// Call number i of all members, straight from the definition.
void carry_out(FakeCommunicator& comm, std::size_t i, ElementType type, ReduceOp op) {
  using Kind = NcclCall::Kind;
  const NcclCall& first = comm.calls[0][i];
  const std::size_t n = comm.calls.size();
  const auto bytes = static_cast<std::size_t>(first.elements * size_of(type).value);
  const bool reduces =
      first.kind == Kind::all_reduce || first.kind == Kind::reduce_scatter || first.kind == Kind::reduce;
  std::vector<std::byte> result;
  for (std::size_t m = 0; m < n; ++m) {
    const NcclCall& call = comm.calls[m][i];
    if (call.kind != first.kind || call.elements != first.elements || call.peer != first.peer) {
      comm.difference = fmt::format("member {} makes another call {} than member 0", m, i);
      return;
    }
    const std::size_t read = first.kind == Kind::reduce_scatter ? n * bytes : bytes;
    if (first.kind == Kind::broadcast && m != static_cast<std::size_t>(first.peer)) continue;
    if (reduces && m > 0) {
      reduce_into(type, op, result.data(), result.data(), call.src, std::ssize(result) / size_of(type).value);
    } else {
      result.insert(result.end(), call.src, call.src + read);
    }
  }
  for (std::size_t m = 0; m < n; ++m) {
    const NcclCall& call = comm.calls[m][i];
    if (first.kind == Kind::reduce && m != static_cast<std::size_t>(first.peer)) continue;
    if (first.kind == Kind::reduce_scatter) {
      std::memcpy(call.dst, result.data() + m * bytes, bytes);
    } else {
      std::memcpy(call.dst, result.data(), result.size());
    }
  }
}

class FakeLinks final : public NcclLinks {
 public:
  FakeLinks(FakeWorld& world, std::size_t rank, std::string version)
      : world_(world), rank_(rank), version_(std::move(version)) {}

  std::string version() override { return version_; }
  std::string make_identity() override { return "world"; }
  void join(const std::string& identity) override { EXPECT_EQ(identity, "world"); }

  std::int64_t split(int color, int position, int, const std::string&) override {
    world_.colors[rank_] = {color, position};
    world_.meeting.meet([&] {
      ++world_.splits;
      std::map<int, std::size_t> sizes;
      for (const auto& [c, p] : world_.colors) ++sizes[c];
      std::map<int, std::shared_ptr<FakeCommunicator>> made;
      for (const auto& [c, size] : sizes) made[c] = std::make_shared<FakeCommunicator>(size);
      for (std::size_t r = 0; r < world_.ranks; ++r) world_.made[r] = made[world_.colors[r].first];
    });
    if (color >= 0) comms_.emplace_back(world_.made[rank_], position);
    world_.meeting.meet([] {});
    return color < 0 ? -1 : std::ssize(comms_) - 1;
  }
  void connect_pairs(std::int64_t communicator, int members) override {
    FakeCommunicator& comm = *comms_[communicator].first;
    comm.meeting.meet([&] { EXPECT_EQ(comm.calls.size(), static_cast<std::size_t>(members)); });
  }

  std::byte* allocate(std::int64_t bytes) override {
    return memory_.emplace_back(std::vector<std::byte>(static_cast<std::size_t>(bytes))).data();
  }
  void copy(std::span<const DeviceCopy> copies, void*) override {
    for (const DeviceCopy& c : copies) std::memcpy(c.to, c.from, static_cast<std::size_t>(c.bytes));
  }
  void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void*) override {
    for (const DeviceSum& s : sums) {
      reduce_into(how.type, how.op, s.to, s.left, s.right, s.bytes / size_of(how.type).value,
                  1.0 / static_cast<double>(how.divisor));
    }
  }

  void run(std::int64_t communicator, const PreparedCall& call, std::span<const NcclCall> calls, void*) override {
    if (calls.empty()) return;
    const auto& [shared, self] = comms_[communicator];
    FakeCommunicator& comm = *shared;
    if (is_message(calls.front())) return exchange(comm, self, call.type, calls);
    comm.calls[self] = calls;
    comm.meeting.meet([&] {
      comm.difference.clear();
      for (std::size_t i = 0; i < calls.size() && comm.difference.empty(); ++i) {
        for (const auto& of_member : comm.calls) {
          if (of_member.size() != calls.size()) comm.difference = "members make different numbers of calls";
        }
        if (comm.difference.empty()) carry_out(comm, i, call.type, call.op);
      }
    });
    EXPECT_EQ(comm.difference, "");
  }

  std::int64_t least_bytes_of_a_call() const override { return 0; }
  bool needs_rehearsal() const override { return false; }
  bool can_be_recorded() const override { return true; }
  std::string failure() override { return {}; }
  void abort(const std::string&) override {}

 private:
  static void exchange(FakeCommunicator& comm, int self, ElementType type, std::span<const NcclCall> calls) {
    std::unique_lock lock(comm.mutex);
    for (const NcclCall& call : calls) {
      if (call.kind != NcclCall::Kind::send) continue;
      comm.messages[{self, call.peer}].emplace_back(call.src, call.src + call.elements * size_of(type).value);
    }
    comm.arrived.notify_all();
    for (const NcclCall& call : calls) {
      if (call.kind == NcclCall::Kind::send) continue;
      auto& waiting = comm.messages[{call.peer, self}];
      if (!comm.arrived.wait_for(lock, std::chrono::seconds(20), [&] { return !waiting.empty(); })) {
        throw RunFailed("a message did not come");
      }
      EXPECT_EQ(std::ssize(waiting.front()), call.elements * size_of(type).value);
      std::copy(waiting.front().begin(), waiting.front().end(), call.dst);
      waiting.pop_front();
    }
  }

  FakeWorld& world_;
  std::size_t rank_;
  std::string version_;
  std::vector<std::pair<std::shared_ptr<FakeCommunicator>, int>> comms_;
  std::deque<std::vector<std::byte>> memory_;
};

std::unique_ptr<StreamCollectives> make(FakeWorld& world, std::int64_t rank, const std::string& version = "2.28.9") {
  const auto self = static_cast<std::size_t>(rank);
  NcclOptions options;
  options.rank = rank;
  options.ranks = static_cast<std::int64_t>(world.ranks);
  return collectives_over(
      options, [&world, self](const std::string& mine) { return world.exchange(self, mine); },
      [&] { return std::make_unique<FakeLinks>(world, self, version); });
}

TEST(NcclCollectives, AgreeWithTheDefinitionInEveryLayoutOfTheBuffers) {
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    const std::vector<Case> cases = nccl_calls::all_cases(ranks, {0, 1, 37, 480});
    FakeWorld world(static_cast<std::size_t>(ranks));
    tcp::expect_no_errors(tcp::run_threads(ranks, [&](std::int64_t rank) {
      HostMemory memory;
      nccl_calls::check_cases(*make(world, rank), memory, rank, cases);
    }));
  }
}

TEST(NcclCollectives, CarryOutProgramsInEveryLayoutOfTheBuffers) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 6}) {
    const std::vector<Case> cases = nccl_calls::program_cases(
        ranks, ranks < 4 ? std::vector<std::int64_t>{0, 1, 37, 480} : std::vector<std::int64_t>{37});
    FakeWorld world(static_cast<std::size_t>(ranks));
    tcp::expect_no_errors(tcp::run_threads(ranks, [&](std::int64_t rank) {
      HostMemory memory;
      nccl_calls::check_cases(*make(world, rank), memory, rank, cases);
    }));
  }
}

// Other calls of the same members find the communicators that are there, under whatever numbers their queues have.
TEST(NcclCollectives, ConnectOnceForAllCallsOfAGroup) {
  FakeWorld world(3);
  std::vector<Case> cases = nccl_calls::all_cases(3, {37}), later = cases;
  for (Case& each : later) each.call.queue += 7;
  std::array<int, 2> splits{};
  tcp::expect_no_errors(tcp::run_threads(3, [&](std::int64_t rank) {
    HostMemory memory;
    const std::unique_ptr<StreamCollectives> collectives = make(world, rank);
    nccl_calls::check_cases(*collectives, memory, rank, cases);
    world.meeting.meet([&] { splits[0] = world.splits; });
    nccl_calls::check_cases(*collectives, memory, rank, later);
    world.meeting.meet([&] { splits[1] = world.splits; });
  }));
  EXPECT_GT(splits[0], 0);
  EXPECT_EQ(splits[1], splits[0]);
}

PreparedCall gather_of(std::int64_t members, std::vector<std::int64_t> slices) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(members));
  std::iota(ranks.begin(), ranks.end(), 0);
  PreparedCall call = nccl_calls::call_of(Collective::all_gather, ranks, 0, ElementType::fp32, ReduceOp::sum);
  call.sizes = sliced_sizes(call.spec, slices);
  return call;
}

// Two ranks, tensors of 8 and 5 floats, times `scale`: shards of 4 and 4, and of 3 and 2. Share 0 is elements 0..6 of
// the buffer, share 1 elements 7..12. Nobody reads the memory.
struct TwoTensors {
  explicit TwoTensors(std::int64_t scale)
      : whole{at(0, 16 * scale), at(64 * scale, 12 * scale), at(16 * scale, 16 * scale), at(76 * scale, 8 * scale)},
        own{at(96 * scale, 28 * scale)},
        call(gather_of(2, {7 * scale, 6 * scale})) {}
  static Segment at(std::int64_t begin, std::int64_t bytes) {
    return {reinterpret_cast<std::byte*>(std::int64_t{1} << 30) + begin, bytes};
  }
  std::array<Segment, 4> whole;
  std::array<Segment, 1> own;
  PreparedCall call;
};

// The first tensor goes in one call, the second, whose shards differ, from each owner.
TEST(WireForm, TakesShardsOfATensorInOneCallWhereTheyAreEqual) {
  constexpr std::int64_t kScale = 1 << 19;  // calls of 8 MiB in the mean
  const TwoTensors large(kScale);
  const WireForm form = fitting_form(large.call, 0, large.own, large.whole, 8 << 20);
  ASSERT_EQ(form.size(), 3U);
  EXPECT_EQ(form[0], (WirePiece{WirePiece::kEveryMember, 4 * kScale, {0, 7 * kScale}}));
  EXPECT_EQ(form[1], (WirePiece{0, 3 * kScale, {4 * kScale}}));
  EXPECT_EQ(form[2], (WirePiece{1, 2 * kScale, {11 * kScale}}));
  const WireCalls calls = bind_calls(large.call, 0, form, std::vector<int>{0, 1}, large.own, large.whole, nullptr);
  EXPECT_EQ(calls.scratch, 0);
  EXPECT_TRUE(calls.before.empty() && calls.after.empty());
  EXPECT_EQ(calls.calls.size(), 3U);
}

// Two calls are the fewest, because the shares are of different lengths.
TEST(WireForm, CopiesSmallPiecesTogether) {
  const TwoTensors small(1 << 10);
  const WireForm form = fitting_form(small.call, 0, small.own, small.whole, 8 << 20);
  EXPECT_EQ(form, plain_form(small.call));
  const WireCalls calls = bind_calls(small.call, 0, form, std::vector<int>{0, 1}, small.own, small.whole, nullptr);
  EXPECT_EQ(calls.calls.size(), 2U);
  EXPECT_EQ(calls.after.size(), 4U);
}

TEST(WireForm, IsOneCallWhereEqualSharesLieOneAfterTheOther) {
  std::vector<float> memory(32);
  auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
  const Segment whole[] = {{bytes, 8}, {bytes + 8, 40}}, own[] = {{bytes + 64, 16}};
  const WireForm one = {{WirePiece::kEveryMember, 4, {0, 4, 8}}};
  EXPECT_EQ(fitting_form(gather_of(3, {4, 4, 4}), 1, own, whole, 0), one);
  EXPECT_EQ(plain_form(gather_of(3, {4, 4, 4})), one);
}

// The library may write a block that arrives before it has read the one that leaves from the same place.
TEST(WireForm, MovesTheBlocksOfAnExchangeInPlaceAsideFirst) {
  std::vector<float> memory(8);
  const Segment whole{reinterpret_cast<std::byte*>(memory.data()), 32};
  const PreparedCall call = nccl_calls::call_of(Collective::all_to_all, {0, 1}, 8, ElementType::fp32, ReduceOp::sum);
  std::vector<std::byte> scratch(1024);
  const WireCalls calls =
      bind_calls(call, 0, plain_form(call), std::vector<int>{0, 1}, {&whole, 1}, {&whole, 1}, scratch.data());
  EXPECT_EQ(calls.before.size(), 2U);
  for (const NcclCall& each : calls.calls) {
    if (each.kind != NcclCall::Kind::send) continue;
    EXPECT_TRUE(each.src >= scratch.data() && each.src < scratch.data() + calls.scratch);
  }
}

TEST(NcclCollectives, NameTheRanksThatPrepareDifferentCalls) {
  FakeWorld world(2);
  const std::vector<std::string> errors = tcp::run_threads(2, [&](std::int64_t rank) {
    const std::unique_ptr<StreamCollectives> collectives = make(world, rank);
    const PreparedCall call =
        nccl_calls::call_of(Collective::all_reduce, {0, 1}, 4 + rank, ElementType::fp32, ReduceOp::sum);
    std::vector<std::byte> memory(32);
    const Segment buffer{memory.data(), 4 * (4 + rank)};
    collectives->prepare(call, {&buffer, 1}, {&buffer, 1});
    collectives->connect();
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "rank 1 prepares all_reduce 'test' of 5 x fp32, sum, native, root 0 (call 0) on queue 0, but rank 0 "
              "prepares all_reduce 'test' of 4 x fp32, sum, native, root 0 (call 0)");
  }
}

TEST(NcclCollectives, NameTheRankWithAnotherLibrary) {
  FakeWorld world(3);
  const std::vector<std::string> errors =
      tcp::run_threads(3, [&](std::int64_t rank) { make(world, rank, rank == 1 ? "2.27.3" : "2.28.9"); });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 1 has NCCL 2.27.3, but rank 0 has 2.28.9");
}

TEST(NcclCollectives, RefuseWhatNcclHasNoCallFor) {
  FakeWorld world(1);
  const std::unique_ptr<StreamCollectives> collectives = make(world, 0);
  PreparedCall call = nccl_calls::call_of(Collective::all_reduce, {0}, 4, ElementType::fp8, ReduceOp::sum);
  EXPECT_THROW(collectives->prepare(call, {}, {}), Error);
  call = nccl_calls::call_of(Collective::broadcast, {0}, 4, ElementType::fp32, ReduceOp::sum);
  EXPECT_THROW(collectives->prepare(call, {}, {}), Error);
}

}  // namespace
}  // namespace weft
