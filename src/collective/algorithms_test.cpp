#include "collective/algorithms.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "collective/algorithm/test_requests.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

const ThreadBlock& block_of(const Program& program, const StepTrace& trace) {
  return program.ranks[trace.rank].blocks[trace.step.block];
}

const Instruction& instruction_of(const Program& program, const StepTrace& trace) {
  return block_of(program, trace).steps[trace.step.step];
}

// Input and output slots have the size of the piece that belongs there, so no other may be written into them; and the
// input is only read where it is not also the output.
void expect_own_pieces_only(const Program& program, const SymbolicRun& run, const std::string& words) {
  for (const StepTrace& trace : run.steps) {
    const Instruction& step = instruction_of(program, trace);
    if (!writes_dst(step.kind) || step.dst.buffer == BufferKind::scratch) continue;
    if (step.dst.buffer == BufferKind::input) {
      ASSERT_TRUE(program.in_place) << words;
    }
    for (std::int64_t i = 0; i < step.count; ++i) {
      const std::int64_t slot = step.dst.slot + i;
      const Content own = step.dst.buffer == BufferKind::input ? initial_content(program.spec, trace.rank, slot)
                                                               : required_content(program.spec, trace.rank, slot);
      ASSERT_EQ(trace.moved[i].piece, own.piece) << words << ": " << where(program, trace.rank, trace.step);
    }
  }
}

class EveryAlgorithm : public testing::TestWithParam<std::int64_t> {};

TEST_P(EveryAlgorithm, ReachesThePostconditionAndKeepsPiecesInTheirSlots) {
  for (const ProgramRequest& request : every_request(GetParam())) {
    const Program program = make_program(request);
    const SymbolicRun run = run_symbolically(program, 2);
    ASSERT_EQ(run.violation.value_or(""), "") << in_words(request);
    expect_own_pieces_only(program, run, in_words(request));
    // One slot is enough: the first message that has not arrived waits only for messages written before it.
    ASSERT_EQ(run_symbolically(program, 1).violation.value_or(""), "") << in_words(request);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryAlgorithm, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16));

// Executes a program on one float per piece. 1/3, 1/4, ... add up to other bits in another order.
class FloatRun {
 public:
  explicit FloatRun(const Program& program) : program_(program) {
    for (std::int64_t rank = 0; rank < program.spec.ranks; ++rank) {
      for (std::int64_t slot = 0; slot < program.spec.pieces; ++slot) {
        at(rank, {BufferKind::input, slot}) = 1.0F / static_cast<float>(3 + rank + 7 * slot);
      }
    }
    for (const StepTrace& trace : run_symbolically(program).steps) execute(trace);
  }

  float& at(std::int64_t rank, SlotRef slot) {
    const SlotRef real = located(program_, rank, slot);
    return values_[{rank, real.buffer, real.slot}];
  }

 private:
  void execute(const StepTrace& trace) {
    const Instruction& step = instruction_of(program_, trace);
    const ThreadBlock& block = block_of(program_, trace);
    for (std::int64_t i = 0; i < step.count; ++i) {
      const SlotRef src{step.src.buffer, step.src.slot + i};
      const SlotRef dst{step.dst.buffer, step.dst.slot + i};
      float value = 0;
      if (receives(step.kind)) {
        auto& messages = under_way_[{block.receive_from, trace.rank, block.channel}];
        value = messages.front();
        messages.pop_front();
        if (reduces(step.kind)) value += at(trace.rank, src);
      } else {
        value = at(trace.rank, src);
        if (reduces(step.kind)) value += at(trace.rank, dst);
      }
      if (writes_dst(step.kind)) at(trace.rank, dst) = value;
      if (sends(step.kind)) under_way_[{trace.rank, block.send_to, block.channel}].push_back(value);
    }
  }

  const Program& program_;
  std::map<std::tuple<std::int64_t, BufferKind, std::int64_t>, float> values_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::deque<float>> under_way_;
};

// Data-parallel replicas drift apart where an all_reduce gives them different bits.
TEST(EveryAllReduce, GivesAllRanksTheSameBits) {
  for (const std::int64_t ranks : {3, 6, 7, 8}) {
    for (const ProgramRequest& request : every_request(ranks)) {
      if (request.kind != Collective::all_reduce || request.root != 0) continue;
      const Program program = make_program(request);
      FloatRun run(program);
      for (std::int64_t slot = 0; slot < program.spec.pieces; ++slot) {
        double exact = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank) exact += 1.0 / static_cast<double>(3 + rank + 7 * slot);
        const float first = run.at(0, {BufferKind::output, slot});
        ASSERT_NEAR(first, exact, 1e-6) << in_words(request);
        for (std::int64_t rank = 1; rank < ranks; ++rank) {
          ASSERT_EQ(run.at(rank, {BufferKind::output, slot}), first) << in_words(request) << ", rank " << rank;
        }
      }
    }
  }
}

