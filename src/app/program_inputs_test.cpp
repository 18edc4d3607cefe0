// Programs from files in plans and runs, and programs made for a topology.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/test_cli.hpp"
#include "base/test_folder.hpp"
#include "collective/algorithms.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

constexpr const char* kSmall =
    "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --cluster local:4,nic=200Mb/s --policy ddp ";

class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_msccl_xml()) GTEST_SKIP() << "built without pugixml";
  }
  std::string file(const std::string& name, const ProgramRequest& request) const {
    return folder_.write(name, write_msccl_xml(make_program(request)));
  }
  test::ScratchFolder folder_{"program_inputs"};
};

TEST_F(Programs, APlanCarriesThemAndIsProven) {
  const std::string tree = file("tree.xml", {.algorithm = Algorithm::tree, .ranks = 4, .in_place = true});
  const std::string out = folder_.file("out");
  const CliResult plan = weft_cli(fmt::format("plan {}--program all_reduce={} --out {} --json", kSmall, tree, out));
  ASSERT_EQ(plan.code, kOk) << plan.err;
  EXPECT_TRUE(contains(plan.out, "program tree.xml")) << plan.out;
  const CliResult verified = weft_cli(fmt::format("verify {}/plan.json", out));
  EXPECT_EQ(verified.code, kOk) << verified.out << verified.err;
  const CliResult simulated = weft_cli(fmt::format("simulate {}/plan.json --json", out));
  ASSERT_EQ(simulated.code, kOk) << simulated.err;
  const auto step = [](const CliResult& r) { return nlohmann::json::parse(r.out)["policies"]["ddp"]["step_s"]; };
  EXPECT_EQ(step(plan), step(simulated));
}

// Sizes that only gates know are no program's; a policy that cuts experts by tokens has other transfers, and says so.
TEST_F(Programs, OfExpertsNeedSizesThatAreKnown) {
  const std::string exchange =
      file("exchange.xml", {.algorithm = Algorithm::pairwise, .kind = Collective::all_to_all, .ranks = 4});
  const std::string plan =
      "plan --layers 2 --hidden 64 --heads 4 --vocab 256 --experts 8 --top-k 2 --cluster local:4 --ep 4 --seq 512 "
      "--program all_to_all=" +
      exchange;
  const CliResult uneven = weft_cli(plan + " --policy serial");
  EXPECT_EQ(uneven.code, kBadInput);
  EXPECT_TRUE(contains(uneven.err, "give --expert-exchange padded")) << uneven.err;
  const CliResult serial = weft_cli(plan + " --policy serial --expert-exchange padded --json");
  EXPECT_EQ(serial.code, kOk) << serial.err;
  EXPECT_TRUE(contains(serial.out, "program exchange.xml")) << serial.out;
  const CliResult searched = weft_cli(plan + " --policy weft --expert-exchange padded --budget 1 --json");
  EXPECT_EQ(searched.code, kOk) << searched.err;
  EXPECT_TRUE(contains(searched.out, "program exchange.xml") || contains(searched.err, "is not used")) << searched.err;
}

TEST_F(Programs, AreRefusedWithTheReason) {
  const auto refused = [&](const std::string& program, const std::string& why) {
    const CliResult plan = weft_cli(fmt::format("plan {}--program {}", kSmall, program));
    EXPECT_EQ(plan.code, kBadInput);
    EXPECT_TRUE(contains(plan.err, why)) << plan.err;
  };
  const std::string three = file("three.xml", {.ranks = 3, .in_place = true});
  refused("all_reduce=" + three, "the program is for 3 ranks; the plan has all_reduce in groups dp of 4 ranks");
  refused("all_gather=" + three, "three.xml is a program for all_reduce");
  refused("all_gather=" + file("gather.xml", {.kind = Collective::all_gather, .ranks = 4}),
          "no transfer of the plan is such a collective");
  refused("broadcast=" + three, "'broadcast' is not all_reduce, reduce_scatter, all_gather or all_to_all");
  refused(three, "is not COLLECTIVE=FILE");
  std::string text = write_msccl_xml(make_program({.ranks = 4, .in_place = true}));
  const std::size_t reduce = text.find("\"rrc\"");
  ASSERT_NE(reduce, std::string::npos);
  text.replace(reduce, 5, "\"r\"");  // stores what it should add
  refused("all_reduce=" + folder_.write("wrong.xml", text), "wrong.xml is not taken: ");
}

