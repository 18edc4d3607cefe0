// Every rule of the format, broken once: the reader says where and what was allowed.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

// Two ranks exchange one chunk each in place; then rank 0 copies to scratch, waiting for two blocks.
const std::string kGood = R"(<?xml version="1.0"?>
<!-- written by hand -->
<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1">
  <gpu id="0" i_chunks="0" o_chunks="2" s_chunks="2">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="1" chan="0">
      <step s="0" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="2" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>
      <step s="1" type="cpy" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="1" deps="0" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)";

// What the reader says of the good file with the first `from` replaced; "read" where it is content.
std::string complaint(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    read_msccl_xml(text, "pair.xml");
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

std::string complaint_about(const std::string& text) {
  try {
    read_msccl_xml(text, "pair.xml");
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

#define EXPECT_SAYS(words, said) \
  EXPECT_NE((said).find(words), std::string::npos) << "expected: " << (words) << "\nsaid: " << (said)

TEST(MscclMistakes, TheGoodFileIsRead) {
  const Program program = read_msccl_xml(kGood, "pair.xml");
  EXPECT_EQ(program.spec, (CollectiveSpec{Collective::all_gather, 2, 0, 2}));
  EXPECT_TRUE(program.in_place);
  ASSERT_EQ(program.ranks[0].blocks.size(), 3U);
  // The nop is gone; what it waited for, the copy waits for.
  ASSERT_EQ(program.ranks[0].blocks[2].steps.size(), 1U);
  EXPECT_EQ(
      program.ranks[0].blocks[2].steps[0],
      (Instruction{InstructionKind::copy, {BufferKind::output, 0}, {BufferKind::scratch, 0}, 2, {{0, 0}, {1, 0}}}));
  EXPECT_EQ(program.ranks[1].blocks[0].send_to, 0);
}

TEST(MscclMistakes, TextThatIsNotSuchAFile) {
  EXPECT_SAYS("pair.xml:1: is not XML", complaint_about(""));
  EXPECT_SAYS("is not XML", complaint_about("{\"algo\": 1}"));
  EXPECT_SAYS("is not XML", complaint_about(kGood.substr(0, kGood.size() / 2)));
  EXPECT_SAYS("pair.xml:3: is not XML: it has a zero byte", complaint("pair\"", std::string("pa\0r\"", 5)));
  EXPECT_SAYS("2 root elements", complaint_about("<algo/><algo/>"));
  EXPECT_SAYS("<topology>: is not the root", complaint_about("<topology/>"));
  EXPECT_SAYS("pair.xml:4: <algo>: has a <cpu>; only <gpu> may stand there",
              complaint("<gpu id=\"0\"", "<cpu/><gpu id=\"0\""));
  EXPECT_SAYS("has text", complaint("<tb id=\"1\"", "words <tb id=\"1\""));
}

TEST(MscclMistakes, InTheHeader) {
  EXPECT_SAYS("pair.xml:3: <algo>: attribute 'name' is missing", complaint("name=\"pair\"", ""));
  EXPECT_SAYS("attribute 'name' is given twice", complaint("name=\"pair\"", "name=\"pair\" name=\"other\""));
  EXPECT_SAYS("'ngpus': value '-3' is not in 1..4096", complaint("ngpus=\"2\"", "ngpus=\"-3\""));
  EXPECT_SAYS("gpu 2 is missing; ngpus is 3",
              complaint("nchunksperloop=\"2\" ngpus=\"2\"", "nchunksperloop=\"3\" ngpus=\"3\""));
  EXPECT_SAYS("'ngpus': value '999999999999' is not in 1..4096", complaint("ngpus=\"2\"", "ngpus=\"999999999999\""));
  EXPECT_SAYS("'ngpus': value '99999999999999999999' is not in",
              complaint("ngpus=\"2\"", "ngpus=\"99999999999999999999\""));
  EXPECT_SAYS("'nchunksperloop': value '4194304' is not at most", complaint("perloop=\"2\"", "perloop=\"4194304\""));
  EXPECT_SAYS("'nchunksperloop': value '2.5' is not an integer", complaint("perloop=\"2\"", "perloop=\"2.5\""));
  EXPECT_SAYS("'nchunksperloop': value '3' is not a multiple of the 2 gpus",
              complaint("perloop=\"2\"", "perloop=\"3\""));
  EXPECT_SAYS("'proto': value 'LL64' is not one of Simple, LL128, LL", complaint("Simple", "LL64"));
  EXPECT_SAYS("'coll': value 'gossip' is not one of allreduce", complaint("allgather", "gossip"));
  EXPECT_SAYS("name the collective", complaint("allgather", "custom"));
  EXPECT_SAYS("'inplace': value '2' is not in 0..1", complaint("inplace=\"1\"", "inplace=\"2\""));
  EXPECT_SAYS("'minBytes': value '-1'", complaint("inplace=\"1\"", "inplace=\"1\" minBytes=\"-1\""));
  EXPECT_EQ(complaint("inplace=\"1\"", "inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"9\" nthreads=\"64\""),
            "read");
}

TEST(MscclMistakes, InGpusAndThreadBlocks) {
  EXPECT_SAYS("'id': value '2' is not in 0..1", complaint("<gpu id=\"1\"", "<gpu id=\"2\""));
  EXPECT_SAYS("pair.xml:16: gpu 0: is there twice", complaint("<gpu id=\"1\"", "<gpu id=\"0\""));
  EXPECT_SAYS("gpu 0: attribute 's_chunks' is missing", complaint("s_chunks=\"2\"", ""));
  EXPECT_SAYS("gpu 0: attribute 'o_chunks': value '3' is not 2", complaint("o_chunks=\"2\"", "o_chunks=\"3\""));
  EXPECT_SAYS("gpu 0: attribute 'i_chunks': value '2' is not 1", complaint("i_chunks=\"0\"", "i_chunks=\"2\""));
  EXPECT_SAYS("'i_chunks': value '0' is not 1", complaint("inplace=\"1\"", "inplace=\"0\""));
  EXPECT_SAYS("'s_chunks': value '4194305' is not in", complaint("s_chunks=\"2\"", "s_chunks=\"4194305\""));
  EXPECT_SAYS("more than 4194304 chunks", complaint("s_chunks=\"2\"", "s_chunks=\"4194303\""));
  EXPECT_SAYS("'id': value '3' is not in 0..2", complaint("<tb id=\"2\"", "<tb id=\"3\""));
  EXPECT_SAYS("pair.xml:11: gpu 0, tb 1: is there twice", complaint("<tb id=\"2\"", "<tb id=\"1\""));
  EXPECT_SAYS("gpu 0, tb 0: attribute 'send': value '2' is not in -1..1", complaint("send=\"1\"", "send=\"2\""));
  EXPECT_SAYS("gpu 0, tb 0: attribute 'send': value '0' is not another gpu", complaint("send=\"1\"", "send=\"0\""));
  EXPECT_SAYS("gpu 0, tb 0: attribute 'chan': value '1' is not 0", complaint("chan=\"0\"", "chan=\"1\""));
  EXPECT_SAYS("nchannels is 0", complaint("nchannels=\"1\"", "nchannels=\"0\""));
  EXPECT_SAYS("gpu 0, tb 2: sends to gpu 1 on channel 0, as tb 0 does",
              complaint("<tb id=\"2\" send=\"-1\"", "<tb id=\"2\" send=\"1\""));
  EXPECT_SAYS("gpu 0, tb 2: receives from gpu 1 on channel 0, as tb 1 does",
              complaint("<tb id=\"2\" send=\"-1\" recv=\"-1\"", "<tb id=\"2\" send=\"-1\" recv=\"1\""));
  std::string blocks;
  for (int id = 3; id < 217; ++id)
    blocks += "<tb id=\"" + std::to_string(id) + "\" send=\"-1\" recv=\"-1\" chan=\"0\"/>\n";
  EXPECT_EQ(complaint("  </gpu>", blocks.substr(0, blocks.rfind("<tb")) + "</gpu>"), "read");
  EXPECT_SAYS("gpu 0: has 217 thread blocks; at most 216", complaint("  </gpu>", blocks + "</gpu>"));
}

TEST(MscclMistakes, InSteps) {
  const std::string first = "gpu 0, tb 0, step 0: ";
  for (const std::string attribute :
       {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"}) {
    EXPECT_SAYS(first + "attribute '" + attribute + "' is missing",
                complaint(" " + attribute + "=", " x" + attribute + "="));
  }
  EXPECT_SAYS("gpu 0, tb 2, step 1: attribute 's': value '3' is not 1", complaint("s=\"1\" type", "s=\"3\" type"));
  EXPECT_SAYS(first + "attribute 'type': value 'x' is not one of s, r, rcs", complaint("type=\"s\"", "type=\"x\""));
  EXPECT_SAYS(first + "receives, but its tb has recv=\"-1\"", complaint("type=\"s\"", "type=\"r\""));
  EXPECT_SAYS("gpu 0, tb 1, step 0: sends, but its tb has send=\"-1\"", complaint("type=\"r\"", "type=\"s\""));
  EXPECT_SAYS(first + "attribute 'srcbuf': value 'q' is not one of i, o, s", complaint("srcbuf=\"o\"", "srcbuf=\"q\""));
  EXPECT_SAYS(first + "srcoff 2 and cnt 1: buffer o has 2 chunks", complaint("srcoff=\"0\"", "srcoff=\"2\""));
  EXPECT_SAYS(first + "srcoff -1 and cnt 1: buffer o", complaint("srcoff=\"0\"", "srcoff=\"-1\""));
  EXPECT_SAYS(first + "srcoff 0 and cnt 1: buffer i has 0 chunks", complaint("srcbuf=\"o\"", "srcbuf=\"i\""));
  EXPECT_SAYS("gpu 0, tb 2, step 1: dstoff 1 and cnt 2: buffer s has 2 chunks",
              complaint("dstbuf=\"s\" dstoff=\"0\"", "dstbuf=\"s\" dstoff=\"1\""));
  EXPECT_SAYS(first + "attribute 'cnt': value '0' is not in 1..71", complaint("cnt=\"1\"", "cnt=\"0\""));
  EXPECT_SAYS(first + "attribute 'cnt': value '72' is not in 1..71", complaint("cnt=\"1\"", "cnt=\"72\""));
  std::string nops;
  for (int s = 2; s < 257; ++s) {
    nops += "<step s=\"" + std::to_string(s) +
            "\" type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"0\" depid=\"0\" deps=\"0\" "
            "hasdep=\"0\"/>\n";
  }
  EXPECT_EQ(complaint("    </tb>\n  </gpu>", nops.substr(0, nops.rfind("<step")) + "</tb></gpu>"), "read");
  EXPECT_SAYS("gpu 0, tb 2: has 257 steps; at most 256", complaint("    </tb>\n  </gpu>", nops + "</tb></gpu>"));
}

TEST(MscclMistakes, InDependencies) {
  const std::string nop = "depid=\"0\" deps=\"0\"", copy = "depid=\"1\" deps=\"0\"";
  EXPECT_SAYS("gpu 0, tb 2, step 0: attribute 'depid': value '3' is not in -1..2",
              complaint(nop, "depid=\"3\" deps=\"0\""));
  EXPECT_SAYS("tb 2, step 0: attribute 'depid': value '2' is not another tb", complaint(nop, "depid=\"2\" deps=\"0\""));
  EXPECT_SAYS("tb 2, step 1: attribute 'deps': value '1' is not a step of tb 1, which has 1",
              complaint(copy, "depid=\"1\" deps=\"1\""));
  EXPECT_SAYS("depid 1 and deps -1: both are -1 or none is", complaint(copy, "depid=\"1\" deps=\"-1\""));
  EXPECT_SAYS("tb 0, step 0: hasdep is 0, but another step waits", complaint("hasdep=\"1\"", "hasdep=\"0\""));
  EXPECT_SAYS("tb 2, step 1: hasdep is 1, but no step waits",
              complaint(copy + " hasdep=\"0\"", copy + " hasdep=\"1\""));
  EXPECT_SAYS("tb 1, step 0: waits for tb 2, step 0, a nop",
              complaint("depid=\"-1\" deps=\"-1\" hasdep=\"1\"/>\n    </tb>\n    <tb id=\"2\"",
                        "depid=\"2\" deps=\"0\" hasdep=\"1\"/>\n    </tb>\n    <tb id=\"2\""));
}

TEST(MscclMistakes, ARootThatCannotBeTold) {
  // Both have counts for both buffers, and both send and receive.
  std::string text = kGood;
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  };
  replace("i_chunks=\"0\"", "i_chunks=\"2\"");
  replace("allgather", "broadcast");
  EXPECT_SAYS("which gpu is the root of the broadcast cannot be told", complaint_about(text));
}

}  // namespace
}  // namespace weft
