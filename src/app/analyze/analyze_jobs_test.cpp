// Which traces `weft analyze` takes together, and what it says of traces that weft wrote itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/analyze/test_analyze.hpp"
#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

using nlohmann::json;

void expect_refused(const std::string& arguments, const std::string& message) {
  const CliResult result = weft_cli("analyze " + arguments);
  EXPECT_EQ(result.code, kBadInput) << arguments;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, message)) << result.err;
}

TEST(AnalyzeJobs, TracesOfTwoJobsAreRefused) {
  const std::string two = data("hta_nccl_data_a100_rank0of2.json.gz"),
                    eight = data("hta_trace_diff_control_a100_rank3of8.json.gz");
  expect_refused(two + " " + eight, two + " and " + eight + " cannot be of one job: world sizes 2 and 8");
  // Side by side they may be compared.
  EXPECT_TRUE(analyzed(two + " --against " + eight).contains("comparison"));
}

TEST(AnalyzeJobs, OneFileGivenTwiceIsRefusedUnderAnyName) {
  const ScratchFolder folder("analyze_twice");
  const std::string text = R"([{"ph":"X","cat":"kernel","name":"gemm","ts":0,"dur":10,"args":{"stream":7}}])";
  const std::string a = folder.write("t.json", text), copy = folder.write("copy.json", text);
  std::filesystem::create_symlink(a, folder.file("link.json"));
  expect_refused(a + " " + a, a + " and " + a + " are one file");
  expect_refused(a + " " + folder.file("link.json"), a + " and " + folder.file("link.json") + " are one file");
  // Neither says its rank: they would become ranks 0 and 1.
  expect_refused(a + " " + copy, a + " and " + copy + " hold the same events");
}

class OwnTraces : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder("analyze_own");
    const CliResult result = weft_cli(
        "plan --model llama2-7b --cluster dgx-a100:1 --pp 4 --tp 2 --global-batch 16 --policy serial --json --out " +
        folder_->path());
    ASSERT_EQ(result.code, kOk) << result.err;
    plan_ = json::parse(result.out);
    answer_ = analyzed(folder_->file("trace.json"));
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
    plan_ = answer_ = nullptr;
  }
  static inline ScratchFolder* folder_ = nullptr;
  static inline json plan_, answer_;
};

// Four stages whose tensor-parallel groups have one name; only the messages between stages join ranks of the file:
// 3 borders, 16 micro-batches, forward and backward.
TEST_F(OwnTraces, StagesAreMatchedByTheirMessagesAlone) {
  EXPECT_EQ(answer_.at("matching").at(0).at("collectives"), 3 * 16 * 2);
  EXPECT_EQ(answer_.at("matching").at(0).at("unmatched"), 0);
  EXPECT_EQ(answer_.at("ranks").size(), 4U);
  for (const json& rank : answer_.at("ranks")) EXPECT_EQ(rank.at("clock_moved_us"), 0);
}

// Serial steps do not overlap: the path is a step long, and nothing of it is unknown. What it consists of is what the
// plan's own critical path says.
TEST_F(OwnTraces, TheCriticalPathIsKnownAndAsLongAsTheStep) {
  const json& path = answer_.at("critical_path").at(0);
  const json& policy = plan_.at("policies").at("serial");
  const double whole = path.at("time_us").get<double>();
  EXPECT_NEAR(whole, 1e6 * policy.at("step_s").get<double>(), 1e-3 * whole);
  EXPECT_EQ(path.at("by_kind_us").at("unknown"), 0);
  EXPECT_NEAR(path.at("by_kind_us").at("computation").get<double>() / whole,
              policy.at("critical_path").at("compute_s").get<double>() / policy.at("step_s").get<double>(), 1e-3);
}

TEST_F(OwnTraces, CollectivesHaveTheirNamesBytesAndBusBandwidth) {
  std::set<std::string> names;
  for (const json& rank : answer_.at("ranks")) {
    for (const json& row : rank.at("collectives")) {
      names.insert(row.at("collective").get<std::string>());
      EXPECT_EQ(row.at("group_ranks"), 2);
      EXPECT_GT(row.at("bytes").get<double>(), 0);
      // Of two ranks 2(n-1)/n is 1, and (n-1)/n is 1/2.
      const double factor = row.at("collective") == "all_gather" ? 0.5 : 1;
      EXPECT_DOUBLE_EQ(row.at("bus_gb_per_s").get<double>(), factor * row.at("algorithm_gb_per_s").get<double>());
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"all_gather", "all_reduce", "send_recv"}));
}

TEST_F(OwnTraces, TimelineFilesSayTheSame) {
  const json answer = analyzed(folder_->file("timeline.json"));
  // Three iterations: the steady one, and one before and after it.
  EXPECT_EQ(answer.at("matching").at(0).at("collectives"), 3 * 3 * 16 * 2);
  EXPECT_EQ(answer.at("critical_path").at(0).at("by_kind_us").at("unknown"), 0);
  EXPECT_EQ(answer.at("ranks").at(0).at("waits"), "recorded");
  EXPECT_EQ(answer.at("ranks").at(1).at("collectives").at(0).at("group_ranks"), 2);
}

// Notes the keys of every open object. (A parser callback would do, but it takes the square of the objects' number.)
class KeysOfObjects final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open_.emplace_back(), true; }
  bool end_object() override { return open_.pop_back(), true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t& name) override {
    EXPECT_TRUE(open_.back().insert(name).second) << "twice: " << name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    ADD_FAILURE() << error.what();
    return false;
  }

 private:
  std::vector<std::set<std::string>> open_;
};

TEST_F(OwnTraces, NoKeyIsWrittenTwice) {
  const std::string text = read_text_file(folder_->file("trace.json"));
  KeysOfObjects keys;
  EXPECT_TRUE(json::sax_parse(text, &keys));
  EXPECT_EQ(json::parse(text).at("otherData").at("timeline"), "predicted");
}

TEST_F(OwnTraces, AreNotMixedWithOthers) {
  const std::string own = folder_->file("trace.json"), other = data("hta_sampled_rank1of128.json.gz");
  expect_refused(own + " " + other, "a trace of weft holds all ranks of its job");
}

// 100,000 spans are the most that timeline.json is written for.
TEST(AnalyzeJobs, APlanSaysWhereItLeavesTheTimelineOut) {
  const ScratchFolder folder("analyze_left_out");
  const CliResult result = weft_cli(
      "plan --model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4 --dp 2 --global-batch 128 --policy serial --out " +
      folder.path());
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("timeline.json")));
  EXPECT_TRUE(contains(result.out, folder.file("timeline.json") + " is not written")) << result.out;
  EXPECT_TRUE(contains(result.out, "at most 100,000")) << result.out;
}

}  // namespace
}  // namespace weft