// The sums of two algorithms differ in their rounding alone.
TEST_F(Programs, ARunWithThemTrainsAsOneRankDoes) {
  if (!kernels_available()) GTEST_SKIP() << "built without libtorch";
  const std::string shape = "--layers 2 --hidden 32 --heads 4 --seq 16 --steps 4 --json ";
  const auto losses = [&](const std::string& flags) {
    const CliResult run = weft_cli("run " + shape + flags);
    EXPECT_EQ(run.code, kOk) << run.err;
    const auto policies = nlohmann::json::parse(run.out)["policies"];
    return policies.front()["losses"].get<std::vector<double>>();
  };
  const std::vector<double> one = losses("--micro-batch 8 --cluster local:1 --policy serial");
  const std::string tree = file("tree.xml", {.algorithm = Algorithm::tree, .ranks = 4, .in_place = true});
  const std::string gather =
      file("gather.xml", {.algorithm = Algorithm::direct, .kind = Collective::all_gather, .ranks = 4});
  const std::string scatter =
      file("scatter.xml",
           {.algorithm = Algorithm::direct, .kind = Collective::reduce_scatter, .ranks = 4, .in_place = true});
  const std::string four = "--micro-batch 2 --cluster local:4,nic=1Gb/s ";
  for (const std::string& flags :
       {four + "--policy ddp --program all_reduce=" + tree,
        four + "--zero 3 --policy fsdp --program all_gather=" + gather + ",reduce_scatter=" + scatter,
        four + "--zero 1 --policy serial --program all_gather=" + gather + ",reduce_scatter=" + scatter}) {
    const std::vector<double> ranks = losses(flags);
    ASSERT_EQ(ranks.size(), one.size()) << flags;
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(ranks[i], one[i], 2e-4 * one[i]) << flags;
  }
}

// A wiring whose last link is slow: four ranks on a line cannot keep a ring busy, and trees made for it are faster.
TEST_F(Programs, AreMadeForATopologyAndKept) {
  const std::string topology = folder_.write("line.json", R"({"topology": "line",
    "vertices": [{"name": "a", "kind": "device"}, {"name": "b", "kind": "device"}, {"name": "c", "kind": "device"},
                 {"name": "d", "kind": "device"}],
    "links": [{"from": "a", "to": "b", "bandwidth": "25MB/s", "latency": "50us"},
              {"from": "b", "to": "c", "bandwidth": "25MB/s", "latency": "50us"},
              {"from": "c", "to": "d", "bandwidth": "25MB/s", "latency": "50us"}]})");
  const std::string cache = folder_.file("cache");
  const auto plan = [&](const std::string& more) {
    const CliResult result =
        weft_cli(fmt::format("plan {}--topology {} --cache {} --explain {}", kSmall, topology, cache, more));
    EXPECT_EQ(result.code, kOk) << result.err;
    return result.out;
  };
  const std::string words = plan("");
  EXPECT_TRUE(contains(words, "What carries out the collectives")) << words;
  EXPECT_TRUE(contains(words, "for line")) << words;
  EXPECT_FALSE(std::filesystem::is_empty(cache));
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    std::ofstream(entry.path()) << "{ broken";
  }
  EXPECT_EQ(plan(""), words) << "broken files are made anew";
  const CliResult wrong = weft_cli(fmt::format("plan {}--topology dgx1-v100", kSmall));
  EXPECT_EQ(wrong.code, kBadInput);
  EXPECT_TRUE(contains(wrong.err, "has 8 devices; the cluster has 4")) << wrong.err;
}

