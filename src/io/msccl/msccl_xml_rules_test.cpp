// Walks files that we wrote and checks every rule of the MSCCL runtime, with no code in common with the writer.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <pugixml.hpp>
#include <set>
#include <tuple>

#include "io/msccl/msccl_xml.hpp"
#include "io/msccl/test_msccl.hpp"

namespace weft {
namespace {

using Step = std::pair<int, int>;  // tb, s

struct Gpu {
  std::map<std::string, int> chunks;  // by buffer letter
  std::map<Step, pugi::xml_node> steps;
  std::set<Step> waited_for;
};

int number(pugi::xml_node node, const char* attribute) {
  EXPECT_FALSE(node.attribute(attribute).empty()) << node.name() << " has no " << attribute;
  return node.attribute(attribute).as_int(-99);
}

bool is_one_of(const std::string& value, std::initializer_list<const char*> allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const char* other) { return value == other; });
}

bool does(const std::string& type, std::initializer_list<const char*> types) {
  return is_one_of(type, types);
}

class Rules {
 public:
  // Counts of messages by (sender, receiver, channel), sent and received: FIFO pairs the k-th with the k-th.
  using Connection = std::tuple<int, int, int>;

  void check(const std::string& text) {
    pugi::xml_document document;
    ASSERT_TRUE(document.load_string(text.c_str()));
    const pugi::xml_node algo = document.child("algo");
    ranks_ = number(algo, "ngpus");
    channels_ = number(algo, "nchannels");
    in_place_ = number(algo, "inplace") == 1;
    EXPECT_EQ(number(algo, "outofplace"), in_place_ ? 0 : 1);
    EXPECT_LE(algo.attribute("minBytes").as_llong(-1), algo.attribute("maxBytes").as_llong(-2));
    EXPECT_FALSE(algo.attribute("name").empty());
    EXPECT_TRUE(is_one_of(algo.attribute("proto").value(), {"Simple", "LL128", "LL"}));
    EXPECT_TRUE(is_one_of(algo.attribute("coll").value(),
                          {"allreduce", "allgather", "reduce", "broadcast", "alltoall", "reduce_scatter"}));
    int id = 0, most = 0, most_channels = 0;
    for (const pugi::xml_node gpu : algo.children()) {
      EXPECT_EQ(number(gpu, "id"), id++);
      most = std::max({most, number(gpu, "i_chunks"), number(gpu, "o_chunks")});
      check_gpu(gpu);
      for (const pugi::xml_node tb : gpu.children()) most_channels = std::max(most_channels, number(tb, "chan") + 1);
    }
    EXPECT_EQ(id, ranks_);
    EXPECT_EQ(most, number(algo, "nchunksperloop"));
    EXPECT_EQ(std::max(most_channels, 1), channels_);
    EXPECT_EQ(sent_, received_);
  }

 private:
  void check_gpu(pugi::xml_node node) {
    Gpu gpu;
    gpu.chunks = {{"i", number(node, "i_chunks")}, {"o", number(node, "o_chunks")}, {"s", number(node, "s_chunks")}};
    std::set<std::array<int, 3>> owners;
    int tb_id = 0;
    for (const pugi::xml_node tb : node.children()) {
      EXPECT_STREQ(tb.name(), "tb");
      EXPECT_EQ(number(tb, "id"), tb_id);
      const int send = number(tb, "send"), receive = number(tb, "recv"), channel = number(tb, "chan");
      for (const int peer : {send, receive}) {
        EXPECT_TRUE(peer >= -1 && peer < ranks_ && peer != number(node, "id"));
      }
      EXPECT_TRUE(channel >= 0 && channel < channels_);
      EXPECT_TRUE(send < 0 || owners.insert({0, send, channel}).second);
      EXPECT_TRUE(receive < 0 || owners.insert({1, receive, channel}).second);
      int s = 0;
      for (const pugi::xml_node step : tb.children()) {
        EXPECT_EQ(number(step, "s"), s);
        gpu.steps[{tb_id, s++}] = step;
      }
      EXPECT_LE(s, 256);
      ++tb_id;
    }
    EXPECT_LE(tb_id, 216);
    for (const auto& [place, step] : gpu.steps) check_step(gpu, place, step, number(node, "id"));
    for (const auto& [place, step] : gpu.steps) {
      EXPECT_EQ(number(step, "hasdep"), gpu.waited_for.contains(place) ? 1 : 0);
    }
  }

