// Programs survive the way through MSCCL XML, from real files and from our generators; what it cannot say is refused.
#include "io/msccl/msccl_xml.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "collective/rewrite.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "io/msccl/test_msccl.hpp"

namespace weft {
namespace {

class MscclXml : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_msccl_xml()) GTEST_SKIP() << "built without pugixml, which reads XML";
  }
};

void expect_same_after_a_round_trip(const Program& program) {
  const Program again = read_msccl_xml(write_msccl_xml(program), "written.xml");
  EXPECT_EQ(run_symbolically(again).violation, run_symbolically(program).violation) << title(program);
  EXPECT_TRUE(normal_form(again) == normal_form(program)) << title(program);
}

TEST_F(MscclXml, RealFilesAreSafeAndSurviveARoundTrip) {
  const std::vector<NamedText> files = shared_msccl_files();
  if (files.empty()) GTEST_SKIP() << "../shared/data/msccl_xml is not here";
  for (const auto& [name, text] : files) {
    const Program program = read_msccl_xml(text, name);
    EXPECT_EQ(run_symbolically(program).violation.value_or(""), "") << name;
    expect_same_after_a_round_trip(program);
  }
}

TEST_F(MscclXml, GeneratedProgramsSurviveARoundTrip) {
  for (const Program& program : generated_programs()) expect_same_after_a_round_trip(program);
}

TEST_F(MscclXml, TheRootSurvivesThoughNoAttributeNamesIt) {
  for (const bool in_place : {false, true}) {
    for (const std::int64_t root : {0, 2}) {
      expect_same_after_a_round_trip(direct_broadcast(3, root, 2, in_place));
      expect_same_after_a_round_trip(direct_reduce(3, root, 2, in_place));
    }
  }
}

// Rank 0 waits, before its last send, for copies in two other blocks.
Program with_two_dependencies() {
  ProgramBuilder builder("gather_then_send", {Collective::all_gather, 3, 0, 3}, true);
  builder.copy(input_of(1, 0), output_of(0, 1));
  builder.copy(input_of(2, 0), output_of(0, 2));
  for (const std::int64_t rank : {1, 2}) builder.copy(output_of(0, 0), output_of(rank, 0), 3);
  return std::move(builder).finish();
}

TEST_F(MscclXml, DependenciesBeyondTheFirstTravelOnNops) {
  const Program program = with_two_dependencies();
  const std::string text = write_msccl_xml(program);
  // Both sends wait for both receives: one nop each.
  std::size_t nops = 0;
  for (std::size_t at = text.find("\"nop\""); at != std::string::npos; at = text.find("\"nop\"", at + 1)) ++nops;
  EXPECT_EQ(nops, 2U);
  const Program again = read_msccl_xml(text, "written.xml");
  const Instruction& send = again.ranks[0].blocks[2].steps[0];
  EXPECT_EQ(send.kind, InstructionKind::send);
  EXPECT_EQ(send.after, (std::vector<InstructionId>{{0, 0}, {1, 0}}));
  EXPECT_TRUE(normal_form(again) == normal_form(program));
}

TEST_F(MscclXml, ANopAtTheEndOfABlockStays) {
  Program program = with_two_dependencies();
  program.ranks[0].blocks[0].steps.push_back({InstructionKind::nop, {}, {}, 0, {{1, 0}, {2, 0}}});
  const Program again = read_msccl_xml(write_msccl_xml(program), "written.xml");
  ASSERT_EQ(again.ranks[0].blocks[0].steps.size(), 2U);
  EXPECT_TRUE(normal_form(again) == normal_form(program));
}

TEST_F(MscclXml, LargeCountsAreCutAtBothEnds) {
  // 150 = 71 + 71 + 8.
  const Program again = read_msccl_xml(write_msccl_xml(direct_broadcast(2, 0, 150, true)), "written.xml");
  for (const std::size_t rank : {0U, 1U}) {
    std::vector<std::int64_t> counts;
    for (const Instruction& step : again.ranks[rank].blocks[0].steps) counts.push_back(step.count);
    EXPECT_EQ(counts, (std::vector<std::int64_t>{71, 71, 8}));
  }
  EXPECT_EQ(again.ranks[1].blocks[0].steps[2].dst.slot, 142);
  EXPECT_EQ(run_symbolically(again).violation.value_or(""), "");
}