// Four ranks at a switch that adds up and copies: a plan takes programs with steps there, carries them, and is proven.
// A run cannot, says so, and trains with others as one rank does.
TEST_F(Programs, PlansUseSwitchesAndRunsSaySo) {
  const auto star = [&](const char* name, const char* abilities) {
    std::string text =
        fmt::format(R"({{"topology": "star", "vertices": [{{"name": "s", "kind": "switch"{}}})", abilities);
    std::string links;
    for (const char* device : {"a", "b", "c", "d"}) {
      text += fmt::format(R"(, {{"name": "{}", "kind": "device"}})", device);
      links += fmt::format(R"({}{{"from": "{}", "to": "s", "bandwidth": "25MB/s", "latency": "20us"}})",
                           links.empty() ? "" : ", ", device);
    }
    return folder_.write(name, fmt::format("{}], \"links\": [{}]}}", text, links));
  };
  const std::string able = star("able.json", R"(, "multicasts": true, "reduces": true)");
  const std::string shape = "--layers 2 --hidden 32 --heads 4 --seq 16 --vocab 128 ";
  const std::string four =
      shape + "--micro-batch 2 --cluster local:4,nic=200Mb/s --policy ddp --cache none --topology ";
  const std::string out = folder_.file("switched");
  const CliResult plan = weft_cli(fmt::format("plan {}{} --in-network --explain --out {} --json", four, able, out));
  ASSERT_EQ(plan.code, kOk) << plan.err;
  EXPECT_TRUE(contains(plan.out, "through 1 switch")) << plan.out;
  const auto step = [](const CliResult& r) {
    return nlohmann::json::parse(r.out)["policies"]["ddp"]["step_s"].get<double>();
  };
  const CliResult verified = weft_cli(fmt::format("verify {}/plan.json", out));
  EXPECT_EQ(verified.code, kOk) << verified.out << verified.err;
  EXPECT_EQ(step(plan), step(weft_cli(fmt::format("simulate {}/plan.json --json", out))));
  const CliResult without = weft_cli(fmt::format("plan {}{} --json", four, able));
  EXPECT_FALSE(contains(without.out, "through 1 switch"));
  EXPECT_LT(step(plan), step(without));

  std::string text = folder_.read("switched/plan.json");
  for (std::size_t at = text.find("\"reduces\":true"); at != std::string::npos; at = text.find("\"reduces\":true")) {
    text.replace(at, 14, "\"reduces\":false");
  }
  const CliResult unfit = weft_cli("verify " + folder_.write("unfit.json", text));
  EXPECT_NE(unfit.code, kOk);
  EXPECT_TRUE(contains(unfit.out + unfit.err, "no switch reduces and multicasts")) << unfit.out << unfit.err;

  const auto refused = [&](const std::string& command, const std::string& why) {
    const CliResult result = weft_cli(command);
    EXPECT_EQ(result.code, kBadInput) << command;
    EXPECT_TRUE(contains(result.err, why)) << result.err;
  };
  refused("run --in-network " + four + able, "no transport here makes sums in switches");
  refused("plan --in-network " + four + star("passive.json", ""), "has no switch that reduces and multicasts");
  refused("plan --in-network " + std::string(kSmall), "--in-network: switches take part as a --topology says");

  if (!kernels_available()) return;
  const CliResult one = weft_cli("run --steps 4 --json " + shape + "--micro-batch 8 --cluster local:1 --policy serial");
  const CliResult ranks = weft_cli(fmt::format("run {}/plan.json --steps 4 --json", out));
  ASSERT_EQ(ranks.code, kOk) << ranks.err;
  EXPECT_TRUE(contains(ranks.err, "have steps in switches")) << ranks.err;
  const auto losses = [](const CliResult& run) {
    return nlohmann::json::parse(run.out)["policies"].front()["losses"].get<std::vector<double>>();
  };
  ASSERT_EQ(losses(ranks).size(), losses(one).size());
  for (std::size_t i = 0; i < losses(one).size(); ++i)
    EXPECT_NEAR(losses(ranks)[i], losses(one)[i], 2e-4 * losses(one)[i]);
}

