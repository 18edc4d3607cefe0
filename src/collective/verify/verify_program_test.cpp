#include "collective/verify/verify_program.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "collective/verify/structure.hpp"

namespace weft {
namespace {

using enum InstructionKind;

SlotRef in(std::int64_t slot) {
  return {BufferKind::input, slot};
}
SlotRef out(std::int64_t slot) {
  return {BufferKind::output, slot};
}
SlotRef scratch(std::int64_t slot) {
  return {BufferKind::scratch, slot};
}

// Rank 0 broadcasts one piece: it copies its own in block 0 and sends in block 1; rank 1 receives in block 0.
Program broadcast_to_one() {
  Program program{.name = "test", .spec = {Collective::broadcast, 2, 0, 1}, .in_place = false, .ranks = {}};
  program.ranks.resize(2);
  program.ranks[0].blocks = {{-1, -1, 0, {{copy, in(0), out(0), 1, {}}}}, {1, -1, 0, {{send, in(0), out(0), 1, {}}}}};
  program.ranks[1].blocks = {{-1, 0, 0, {{receive, in(0), out(0), 1, {}}}}};
  return program;
}

// Two ranks reduce one piece: each sends its input and adds what it receives to it.
Program exchange() {
  Program program{.name = "test", .spec = {Collective::all_reduce, 2, 0, 1}, .in_place = false, .ranks = {}};
  program.ranks.resize(2);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    program.ranks[rank].blocks = {{1 - rank, -1, 0, {{send, in(0), {}, 1, {}}}},
                                  {-1, 1 - rank, 0, {{receive_reduce_copy, in(0), out(0), 1, {}}}}};
  }
  return program;
}

Instruction& step(Program& program, std::size_t rank, std::size_t block, std::size_t index) {
  return program.ranks[rank].blocks[block].steps[index];
}

void expect_refused(const Program& program, ProgramRule rule, const std::string& words) {
  const ProgramVerdict verdict = verify_program(program);
  ASSERT_FALSE(verdict.accepted());
  EXPECT_EQ(name_of(verdict.violation->rule), name_of(rule));
  EXPECT_EQ(verdict.words(), words);
}

TEST(ProgramVerifier, AcceptsSmallProgramsAndTracesEveryStep) {
  EXPECT_EQ(verify_program(broadcast_to_one()).words(), "");
  EXPECT_EQ(verify_program(broadcast_to_one()).run.steps.size(), 3u);
  EXPECT_EQ(verify_program(exchange()).words(), "");
  EXPECT_EQ(verify_program(exchange()).run.steps.size(), 4u);
}

TEST(ProgramVerifier, AcceptsEveryGeneratedProgram) {
  for (int kind = 0; kind <= static_cast<int>(Collective::barrier); ++kind) {
    for (const Algorithm algorithm : algorithms_for(static_cast<Collective>(kind))) {
      for (const std::int64_t ranks : {2, 3, 4, 5, 7, 8, 16}) {
        for (const bool in_place : {false, true}) {
          for (const std::int64_t parts : {1, 3}) {
            ProgramRequest request{.algorithm = algorithm, .kind = static_cast<Collective>(kind), .ranks = ranks};
            request.parts = parts;
            request.in_place = in_place;
            Program program;
            try {
              program = make_program(request);
            } catch (const Error&) {
              continue;  // not every algorithm has every rank count
            }
            EXPECT_EQ(verify_program(program).words(), "")
                << name_of(algorithm) << " " << name_of(request.kind) << " ranks " << ranks << " parts " << parts;
          }
        }
      }
    }
  }
}

TEST(ProgramVerifier, RefusesPeersAndChannelsOutOfRange) {
  Program program = broadcast_to_one();
  program.ranks[0].blocks[1].send_to = 2;
  expect_refused(program, ProgramRule::structure, "rank 0, block 1: peer 2 is not in 0..1");
  program.ranks[0].blocks[1].send_to = 0;
  expect_refused(program, ProgramRule::structure, "rank 0, block 1: is connected to its own rank");
  program.ranks[0].blocks[1].send_to = -1;
  expect_refused(program, ProgramRule::structure, "rank 0, block 1, step 0 (send): its block sends to nobody");
  program = broadcast_to_one();
  program.ranks[1].blocks[0].receive_from = -1;
  expect_refused(program, ProgramRule::structure, "rank 1, block 0, step 0 (receive): its block receives from nobody");
  program = broadcast_to_one();
  program.ranks[1].blocks[0].channel = kMaxChannels;
  expect_refused(program, ProgramRule::structure, "rank 1, block 0: channel 1048576 is not in 0..1048575");
}

TEST(ProgramVerifier, RefusesAConnectionOfTwoBlocks) {
  Program program = broadcast_to_one();
  program.ranks[0].blocks[0].send_to = 1;
  expect_refused(program, ProgramRule::structure,
                 "rank 0, blocks 0 and 1: each sends to rank 1 over channel 0; a connection belongs to one block");
}

TEST(ProgramVerifier, RefusesSlotsOutOfRangeWithoutOverflow) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  Program program = broadcast_to_one();
  step(program, 0, 1, 0).src.slot = kHuge;
  expect_refused(program, ProgramRule::structure,
                 "rank 0, block 1, step 0 (send): reads 1 slot from 9223372036854775807 of input; this rank has 1");
  step(program, 0, 1, 0).src.slot = -1;
  expect_refused(program, ProgramRule::structure,
                 "rank 0, block 1, step 0 (send): reads 1 slot from -1 of input; this rank has 1");
  program = broadcast_to_one();
  step(program, 1, 0, 0).count = kHuge;
  expect_refused(
      program, ProgramRule::structure,
      "rank 1, block 0, step 0 (receive): writes 9223372036854775807 slots from 0 of output; this rank has 1");
  step(program, 1, 0, 0).count = 0;
  expect_refused(program, ProgramRule::structure,
                 "rank 1, block 0, step 0 (receive): works on 0 slots; at least 1 is needed");
  program = broadcast_to_one();
  program.ranks[1].scratch_slots = kHuge;
  expect_refused(program, ProgramRule::structure, "rank 1: 9223372036854775807 scratch slots; 0..16777216 are allowed");
  program = broadcast_to_one();
  program.spec.pieces = kHuge;
  EXPECT_FALSE(verify_program(program).accepted());
  program.spec.pieces = kMaxProgramSlots;  // twice that many outputs
  expect_refused(program, ProgramRule::structure, "50331648 slots in all ranks; at most 16777216 are allowed");
}

