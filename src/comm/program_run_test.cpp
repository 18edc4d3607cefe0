#include "comm/program_run.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "collective/algorithms.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

// Every message ends when it was asked for the fifth time; asks the test what it sees then.
class FiveQuestions final : public Transport {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 2; }
  Ticket send(std::int64_t peer, std::int64_t, std::span<const Segment>) override {
    sent_to.push_back(peer);
    return next();
  }
  Ticket receive(std::int64_t, std::int64_t, const Landing&) override { return next(); }
  bool done(Ticket ticket) override {
    const bool ended = ++questions[ticket.value] == 5;
    if (ended && on_end) on_end();
    return ended;
  }
  void pause(Clock::time_point) override {}
  void wake() override {}
  std::uint64_t moved() const override { return 0; }

  std::vector<int> questions;
  std::vector<std::int64_t> sent_to;
  std::function<void()> on_end;

 private:
  Ticket next() {
    questions.push_back(0);
    return {std::ssize(questions) - 1};
  }
};

// Out of place, a rank copies its own slice into its output: 8 MB here, while its messages travel.
TEST(ProgramRun, LooksAfterMessagesDuringALongCopy) {
  constexpr std::int64_t kElements = 4 << 20;
  for (const Collective kind : {Collective::all_gather, Collective::all_to_all}) {
    const Program program = make_program({.algorithm = algorithms_for(kind).front(), .kind = kind, .ranks = 2});
    const ProgramVerdict proof = verify_program(program);
    ASSERT_TRUE(proof.accepted());
    std::vector<LoweredRank> lowered =
        lower(program, proof.run, even_sizes(program.spec, kElements), size_of(ElementType::fp32));
    FiveQuestions transport;
    ProgramRun run(std::move(lowered[0]), {.members = {0, 1}, .credit = 1 << 30}, transport);
    std::vector<float> input(static_cast<std::size_t>(kElements), 1), output(static_cast<std::size_t>(kElements), 0);
    const Segment from{reinterpret_cast<std::byte*>(input.data()), run.input_bytes()};
    const Segment to{reinterpret_cast<std::byte*>(output.data()), run.output_bytes()};
    const auto last_of_own = static_cast<std::size_t>(kElements / 2 - 1);
    std::vector<float> seen;
    transport.on_end = [&] { seen.push_back(output[last_of_own]); };
    run.start({&from, 1}, {&to, 1});
    run.advance();
    ASSERT_TRUE(run.done());
    EXPECT_EQ(seen, (std::vector<float>{0, 0})) << "the copy was over before the messages were asked for";
    EXPECT_EQ(output[last_of_own], 1);
  }
}

// Peers that forward what they get can all begin with their first part.
TEST(ProgramRun, ConnectionsTakeTurns) {
  const Program program =
      make_program({.algorithm = Algorithm::direct, .kind = Collective::broadcast, .ranks = 4, .parts = 3});
  const ProgramVerdict proof = verify_program(program);
  ASSERT_TRUE(proof.accepted());
  std::vector<LoweredRank> lowered =
      lower(program, proof.run, even_sizes(program.spec, 300), size_of(ElementType::fp32));
  FiveQuestions transport;
  ProgramRun run(std::move(lowered[0]), {.members = {0, 1, 2, 3}, .credit = 1 << 30}, transport);
  std::vector<float> input(300, 1), output(300, 0);
  const Segment from{reinterpret_cast<std::byte*>(input.data()), run.input_bytes()};
  const Segment to{reinterpret_cast<std::byte*>(output.data()), run.output_bytes()};
  run.start({&from, 1}, {&to, 1});
  while (!run.done()) run.advance();
  ASSERT_EQ(transport.sent_to.size(), 9U);
  for (int turn = 0; turn < 3; ++turn) {
    const auto first = transport.sent_to.begin() + 3 * turn;
    EXPECT_EQ((std::set<std::int64_t>(first, first + 3)), (std::set<std::int64_t>{1, 2, 3})) << "turn " << turn;
  }
}

}  // namespace
}  // namespace weft