// On GPUs the library's call is a candidate too. What a program in the NVSwitches takes is bounded by 450 GB/s a
// device.
TEST_F(Programs, GpusPlanWithSwitchesAndTheTunerIsToldNvls) {
  const std::string out = folder_.file("nvls");
  const CliResult plan = weft_cli(
      "plan --model gpt2 --layers 1 --cluster dgx-h100:1 --topology dgx-h100 --in-network --cache none --policy ddp "
      "--explain --json --out " +
      out);
  ASSERT_EQ(plan.code, kOk) << plan.err;
  const auto choices = nlohmann::json::parse(plan.out)["policies"]["ddp"]["collective_choices"];
  ASSERT_FALSE(choices.empty());
  for (const auto& choice : choices) {
    EXPECT_TRUE(contains(choice["chosen"].get<std::string>(), "through 1 switch")) << choice;
    EXPECT_GE(choice["time_s"].get<double>(), choice["bytes"].get<double>() / 450e9) << choice;
  }
  const CliResult tuner = weft_cli("export " + out + "/plan.json --to nccl-tuner");
  EXPECT_EQ(tuner.code, kOk) << tuner.err;
  EXPECT_TRUE(contains(tuner.out, ",nvls,simple,24,1,8")) << tuner.out;
}

// A line of devices that is not in rank order, slow in the middle: the search must find what planning every permutation
// finds, for a pipeline (messages) and for tensor parallelism (programs).
TEST_F(Programs, DeviceMapsAreSearchedOnATopology) {
  const std::string line = folder_.write("line.json", R"({"topology": "line",
    "vertices": [{"name": "a", "kind": "device"}, {"name": "b", "kind": "device"}, {"name": "c", "kind": "device"},
                 {"name": "d", "kind": "device"}],
    "links": [{"from": "a", "to": "c", "bandwidth": "25MB/s", "latency": "50us"},
              {"from": "c", "to": "b", "bandwidth": "5MB/s", "latency": "50us"},
              {"from": "b", "to": "d", "bandwidth": "25MB/s", "latency": "50us"}]})");
  const auto step = [&](const std::string& layout, const std::string& map) {
    const CliResult plan =
        weft_cli(fmt::format("plan --layers 4 --hidden 64 --heads 4 --seq 64 --micro-batch 2 --global-batch 8 --vocab "
                             "128 --cluster local:4,nic=10Gb/s "
                             "--policy priority --cache none --json {} --topology {} {}",
                             layout, line, map));
    EXPECT_EQ(plan.code, kOk) << plan.err;
    return nlohmann::json::parse(plan.out)["policies"]["priority"]["step_s"].get<double>();
  };
  for (const std::string& layout : {std::string("--pp 4"), std::string("--tp 2")}) {
    std::vector<int> order{0, 1, 2, 3};
    double best = 1e9;
    do {
      best = std::min(best, step(layout, fmt::format("--device-map {}", fmt::join(order, ","))));
    } while (std::next_permutation(order.begin(), order.end()));
    const double in_order = step(layout, ""), chosen = step(layout, "--device-map auto");
    EXPECT_DOUBLE_EQ(chosen, best) << layout;
    EXPECT_LT(chosen, 0.9 * in_order) << layout;
  }
}

