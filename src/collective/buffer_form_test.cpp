#include "collective/buffer_form.hpp"

#include <gtest/gtest.h>

#include "collective/algorithm/test_requests.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

// The verifier is the oracle: a form that it accepts computes the collective with those buffers.
TEST(BufferForm, GeneratorsHaveTheFormsThatPlansNeed) {
  std::int64_t formed = 0;
  for (const std::int64_t ranks : {2, 3, 4, 8}) {
    for (const ProgramRequest& request : every_request(ranks)) {
      const bool gathers = request.kind == Collective::all_gather,
                 scatters = request.kind == Collective::reduce_scatter;
      if ((!gathers && !scatters) || request.servers > 0) continue;
      SCOPED_TRACE(in_words(request));
      const BufferForm form = with_buffers(make_program(request), !request.in_place);
      EXPECT_EQ(form.fault, "");
      EXPECT_EQ(form.program.in_place, !request.in_place);
      ++formed;
    }
  }
  EXPECT_GT(formed, 100);
}

TEST(BufferForm, AProgramKeepsItsOwnForm) {
  const Program ring = make_program({.ranks = 4, .in_place = true});
  EXPECT_EQ(with_buffers(ring, true).program, ring);
  EXPECT_EQ(with_buffers(ring, true).fault, "");
}

// Both ranks send their input, store what arrives in the output and add their own input to it. With one buffer, what
// arrives would lie where the input was.
Program overwrites_its_input() {
  Program program{.name = "hand", .spec = {Collective::all_reduce, 2, 0, 1}, .in_place = false, .ranks = {}};
  for (const std::int64_t peer : {1, 0}) {
    RankProgram rank;
    rank.blocks.push_back({peer, -1, 0, {{InstructionKind::send, {BufferKind::input, 0}, {}, 1, {}}}});
    rank.blocks.push_back({-1,
                           peer,
                           0,
                           {{InstructionKind::receive, {}, {BufferKind::output, 0}, 1, {}},
                            {InstructionKind::reduce, {BufferKind::input, 0}, {BufferKind::output, 0}, 1, {}}}});
    program.ranks.push_back(rank);
  }
  return program;
}

TEST(BufferForm, InPlaceAProgramThatOverwritesItsInputReadsACopy) {
  const Program program = overwrites_its_input();
  ASSERT_TRUE(verify_program(program).accepted()) << verify_program(program).words();
  const BufferForm form = with_buffers(program, true);
  EXPECT_EQ(form.fault, "");
  EXPECT_EQ(form.program.ranks[0].scratch_slots, 1);
}

TEST(BufferForm, SaysWhatIsWrongWithAProgram) {
  Program program = overwrites_its_input();
  program.ranks[1].blocks[1].steps.pop_back();  // rank 1 does not add its own
  EXPECT_NE(with_buffers(program, false).fault, "");
  const BufferForm form = with_buffers(program, true);
  EXPECT_NE(form.fault.find("it is written for two buffers, and in place it would be wrong: "), std::string::npos)
      << form.fault;
}

}  // namespace
}  // namespace weft
