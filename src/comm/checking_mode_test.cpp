// The checking mode of a communicator: it names the rank whose call differs.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/test_ranks.hpp"

namespace weft {
namespace {

using namespace local_ranks;

// Rank 0 talks to rank 1, then to rank 2: it has had more calls on the queue than rank 2.
TEST(Communicator, CheckingModeKnowsGroupsThatShareAQueue) {
  on_ranks({.ranks = 3}, {.timeout = std::chrono::seconds(20), .check = true}, [&](Communicator& communicator) {
    for (const std::int64_t other : {1, 2}) {
      if (communicator.rank() != 0 && communicator.rank() != other) continue;
      PreparedCall call = call_of({.ranks = 2, .in_place = true}, 10);
      call.members = {0, other};
      Communicator::Prepared& prepared = communicator.prepare(call);
      std::vector<float> data(10, 1);
      for (int i = 0; i < 3; ++i) communicator.wait(communicator.start(prepared, nullptr, data.data()));
      EXPECT_EQ(data, std::vector<float>(10, 8));
    }
  });
}

TEST(Communicator, CheckingModeNamesTheRankThatDiffers) {
  struct Case {
    PreparedCall odd;
    const char* words;
  };
  const PreparedCall usual = call_of({.ranks = 3, .in_place = true}, 100);
  const std::vector<Case> cases = {
      {call_of({.ranks = 3, .in_place = true}, 101), "rank 1 calls all_reduce 'test' of 101 x fp32"},
      {call_of({.ranks = 3, .in_place = true}, 100, ElementType::i32), "rank 1 calls all_reduce 'test' of 100 x i32"},
      {call_of({.ranks = 3, .in_place = true}, 100, ElementType::fp32, ReduceOp::max), "100 x fp32, max"},
      {call_of({.kind = Collective::all_gather, .ranks = 3, .in_place = true}, 100), "rank 1 calls all_gather"},
  };
  for (const Case& one : cases) {
    try {
      on_ranks({.ranks = 3}, {.timeout = std::chrono::seconds(20), .check = true}, [&](Communicator& communicator) {
        std::vector<std::int64_t> data(200);
        auto& prepared = communicator.prepare(communicator.rank() == 1 ? one.odd : usual);
        communicator.wait(communicator.start(prepared, nullptr, data.data()));
      });
      FAIL() << "not noticed: " << one.words;
    } catch (const RunFailed& failure) {
      EXPECT_NE(std::string(failure.what()).find(one.words), std::string::npos) << failure.what();
      EXPECT_NE(std::string(failure.what()).find("but rank 0 calls all_reduce 'test' of 100 x fp32, sum"),
                std::string::npos)
          << failure.what();
    }
  }
}

// The ends of a message have labels of their own; that they are one call is said by a number.
TEST(Communicator, CheckingModeKnowsTheEndsOfAMessageByTheirNumber) {
  const auto exchange = [](std::int64_t number_of_rank_1) {
    on_ranks({.ranks = 2}, {.timeout = std::chrono::seconds(20), .check = true}, [&](Communicator& communicator) {
      const bool sends = communicator.rank() == 0;
      PreparedCall call = call_of({.algorithm = Algorithm::direct, .kind = Collective::send_recv, .ranks = 2}, 10);
      call.label = sends ? "stage_output forward" : "stage_input forward";
      call.identity = sends ? 7 : number_of_rank_1;
      std::vector<float> data(10, sends ? 3 : 0), received(10);
      communicator.wait(communicator.start(communicator.prepare(call), data.data(), received.data()));
      EXPECT_EQ(received, std::vector<float>(10, sends ? 0 : 3));
    });
  };
  exchange(7);
  try {
    exchange(9);
    FAIL() << "not noticed";
  } catch (const RunFailed& failure) {
    EXPECT_NE(std::string(failure.what()).find("rank 1 calls send_recv 'stage_input forward'"), std::string::npos)
        << failure.what();
  }
}

TEST(Communicator, CheckingModeNamesAnotherOrder) {
  PreparedCall first = call_of({.ranks = 2, .in_place = true}, 100), second = first;
  first.label = "layer 1";
  second.label = "layer 2";
  try {
    on_ranks({.ranks = 2}, {.timeout = std::chrono::seconds(20), .check = true}, [&](Communicator& communicator) {
      std::vector<float> a(100), b(100);
      auto &one = communicator.prepare(first), &two = communicator.prepare(second);
      const bool swapped = communicator.rank() == 1;
      const auto h = communicator.start(swapped ? two : one, nullptr, a.data());
      communicator.wait(communicator.start(swapped ? one : two, nullptr, b.data()));
      communicator.wait(h);
    });
    FAIL() << "not noticed";
  } catch (const RunFailed& failure) {
    EXPECT_NE(std::string(failure.what()).find("rank 1 calls all_reduce 'layer 2'"), std::string::npos)
        << failure.what();
  }
}

}  // namespace
}  // namespace weft