TEST(ProgramVerifier, RefusesDependenciesThatAreNotThere) {
  Program program = broadcast_to_one();
  for (const InstructionId missing :
       {InstructionId{2, 0}, InstructionId{-1, 0}, InstructionId{0, 1}, InstructionId{0, -1}}) {
    step(program, 0, 1, 0).after = {missing};
    expect_refused(program, ProgramRule::structure,
                   fmt::format("rank 0, block 1, step 0 (send): waits for block {}, step {}, which is not there",
                               missing.block, missing.step));
  }
  step(program, 0, 1, 0).after = {{1, 0}};
  expect_refused(program, ProgramRule::structure, "rank 0, block 1, step 0 (send): waits for a step of its own block");
}

TEST(ProgramVerifier, RefusesToWriteAnInputThatIsNotInPlace) {
  Program program = exchange();
  step(program, 1, 1, 0).dst = in(0);
  expect_refused(
      program, ProgramRule::structure,
      "rank 1, block 1, step 0 (receive_reduce_copy): writes input slot 0; out of place the input must stay as it is");
}

TEST(ProgramVerifier, RefusesAHelperThatReadsAnInput) {
  Program program = broadcast_to_one();
  program.ranks.emplace_back();
  program.ranks[2].blocks = {{-1, -1, 0, {{copy, in(0), scratch(0), 1, {}}}}};
  program.ranks[2].scratch_slots = 1;
  expect_refused(program, ProgramRule::structure,
                 "rank 2, block 0, step 0 (copy): reads 1 slot from 0 of input; this rank has 0");
}