TEST(MscclWriter, RefusesToCutAnExchangeThatWouldThenHang) {
  // Both ranks send 2 x 71 + 8 slots before they receive: the third message of each finds both slots taken.
  Program program{"exchange", {Collective::all_gather, 2, 0, 300}, true, std::vector<RankProgram>(2)};
  for (const std::int64_t rank : {0, 1}) {
    const SlotRef mine{BufferKind::output, rank * 150}, other{BufferKind::output, (1 - rank) * 150};
    program.ranks[rank].blocks.push_back(
        {1 - rank,
         1 - rank,
         0,
         {{InstructionKind::send, mine, mine, 150, {}}, {InstructionKind::receive, other, other, 150, {}}}});
  }
  ASSERT_EQ(run_symbolically(program).violation.value_or(""), "");
  try {
    write_msccl_xml(program);
    FAIL() << "written all the same";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("use fewer parts"), std::string::npos) << error.what();
  }
}

std::string refusal(const Program& program, const MscclOptions& options = {}) {
  try {
    write_msccl_xml(program, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "written";
}

TEST(MscclWriter, SaysWhatCannotBeWrittenAndWhatToChange) {
  const Program good = direct_broadcast(2, 0, 1, false);
  EXPECT_EQ(refusal(good), "written");
  Program program = good;
  program.ranks.emplace_back();
  EXPECT_NE(refusal(program).find("without servers"), std::string::npos);
  program = good;
  program.spec.kind = Collective::gather;
  EXPECT_NE(refusal(program).find("there is no gather"), std::string::npos);
  // A ring all_reduce of two ranks sends 2 (N-1) parts = 300 messages from one block.
  EXPECT_NE(refusal(make_program({.ranks = 2, .parts = 150})).find("has 300 steps; MSCCL allows 256: use fewer parts"),
            std::string::npos);
  program = good;
  program.ranks[0].blocks.resize(217);
  EXPECT_NE(refusal(program).find("217 blocks"), std::string::npos);
  program = good;
  program.ranks[0].blocks[0].channel = 32;
  EXPECT_NE(refusal(program).find("channel 32"), std::string::npos);
  EXPECT_NE(refusal(direct_broadcast(40, 0, 1, false)).find("more than 32 peers"), std::string::npos);
}

TEST(MscclWriter, ChecksItsOptions) {
  const Program program = direct_broadcast(2, 0, 1, false);
  EXPECT_NE(refusal(program, {.name = "a\"b"}).find("name 'a\"b'"), std::string::npos);
  EXPECT_NE(refusal(program, {.proto = "LL64"}).find("Simple, LL128, LL"), std::string::npos);
  EXPECT_NE(refusal(program, {.min_bytes = 5, .max_bytes = 4}).find("minBytes 5"), std::string::npos);
  EXPECT_NE(refusal(program, {.threads = -1}).find("nthreads"), std::string::npos);
}

TEST(MscclWriter, WritesWhatTheRuntimesAskFor) {
  const Program program = make_program({.kind = Collective::reduce_scatter, .ranks = 2, .in_place = true});
  const std::string text = write_msccl_xml(
      program, {.name = "mine", .proto = "LL", .min_bytes = 1024, .max_bytes = 4096, .threads = 512, .for_rccl = true});
  EXPECT_TRUE(
      text.starts_with("<algo name=\"mine\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" "
                       "coll=\"reducescatter\" inplace=\"1\" outofplace=\"0\" minBytes=\"1024\" "
                       "maxBytes=\"4096\" nthreads=\"512\">\n"))
      << text;
  EXPECT_NE(write_msccl_xml(program).find("coll=\"reduce_scatter\""), std::string::npos);
}

}  // namespace
}  // namespace weft
