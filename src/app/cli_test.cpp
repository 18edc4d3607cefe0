// Commands, flags, config files and exit codes.
#include "app/cli.hpp"

#include <gtest/gtest.h>

#include "app/test_cli.hpp"
#include "app/version.hpp"

namespace weft {
namespace {

const std::string kSmall = "plan --layers 2 --hidden 256 --heads 4 --vocab 1024 --seq 128 --cluster local:2,nic=1Gb/s";

TEST(Cli, VersionAndHelpGoToStdoutWithCodeZero) {
  EXPECT_EQ(weft_cli("--version").out, std::string("weft ") + kVersion + "\n");
  EXPECT_EQ(weft_cli("--help").code, kOk);
  for (const char* command : {"plan", "verify"}) {
    const CliResult help = weft_cli(std::string(command) + " --help");
    EXPECT_EQ(help.code, kOk);
    EXPECT_PRED2(contains, help.out, "Example:");
    EXPECT_TRUE(help.err.empty());
  }
}

TEST(Cli, HelpOfEveryCommandNamesItsSubcommands) {
  EXPECT_PRED2(contains, weft_cli("--help").out, "list them, verify MSCCL files, bench them");
}

TEST(Cli, AFlagGivenTwiceIsSaidToBe) {
  EXPECT_EQ(weft_cli(kSmall + " --tp 1 --tp 2").err, "weft: --tp: is given twice\n");
  EXPECT_EQ(weft_cli(kSmall + " --tp=1 --tp=1").err, "weft: --tp: is given twice\n");
  EXPECT_EQ(weft_cli("collective bench --ranks").err, "weft: --ranks: needs a value\n");
}

TEST(Cli, NoCommandIsBadUsage) {
  const CliResult result = weft_cli("");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_TRUE(result.out.empty());
  EXPECT_PRED2(contains, result.err, "weft COMMAND");
}

TEST(Cli, UnknownCommandAndFlagSuggestTheNearestName) {
  CliResult result = weft_cli("plam --tp 8");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_PRED2(contains, result.err, "did you mean 'plan'");
  result = weft_cli(kSmall + " --micro-bach 2");
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_PRED2(contains, result.err, "--micro-bach");
  EXPECT_PRED2(contains, result.err, "did you mean '--micro-batch'");
  EXPECT_TRUE(result.out.empty());
}

TEST(Cli, AValueThatIsMissingOrGivenTwiceIsNamed) {
  for (const char* bad : {" --tp", " --dp 2 --dp 2", " stray"}) {
    const CliResult result = weft_cli(kSmall + bad);
    EXPECT_EQ(result.code, kBadInput) << bad;
    EXPECT_FALSE(result.err.empty()) << bad;
  }
}

TEST(Config, FlagsAsKeysAndTheCommandLineWins) {
  const ScratchFolder folder("config");
  const std::string file = folder.write(
      "job.json", R"({"layers": 2, "hidden": 256, "heads": 4, "vocab": 1024, "seq": 128, "cluster": "local:4",
                      "zero": 1, "sequence-parallel": true, "tp": 2})");
  CliResult result = weft_cli("plan --config " + file + " --json");
  ASSERT_EQ(result.code, kOk) << result.err;
  EXPECT_PRED2(contains, result.out, "\"sequence_parallel\": true");
  EXPECT_PRED2(contains, result.out, "\"zero\": 1");
  result = weft_cli("plan --config " + file + " --zero 3 --json");
  EXPECT_PRED2(contains, result.out, "\"zero\": 3");
}

TEST(Config, MistakesNameTheFileAndTheKey) {
  const ScratchFolder folder("badconfig");
  const auto error = [&](const std::string& text) {
    const CliResult result = weft_cli("plan --config " + folder.write("job.json", text));
    EXPECT_EQ(result.code, kBadInput) << text;
    EXPECT_PRED2(contains, result.err, "job.json") << text;
    return result.err;
  };
  EXPECT_PRED2(contains, error(R"({"layerz": 2})"), "layers");
  EXPECT_PRED2(contains, error(R"({"layers": ["a"]})"), "'layers'");
  EXPECT_PRED2(contains, error(R"({"model": "gpt2", "cluster": "local:2", "dp": 2.5})"), "key 'dp'");
  error(R"({"layers": 2)");
  error(R"([1])");
  EXPECT_EQ(weft_cli("plan --config " + folder.file("absent.json")).code, kBadInput);
}

TEST(Verify, AcceptsAWrittenPlanAndRejectsABrokenOne) {
  const ScratchFolder folder("verify");
  ASSERT_EQ(weft_cli(kSmall + " --dp 2 --out " + folder.path()).code, kOk);
  const std::string plan = folder.file("plan.json");
  CliResult result = weft_cli("verify " + plan);
  EXPECT_EQ(result.code, kOk) << result.out << result.err;
  EXPECT_PRED2(contains, result.out, "safe");

  // With a megabyte of memory the same plan is not safe: an answer, not an error.
  result = weft_cli("verify " + plan + " --memory 0.001");
  EXPECT_EQ(result.code, kAnswerIsNo);
  EXPECT_PRED2(contains, result.out, "memory: stage 0 needs");
  result = weft_cli("verify " + plan + " --memory 0.001 --json");
  EXPECT_EQ(result.code, kAnswerIsNo);
  EXPECT_PRED2(contains, result.out, "\"safe\": false");
}

TEST(Verify, AFileThatIsNoPlanIsBadInput) {
  const ScratchFolder folder("noplan");
  for (const char* text : {"", "{", "[]", "{\"weft_plan\": 1}", "{\"weft_plan\": 99}", "\xff\xfe"}) {
    const CliResult result = weft_cli("verify " + folder.write("plan.json", text));
    EXPECT_EQ(result.code, kBadInput) << text;
    EXPECT_PRED2(contains, result.err, "plan.json") << text;
  }
  EXPECT_EQ(weft_cli("verify " + folder.file("absent.json")).code, kBadInput);
  EXPECT_EQ(weft_cli("verify " + folder.path()).code, kBadInput);
  EXPECT_EQ(weft_cli("verify").code, kBadInput);
}

}  // namespace
}  // namespace weft