TEST(ProgramVerifier, RefusesACopyOntoAShiftedPartOfItself) {
  Program program = broadcast_to_one();
  program.ranks[0].scratch_slots = 3;
  program.ranks[0].blocks[0].steps.push_back({copy, scratch(0), scratch(1), 2, {}});
  expect_refused(program, ProgramRule::structure,
                 "rank 0, block 0, step 1 (copy): reads 2 slots from 0 of scratch and writes them from 1 on: they "
                 "overlap");
}

TEST(ProgramVerifier, RefusesUnequalSendsAndReceives) {
  Program program = broadcast_to_one();
  program.ranks[0].blocks[1].steps.push_back({send, in(0), {}, 1, {}});
  expect_refused(program, ProgramRule::matching,
                 "connection 0 -> 1, channel 0: 2 sends, 1 receives; rank 0, block 1, step 1 (send) is never received");
  program = broadcast_to_one();
  program.ranks[0].blocks[1].channel = 3;
  expect_refused(program, ProgramRule::matching,
                 "connection 0 -> 1, channel 0: 0 sends, 1 receives; rank 1, block 0, step 0 (receive) waits for a "
                 "message that nobody sends");
}

TEST(ProgramVerifier, RefusesMessagesOfUnequalLength) {
  Program program = broadcast_to_one();
  program.spec.pieces = 2;
  step(program, 1, 0, 0).count = 2;
  expect_refused(program, ProgramRule::matching,
                 "connection 0 -> 1, channel 0: message 0 has 1 slots from rank 0, block 1, step 0 (send), but rank 1, "
                 "block 0, step 0 (receive) expects 2");
}

// Each rank sends before it receives, in one block; with two message slots that ends, with three messages it does not.
Program sends_before_receives(std::int64_t messages) {
  Program program{.name = "test", .spec = {Collective::all_gather, 2, 0, 2 * messages}, .in_place = true, .ranks = {}};
  program.ranks.resize(2);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    ThreadBlock block{1 - rank, 1 - rank, 0, {}};
    for (std::int64_t i = 0; i < messages; ++i) block.steps.push_back({send, in(i), {}, 1, {}});
    for (std::int64_t i = 0; i < messages; ++i) {
      block.steps.push_back({receive, {}, out((1 - rank) * messages + i), 1, {}});
    }
    program.ranks[rank].blocks = {block};
  }
  return program;
}

TEST(ProgramVerifier, CountsOnTwoMessageSlotsAndNoMore) {
  EXPECT_EQ(verify_program(sends_before_receives(2)).words(), "");
  expect_refused(sends_before_receives(3), ProgramRule::deadlock,
                 "deadlock with 2 message slots a connection: rank 0, block 0, step 2 (send) waits for room in its "
                 "connection, after rank 1, block 0, step 3 (receive), which waits for the step before it, rank 1, "
                 "block 0, step 2 (send), which waits for room in its connection, after rank 0, block 0, step 3 "
                 "(receive), which waits for the step before it, the first of these");
}

TEST(ProgramVerifier, RefusesDependenciesInACircle) {
  Program program = broadcast_to_one();
  step(program, 0, 0, 0).after = {{1, 0}};
  step(program, 0, 1, 0).after = {{0, 0}};
  expect_refused(program, ProgramRule::deadlock,
                 "deadlock with 2 message slots a connection: rank 0, block 0, step 0 (copy) waits for its dependency "
                 "rank 0, block 1, step 0 (send), which waits for its dependency the first of these");
}

TEST(ProgramVerifier, RefusesAWriteBesideARead) {
  // In place, the sum replaces what the send may not have read yet.
  Program program = exchange();
  program.in_place = true;
  expect_refused(program, ProgramRule::hazard,
                 "rank 0, block 0, step 0 (send) reads output slot 0 and rank 0, block 1, step 0 (receive_reduce_copy) "
                 "writes it: nothing orders the two; the first moves piece 0 of rank 0");
  for (std::size_t rank = 0; rank < 2; ++rank) step(program, rank, 1, 0).after = {{0, 0}};
  EXPECT_EQ(verify_program(program).words(), "");
}

TEST(ProgramVerifier, RefusesAReadBesideAWrite) {
  Program program = broadcast_to_one();
  step(program, 0, 1, 0).src = out(0);
  expect_refused(program, ProgramRule::hazard,
                 "rank 0, block 0, step 0 (copy) writes output slot 0 and rank 0, block 1, step 0 (send) reads it: "
                 "nothing orders the two; the first moves piece 0 of rank 0");
  step(program, 0, 1, 0).after = {{0, 0}};
  EXPECT_EQ(verify_program(program).words(), "");
}

