// weft collective: list, verify.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/files.hpp"
#include "app/test_cli.hpp"
#include "io/msccl/msccl_xml.hpp"

namespace weft {
namespace {

TEST(CollectiveCommand, HelpAndUnknownSubcommands) {
  for (const char* words : {"collective --help", "collective list --help", "collective verify --help"}) {
    const CliResult help = weft_cli(words);
    EXPECT_EQ(help.code, kOk) << words;
    EXPECT_PRED2(contains, help.out, "Example:") << words;
  }
  EXPECT_EQ(weft_cli("collective").code, kBadInput);
  const CliResult result = weft_cli("collective verfy");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_PRED2(contains, result.err, "did you mean 'verify'");
}

// A ring all_reduce of K bytes sends 2 (N-1) messages and 2 (N-1)/N K bytes from every rank.
TEST(CollectiveList, RingAllReduceHasTheNumbersOfItsFormula) {
  const CliResult result =
      weft_cli("collective list --collective all_reduce --algorithm ring --ranks 4 --size 4000 --json");
  ASSERT_EQ(result.code, kOk) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["programs"].size(), 1U);
  const auto& program = json["programs"][0];
  EXPECT_EQ(program["collective"], "all_reduce");
  EXPECT_EQ(program["algorithm"], "ring");
  EXPECT_EQ(program["rank_messages"], 6);
  EXPECT_EQ(program["messages"], 24);
  EXPECT_EQ(program["rank_bytes"], 6000);
  EXPECT_EQ(program["bytes"], 24000);
}

TEST(CollectiveList, TheTableNamesEveryAlgorithm) {
  const CliResult result = weft_cli("collective list");
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_PRED2(contains, result.out, "8 ranks");
  EXPECT_PRED2(contains, result.out, "ring");
  for (const char* kind : {"all_gather", "reduce_scatter", "all_reduce"}) EXPECT_PRED2(contains, result.out, kind);
}

TEST(CollectiveList, MistakesNameTheFlag) {
  const auto error = [](const std::string& flags) {
    const CliResult result = weft_cli("collective list " + flags);
    EXPECT_EQ(result.code, kBadInput) << flags;
    EXPECT_TRUE(result.out.empty()) << flags;
    return result.err;
  };
  EXPECT_PRED2(contains, error("--ranks 0"), "--ranks 0");
  EXPECT_PRED2(contains, error("--ranks 1024 --parts 1024"), "--parts 1024");
  EXPECT_PRED2(contains, error("--collective gossip"), "--collective 'gossip'");
  EXPECT_PRED2(contains, error("--algorithm ring --collective barrier"), "there is no such program");
  EXPECT_PRED2(contains, error("--root 8"), "--root 8");
  EXPECT_PRED2(contains, error("--size many"), "--size");
  EXPECT_PRED2(contains, error("--proto LL"), "belongs to --out");
}

class CollectiveFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_msccl_xml()) GTEST_SKIP() << "built without pugixml, which reads XML";
  }
  // Writes a ring all_reduce of four ranks and returns its name.
  std::string ring() const {
    const CliResult result = weft_cli(
        "collective list --collective all_reduce --algorithm ring --ranks 4 --in-place --out " + folder_.path());
    EXPECT_EQ(result.code, kOk) << result.err;
    EXPECT_PRED2(contains, result.out, "wrote ");
    return folder_.file("all_reduce_ring_4.xml");
  }

  ScratchFolder folder_{"collective"};
};

TEST_F(CollectiveFiles, WhatListWritesVerifies) {
  const std::string file = ring();
  const CliResult result = weft_cli("collective verify " + file);
  EXPECT_EQ(result.code, kOk) << result.err;
  // One block a rank: send, 2 receive_reduce_send, receive_reduce_copy_send, 2 receive_copy_send, receive.
  EXPECT_PRED2(contains, result.out, "safe: all_reduce of 4 pieces in place on 4 ranks, 4 blocks, 28 instructions");
}

TEST_F(CollectiveFiles, EveryWrittenFileVerifies) {
  ASSERT_EQ(weft_cli("collective list --ranks 4 --out " + folder_.path()).code, kOk);
  std::string files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) files += " " + entry.path().string();
  ASSERT_FALSE(files.empty());
  const CliResult result = weft_cli("collective verify" + files);
  EXPECT_EQ(result.code, kOk) << result.out << result.err;
}

TEST_F(CollectiveFiles, AProgramThatIsWrongIsExitCodeOneWithTheReason) {
  std::string text = read_text_file(ring());
  // The last receive of rank 0 puts its slice over another one.
  const std::string last = "s=\"6\" type=\"r\" srcbuf=\"i\" srcoff=\"";
  const std::size_t at = text.find(last);
  ASSERT_NE(at, std::string::npos);
  const std::size_t dst = text.find("dstoff=\"", at) + 8;
  text[dst] = text[dst] == '0' ? '1' : '0';
  const std::string broken = folder_.write("broken.xml", text);
  const CliResult result = weft_cli("collective verify " + broken);
  EXPECT_EQ(result.code, kAnswerIsNo);
  EXPECT_PRED2(contains, result.out, "not safe\nrank 0, output slot ");
  const auto json = nlohmann::json::parse(weft_cli("collective verify --json " + ring() + " " + broken).out);
  EXPECT_EQ(json["safe"], false);
  EXPECT_EQ(json["files"][0]["safe"], true);
  EXPECT_EQ(json["files"][0]["instructions"], 28);
  EXPECT_EQ(json["files"][1]["safe"], false);
  EXPECT_PRED2(contains, json["files"][1]["message"].get<std::string>(), "rank 0");
}

TEST_F(CollectiveFiles, AFileThatCannotBeReadIsExitCodeTwo) {
  EXPECT_EQ(weft_cli("collective verify").code, kBadInput);
  EXPECT_EQ(weft_cli("collective verify " + folder_.file("absent.xml")).code, kBadInput);
  const CliResult result = weft_cli("collective verify " + ring() + " " + folder_.write("bad.xml", "<algo"));
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_TRUE(result.out.empty());
  EXPECT_PRED2(contains, result.err, "bad.xml:1: is not XML");
}

}  // namespace
}  // namespace weft