// In place all three work on the same buffer, so the instructions can be compared.
TEST(RingAllReduce, IsReduceScatterFollowedByAllGather) {
  for (const std::int64_t ranks : {2, 3, 4, 7}) {
    const auto of = [&](Collective kind) {
      return make_program({.kind = kind, .ranks = ranks, .parts = 3, .in_place = true});
    };
    const auto sent_by = [](const Program& program, std::int64_t rank) {
      std::vector<std::pair<std::int64_t, std::int64_t>> sent;  // peer, piece
      for (const StepTrace& trace : run_symbolically(program).steps) {
        if (trace.rank != rank || !sends(instruction_of(program, trace).kind)) continue;
        for (const Content& moved : trace.moved) sent.emplace_back(block_of(program, trace).send_to, moved.piece);
      }
      return sent;
    };
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      auto expected = sent_by(of(Collective::reduce_scatter), rank);
      for (const auto& message : sent_by(of(Collective::all_gather), rank)) expected.push_back(message);
      EXPECT_EQ(sent_by(of(Collective::all_reduce), rank), expected);
    }
  }
}

TEST(Algorithms, OfACollectiveDiffer) {
  for (const std::int64_t ranks : {6, 7, 8}) {
    std::vector<ProgramRequest> some;
    for (const ProgramRequest& request : every_request(ranks)) {
      // Groups of one or all are no levels, and pairs inside three groups make a binomial tree.
      const bool degenerate = request.algorithm == Algorithm::hierarchical && 2 * request.inner != ranks;
      if (request.root == 0 && request.servers == 0 && !degenerate) some.push_back(request);
    }
    for (const ProgramRequest& a : some) {
      for (const ProgramRequest& b : some) {
        if (a.kind != b.kind || a.in_place != b.in_place || a.parts != b.parts || a.algorithm >= b.algorithm) continue;
        Program renamed = make_program(b);
        renamed.name = name_of(a.algorithm);
        EXPECT_FALSE(make_program(a) == renamed) << in_words(a) << " and " << in_words(b);
      }
    }
  }
}

std::string error_of(const ProgramRequest& request) {
  try {
    make_program(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Algorithms, NameWhatIsWrongAndWhatIsAllowed) {
  using enum Collective;
  EXPECT_EQ(error_of({.algorithm = Algorithm::native}),
            "algorithm native: it is the transport library's own call and has no program");
  EXPECT_EQ(error_of({.algorithm = Algorithm::bruck, .kind = gather, .ranks = 4}),
            "algorithm bruck: there is no such gather; allowed are direct, binomial_tree, hierarchical");
  EXPECT_EQ(error_of({.algorithm = Algorithm::hierarchical, .ranks = 8, .inner = 3}),
            "algorithm hierarchical: inner 3 does not divide 8 ranks");
  EXPECT_EQ(error_of({.algorithm = Algorithm::hierarchical, .ranks = 8}),
            "algorithm hierarchical: inner 0 does not divide 8 ranks");
  EXPECT_EQ(error_of({.algorithm = Algorithm::parameter_server, .ranks = 8, .servers = -1}),
            "algorithm parameter_server: -1 servers; 0 or more are allowed");
  EXPECT_EQ(error_of({.algorithm = Algorithm::tree, .kind = broadcast, .ranks = 8, .root = 8}),
            "algorithm tree: root 8 is not in 0..7");
  EXPECT_EQ(error_of({.algorithm = Algorithm::ring, .ranks = 0}), "algorithm ring: 0 ranks; at least 1 is needed");
  EXPECT_EQ(error_of({.algorithm = Algorithm::ring, .ranks = 2, .parts = 0}),
            "algorithm ring: 0 parts; at least 1 is needed");
  EXPECT_EQ(error_of({.algorithm = Algorithm::direct, .kind = send_recv, .ranks = 3}),
            "algorithm direct: send_recv has 2 ranks, not 3");
}

TEST(Algorithms, OfOneRankCopy) {
  for (const ProgramRequest& request : every_request(1)) {
    const Program program = make_program(request);
    std::size_t instructions = 0;
    for (const RankProgram& rank : program.ranks) {
      for (const ThreadBlock& block : rank.blocks) instructions += block.steps.size();
    }
    EXPECT_EQ(instructions, request.in_place ? 0U : 1U) << in_words(request);
    EXPECT_EQ(program.ranks.size(), static_cast<std::size_t>(1 + request.servers));
  }
}

}  // namespace
}  // namespace weft
