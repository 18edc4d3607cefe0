// Files for the first MSCCL runtimes (TACCL's and SCCL's own): copies before the first step, copies of a chunk onto
// itself, nops that are steps of their own.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "collective/verify/verify_program.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

std::string step(int number, const std::string& type, const std::string& slots, const std::string& dependency) {
  return "<step s=\"" + std::to_string(number) + "\" type=\"" + type + "\" " + slots + " " + dependency + "/>";
}

std::string slots(const std::string& src, int src_offset, const std::string& dst, int dst_offset, int count = 1) {
  return "srcbuf=\"" + src + "\" srcoff=\"" + std::to_string(src_offset) + "\" dstbuf=\"" + dst + "\" dstoff=\"" +
         std::to_string(dst_offset) + "\" cnt=\"" + std::to_string(count) + "\"";
}

std::string after(int block, int step, bool has_dependent) {
  return "depid=\"" + std::to_string(block) + "\" deps=\"" + std::to_string(step) + "\" hasdep=\"" +
         (has_dependent ? "1" : "0") + "\"";
}

const std::string kAtOnce = after(-1, -1, false), kAtOnceAndWaitedFor = after(-1, -1, true);

// Two GPUs exchange a chunk; `own` says how a GPU's chunk for itself gets into its output.
std::string exchange(const std::string& own_of_0, const std::string& own_of_1) {
  const auto gpu = [](int id, const std::string& own) {
    const std::string other = std::to_string(1 - id);
    return "<gpu id=\"" + std::to_string(id) + "\" i_chunks=\"2\" o_chunks=\"2\" s_chunks=\"0\">" + own +
           "<tb id=\"0\" send=\"" + other + "\" recv=\"" + other + "\" chan=\"0\">" +
           step(0, "s", slots("i", 1 - id, "o", id), kAtOnce) + step(1, "r", slots("i", id, "o", 1 - id), kAtOnce) +
           "</tb></gpu>";
  };
  return "<algo name=\"x\" nchannels=\"1\" nchunksperloop=\"2\" proto=\"Simple\" ngpus=\"2\" coll=\"alltoall\" "
         "inplace=\"0\" redop=\"nop\">" +
         gpu(0, own_of_0) + gpu(1, own_of_1) + "</algo>";
}

TEST(EarlyMscclFiles, CopyElementsAreDoneBeforeTheFirstStep) {
  const Program program =
      read_msccl_xml(exchange("<copy i_off=\"0\" o_off=\"0\"/>", "<copy i_off=\"1\" o_off=\"1\"/>"), "taccl.xml");
  EXPECT_EQ(verify_program(program).words(), "");
  ASSERT_EQ(program.ranks[0].blocks.size(), 2U);
  EXPECT_EQ(program.ranks[0].blocks[0].steps[0].after, (std::vector<InstructionId>{{1, 0}}));
  EXPECT_EQ(program.ranks[0].blocks[1].steps[0],
            (Instruction{InstructionKind::copy, {BufferKind::input, 0}, {BufferKind::output, 0}, 1, {}}));
}

TEST(EarlyMscclFiles, WithoutTheCopyTheOwnChunkIsMissing) {
  const Program program = read_msccl_xml(exchange("", ""), "taccl.xml");
  EXPECT_NE(verify_program(program).words(), "");
}

TEST(EarlyMscclFiles, ACopyOutsideTheBufferIsNamed) {
  try {
    read_msccl_xml(exchange("<copy i_off=\"2\" o_off=\"0\"/>", ""), "taccl.xml");
    FAIL() << "was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("attribute 'i_off': value '2' is not in 0..1"), std::string::npos)
        << error.what();
  }
}

// An all_gather of two GPUs in place. Both send at once, and a block of its own copies the input onto itself, which
// nothing orders with the send: that is how TACCL's all_gathers are written.
std::string gather(bool in_place) {
  const auto gpu = [](int id) {
    const std::string other = std::to_string(1 - id);
    return "<gpu id=\"" + std::to_string(id) + "\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"0\"><tb id=\"0\" send=\"" +
           other + "\" recv=\"" + other + "\" chan=\"0\">" + step(0, "s", slots("o", id, "o", id), kAtOnce) +
           step(1, "r", slots("o", 1 - id, "o", 1 - id), kAtOnce) + "</tb><tb id=\"1\" send=\"-1\" recv=\"-1\" " +
           "chan=\"-1\">" + step(0, "cpy", slots("i", 0, "o", id), kAtOnce) + "</tb></gpu>";
  };
  return std::string("<algo name=\"x\" nchannels=\"1\" nchunksperloop=\"2\" proto=\"Simple\" ngpus=\"2\" ") +
         "coll=\"allgather\" inplace=\"" + (in_place ? "1" : "0") + "\">" + gpu(0) + gpu(1) + "</algo>";
}

TEST(EarlyMscclFiles, InPlaceACopyOntoItselfIsNone) {
  EXPECT_EQ(verify_program(read_msccl_xml(gather(true), "taccl.xml")).words(), "");
}

TEST(EarlyMscclFiles, BetweenTwoBuffersTheSameCopyRaces) {
  EXPECT_NE(verify_program(read_msccl_xml(gather(false), "taccl.xml")).words(), "");
}

// GPU 0 gets chunks 1 and 2 and sends its sum of everything on. The send's dependencies all stand in nops, and it has
// none itself, which today's runtime refuses.
TEST(EarlyMscclFiles, AStepBehindNopsNeedsNoDependencyOfItsOwn) {
  const std::string text =
      "<algo name=\"x\" nchannels=\"1\" nchunksperloop=\"1\" proto=\"Simple\" ngpus=\"3\" coll=\"allreduce\" "
      "inplace=\"1\">"
      "<gpu id=\"0\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\">"
      "<tb id=\"0\" send=\"-1\" recv=\"1\" chan=\"0\">" +
      step(0, "rrc", slots("o", 0, "o", 0), kAtOnceAndWaitedFor) +
      "</tb><tb id=\"1\" send=\"-1\" recv=\"2\" chan=\"0\">" +
      step(0, "rrc", slots("o", 0, "o", 0), after(0, 0, true)) +
      "</tb><tb id=\"2\" send=\"1\" recv=\"-1\" chan=\"0\">" +
      step(0, "nop", slots("i", -1, "o", -1, 0), after(1, 0, false)) + step(1, "s", slots("o", 0, "o", 0), kAtOnce) +
      "</tb><tb id=\"3\" send=\"2\" recv=\"-1\" chan=\"0\">" + step(0, "s", slots("o", 0, "o", 0), after(1, 0, false)) +
      "</tb></gpu>"
      "<gpu id=\"1\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\"><tb id=\"0\" send=\"0\" recv=\"0\" chan=\"0\">" +
      step(0, "s", slots("o", 0, "o", 0), kAtOnce) + step(1, "r", slots("o", 0, "o", 0), kAtOnce) +
      "</tb></gpu><gpu id=\"2\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\"><tb id=\"0\" send=\"0\" recv=\"0\" "
      "chan=\"0\">" +
      step(0, "s", slots("o", 0, "o", 0), kAtOnce) + step(1, "r", slots("o", 0, "o", 0), kAtOnce) +
      "</tb></gpu></algo>";
  const Program program = read_msccl_xml(text, "taccl.xml");
  EXPECT_EQ(verify_program(program).words(), "");
  EXPECT_EQ(program.ranks[0].blocks[2].steps.size(), 1U);
  EXPECT_EQ(program.ranks[0].blocks[2].steps[0].after, (std::vector<InstructionId>{{1, 0}}));
}

}  // namespace
}  // namespace weft