TEST_F(Programs, ARunOnATopologyWithADeviceMapTrainsAsOneRankDoes) {
  if (!kernels_available()) GTEST_SKIP() << "built without libtorch";
  const std::string ring = folder_.write("ring.json", R"({"topology": "ring",
    "vertices": [{"name": "a", "kind": "device"}, {"name": "b", "kind": "device"}, {"name": "c", "kind": "device"},
                 {"name": "d", "kind": "device"}],
    "links": [{"from": "a", "to": "c", "bandwidth": "100MB/s"}, {"from": "c", "to": "b", "bandwidth": "50MB/s"},
              {"from": "b", "to": "d", "bandwidth": "100MB/s"}, {"from": "d", "to": "a", "bandwidth": "100MB/s"}]})");
  const std::string shape = "--layers 4 --hidden 32 --heads 4 --seq 16 --vocab 128 --global-batch 8 ";
  const auto losses_of = [&](const CliResult& run) {
    EXPECT_EQ(run.code, kOk) << run.err;
    return nlohmann::json::parse(run.out)["policies"].front()["losses"].get<std::vector<double>>();
  };
  const std::vector<double> one =
      losses_of(weft_cli("run --steps 4 --json " + shape + "--micro-batch 8 --cluster local:1 --policy serial"));
  for (const std::string& layout : {std::string("--pp 4 --micro-batch 2"), std::string("--tp 2 --micro-batch 4")}) {
    const std::string out = folder_.file("mapped" + layout.substr(2, 2));
    const CliResult plan =
        weft_cli(fmt::format("plan {} {} --cluster local:4,nic=1Gb/s --policy priority --topology {} --cache none "
                             "--device-map auto --out {}",
                             shape, layout, ring, out));
    ASSERT_EQ(plan.code, kOk) << plan.err;
    EXPECT_TRUE(contains(plan.out, "--device-map auto: ranks on devices")) << plan.out;
    const CliResult verified = weft_cli(fmt::format("verify {}/plan.json", out));
    EXPECT_EQ(verified.code, kOk) << verified.out << verified.err;
    const std::vector<double> ranks = losses_of(weft_cli(fmt::format("run {}/plan.json --steps 4 --json", out)));
    ASSERT_EQ(ranks.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(ranks[i], one[i], 2e-4 * one[i]) << layout;
  }
}

// Two nodes compute at two fifths of the others' rate: their stages get fewer layers than any stage on a fast device.
TEST(DeviceMapSearch, GivesStagesOnSlowDevicesFewerLayers) {
  test::ScratchFolder folder("slow_devices");
  const std::string cluster = folder.write("cluster.json", R"({"name": "mixed", "device": "a100-80", "nodes": 4,
    "devices_per_node": 1, "levels": [{"name": "nic", "joins": "cluster", "bandwidth": "200Gb/s", "latency": "5us"}],
    "overrides": [{"nodes": [1, 2], "device": "v100-32"}]})");
  const CliResult plan = weft_cli(
      "plan --model gpt2-xl --layers 16 --pp 4 --micro-batch 1 --global-batch 16 --seq 1024 --policy serial "
      "--device-map auto --json --cluster " +
      cluster);
  ASSERT_EQ(plan.code, kOk) << plan.err;
  const std::string line = nlohmann::json::parse(plan.out)["device_map"];
  int device[4], layers[4];
  ASSERT_EQ(std::sscanf(line.c_str(), "ranks on devices %d,%d,%d,%d, stages of %d,%d,%d,%d layers", &device[0],
                        &device[1], &device[2], &device[3], &layers[0], &layers[1], &layers[2], &layers[3]),
            8)
      << line;
  for (int slow = 0; slow < 4; ++slow) {
    for (int fast = 0; fast < 4; ++fast) {
      const bool differ = (device[slow] == 1 || device[slow] == 2) && (device[fast] == 0 || device[fast] == 3);
      if (differ) {
        EXPECT_LT(layers[slow], layers[fast]) << line;
      }
    }
  }
}

TEST_F(Programs, GpusTakeThemWhereTheLibraryIsSlower) {
  const CliResult plan = weft_cli(
      "plan --model gpt2 --layers 2 --cluster dgx1-v100:1 --topology dgx1-v100 --cache none --policy ddp --explain "
      "--json");
  ASSERT_EQ(plan.code, kOk) << plan.err;
  const auto choices = nlohmann::json::parse(plan.out)["policies"]["ddp"]["collective_choices"];
  ASSERT_FALSE(choices.empty());
  for (const auto& choice : choices) {
    ASSERT_GE(choice["candidates"].size(), 2U) << choice;
    EXPECT_EQ(choice["chosen"], choice["candidates"][0]["program"]) << choice;  // fastest first
  }
}

}  // namespace
}  // namespace weft