  void check_step(Gpu& gpu, Step place, pugi::xml_node step, int id) {
    const auto attributes = step.attributes();
    EXPECT_EQ(std::distance(attributes.begin(), attributes.end()), 10);
    const std::string type = step.attribute("type").value();
    EXPECT_TRUE(is_one_of(type, {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"})) << type;
    const int count = number(step, "cnt"), block = number(step, "depid"), waits_for = number(step, "deps");
    EXPECT_EQ(block == -1, waits_for == -1);
    if (block >= 0) {
      EXPECT_NE(block, place.first);
      ASSERT_TRUE(gpu.steps.contains({block, waits_for}));
      const pugi::xml_node other = gpu.steps.at({block, waits_for});
      EXPECT_STRNE(other.attribute("type").value(), "nop");
      gpu.waited_for.insert({block, waits_for});
    }
    // The last dependency of a chain is on the real step.
    const auto before = gpu.steps.find({place.first, place.second - 1});
    const bool follows_nop =
        before != gpu.steps.end() && std::string(before->second.attribute("type").value()) == "nop";
    EXPECT_TRUE((type != "nop" && !follows_nop) || block >= 0);
    if (type == "nop") return;
    EXPECT_TRUE(count >= 1 && count < 72);
    for (const auto& [buffer, offset] : {std::pair{"srcbuf", "srcoff"}, std::pair{"dstbuf", "dstoff"}}) {
      const std::string letter = step.attribute(buffer).value();
      ASSERT_TRUE(gpu.chunks.contains(letter));
      EXPECT_GE(number(step, offset), 0);
      EXPECT_LE(number(step, offset) + count, gpu.chunks[letter]);
    }
    const pugi::xml_node tb = step.parent();
    const int channel = number(tb, "chan");
    if (does(type, {"s", "rcs", "rrs", "rrcs"})) {
      EXPECT_GE(number(tb, "send"), 0);
      sent_[{id, number(tb, "send"), channel}].push_back(count);
    }
    if (does(type, {"r", "rcs", "rrs", "rrc", "rrcs"})) {
      EXPECT_GE(number(tb, "recv"), 0);
      received_[{number(tb, "recv"), id, channel}].push_back(count);
    }
  }

  int ranks_ = 0, channels_ = 0;
  bool in_place_ = false;
  std::map<Connection, std::vector<int>> sent_, received_;  // the counts, in order
};

TEST(MscclRules, HoldForEveryGeneratedProgram) {
  for (const Program& program : generated_programs()) {
    SCOPED_TRACE(title(program));
    Rules().check(write_msccl_xml(program));
  }
}

TEST(MscclRules, HoldForRootedProgramsAndLargeCounts) {
  for (const bool in_place : {false, true}) {
    Rules().check(write_msccl_xml(direct_broadcast(4, 1, 200, in_place)));
    Rules().check(write_msccl_xml(direct_reduce(4, 3, 2, in_place)));
  }
}

TEST(MscclRules, HoldForRealFilesWrittenAgain) {
  const std::vector<NamedText> files = shared_msccl_files();
  if (files.empty()) GTEST_SKIP() << "../shared/data/msccl_xml is not here";
  for (const auto& [name, text] : files) {
    SCOPED_TRACE(name);
    Rules().check(write_msccl_xml(read_msccl_xml(text, name)));
  }
}

}  // namespace
}  // namespace weft