// The order between two blocks of a rank may come about through another rank: rank 0 sends, rank 1 answers, and only
// the answer overwrites what was sent.
TEST(ProgramVerifier, FollowsAnOrderThroughAnotherRank) {
  Program program{.name = "test", .spec = {Collective::all_reduce, 2, 0, 1}, .in_place = true, .ranks = {}};
  program.ranks.resize(2);
  program.ranks[0].blocks = {{1, -1, 0, {{send, in(0), {}, 1, {}}}}, {-1, 1, 0, {{receive, {}, out(0), 1, {}}}}};
  program.ranks[1].blocks = {{0, 0, 0, {{receive_reduce_copy_send, in(0), out(0), 1, {}}}}};
  EXPECT_EQ(verify_program(program).words(), "");
}

// With two message slots, the third send of a connection waits until its first message was received, and rank 1
// receives that after it got scratch slot 0 over channel 1. So with two slots rank 0 overwrites the scratch slot after
// it was sent; with three it may do so before.
TEST(ProgramVerifier, DoesNotCountOnFewMessageSlotsForAnOrder) {
  Program program{.name = "test", .spec = {Collective::broadcast, 2, 0, 3}, .in_place = true, .ranks = {}};
  program.ranks.resize(2);
  program.ranks[0].scratch_slots = 1;
  program.ranks[0].blocks = {{1,
                              -1,
                              0,
                              {{copy, in(0), scratch(0), 1, {}},
                               {send, in(0), {}, 1, {}},
                               {send, in(1), {}, 1, {}},
                               {send, in(2), {}, 1, {}},
                               {copy, in(1), scratch(0), 1, {}}}},
                             {1, -1, 1, {{send, scratch(0), {}, 1, {{0, 0}}}}}};
  program.ranks[1].scratch_slots = 1;
  program.ranks[1].blocks = {
      {-1, 0, 0, {{receive, {}, out(0), 1, {{1, 0}}}, {receive, {}, out(1), 1, {}}, {receive, {}, out(2), 1, {}}}},
      {-1, 0, 1, {{receive, {}, scratch(0), 1, {}}}}};
  expect_refused(program, ProgramRule::hazard,
                 "rank 0, block 1, step 0 (send) reads scratch slot 0 and rank 0, block 0, step 4 (copy) writes it: "
                 "nothing orders the two; the first moves piece 0 of rank 0");
  step(program, 0, 0, 4).after = {{1, 0}};
  EXPECT_EQ(verify_program(program).words(), "");
}

TEST(ProgramVerifier, RefusesAContributionThatCountsTwice) {
  Program program = exchange();
  program.ranks[0].blocks[1].steps.push_back({reduce, in(0), out(0), 1, {}});
  expect_refused(program, ProgramRule::value,
                 "rank 0, block 1, step 1 (reduce): piece 0 of rank 0 and piece 0 of ranks 0,1 are reduced: a "
                 "contribution would count twice");
}

TEST(ProgramVerifier, RefusesWhatIsReadBeforeItIsThere) {
  Program program = exchange();
  program.ranks[0].scratch_slots = 1;
  step(program, 0, 0, 0).src = scratch(0);
  expect_refused(program, ProgramRule::value,
                 "rank 0, block 0, step 0 (send): scratch slot 0 is read before anything is there");
}

TEST(ProgramVerifier, RefusesAMissedPostcondition) {
  Program program = exchange();
  step(program, 1, 1, 0).kind = receive;
  expect_refused(program, ProgramRule::value,
                 "rank 1, output slot 0: ends with piece 0 of rank 0, the all_reduce needs piece 0 of ranks 0,1");
  program = broadcast_to_one();
  program.ranks[0].blocks.erase(program.ranks[0].blocks.begin());
  expect_refused(program, ProgramRule::value,
                 "rank 0, output slot 0: ends with nothing, the broadcast needs piece 0 of rank 0");
}

}  // namespace
}  // namespace weft
