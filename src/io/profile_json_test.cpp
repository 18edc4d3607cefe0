#include "io/profile_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "graph/step_graph.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

std::string message(const std::string& text) {
  try {
    read_profile(text, "profile.json", default_profile());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ProfileJson, ReadsBackWhatItWrites) {
  const Profile profile = default_profile();
  EXPECT_EQ(read_profile(profile_to_json(profile).dump(), "profile.json", Profile{{{"default", {}}}, {}}), profile);
}

TEST(ProfileJson, ChangesWhatTheFileNamesAndNothingElse) {
  const Profile changed =
      read_profile(R"({"weft_profile": 1, "devices": {"a100-80": {"matrix_efficiency": 0.5, "launch_us": 2.5}}})",
                   "profile.json", default_profile());
  Profile expected = default_profile();
  expected.devices["a100-80"].matrix_efficiency = 0.5;
  expected.devices["a100-80"].launch = Nanos{2500};
  EXPECT_EQ(changed, expected);
}

TEST(ProfileJson, ANewDeviceStartsFromTheDefault) {
  const Profile changed = read_profile(R"({"weft_profile": 1, "devices": {"mi300x": {"memory_efficiency": 0.7}}})",
                                       "profile.json", default_profile());
  DeviceProfile expected = default_profile().device("default");
  expected.memory_efficiency = 0.7;
  EXPECT_EQ(changed.device("mi300x"), expected);
}

TEST(ProfileJson, MeasuredPointsReplaceThoseOfTheLevel) {
  const Profile changed = read_profile(
      R"({"weft_profile": 1, "links": {"nic": {"efficiency": 0.8,
          "measured": [{"members": 2, "bytes": [1024, 1048576], "efficiency": [0.1, 0.9]}]}}})",
      "profile.json", default_profile());
  const LinkProfile& nic = changed.links.at("nic");
  EXPECT_EQ(nic.efficiency, 0.8);
  EXPECT_EQ(nic.measured.at(2), (std::vector<MeasuredEfficiency>{{Bytes{1024}, 0.1}, {Bytes{1048576}, 0.9}}));
}

TEST(ProfileJson, OneEfficiencyReplacesATable) {
  const Profile own =
      read_profile(R"({"weft_profile": 1, "devices": {"h100": {"links": {"nvlink": {"efficiency": 0.1}}}}})",
                   "profile.json", default_profile());
  EXPECT_EQ(own.link("h100", "nvlink", LinkTiming::nominal).at(8, Bytes{1 << 30}), 0.1);
  EXPECT_EQ(own.link("h200", "nvlink", LinkTiming::nominal),
            default_profile().link("h200", "nvlink", LinkTiming::nominal));
}

TEST(ProfileJson, WhatItSaysOfALevelHoldsForEveryDeviceItDoesNotExcept) {
  const Profile all = read_profile(
      R"({"weft_profile": 1, "links": {"nvlink": {"efficiency": 0.2}},
          "devices": {"h100": {"links": {"nvlink": {"efficiency": 0.1}}}}})",
      "profile.json", default_profile());
  EXPECT_EQ(all.link("h100", "nvlink", LinkTiming::nominal).best(), 0.1);
  EXPECT_EQ(all.link("a100-80", "nvlink", LinkTiming::nominal).best(), 0.2);
}

// Every key of a real graph comes back as it was.
TEST(ProfileJson, MeasuredOperationsReadBack) {
  for (const bool flash : {true, false}) {
    Layout layout;
    layout.seq = 128;
    layout.clip_grad = 1;
    layout.attention = flash ? AttentionKernel::flash : AttentionKernel::unfused;
    const Cluster cluster(parse_cluster("local:1"));
    Profile profile = default_profile();
    std::int64_t time = 1;
    for (const Operation& op : build_step_graph(model_preset("mixtral-8x7b"), cluster, layout).operations) {
      if (!op.is_transfer()) profile.devices["cpu"].operations.emplace(op.key, Nanos{time = time * 3 % 1'000'003});
    }
    ASSERT_GT(profile.devices["cpu"].operations.size(), 20U);
    EXPECT_EQ(read_profile(profile_to_json(profile).dump(), "profile.json", default_profile()), profile);
  }
}

TEST(ProfileJson, WhatACalibrationFindsReadsBack) {
  Profile profile = default_profile();
  profile.machine = MachineFacts{"aarch64 0x41 0xd40", 2, 2, 1, "local, links paced to 200 Mb/s"};
  DeviceProfile& device = profile.devices["cpu"];
  device.operation_overhead = Nanos{1'500};
  device.handoff = Nanos{42'001};
  device.wake = Nanos{17'003};
  device.message_overhead = Nanos{9'999};
  device.reduce = {3.5e9};
  device.compute_slowdown = 0.125;
  device.transfer_slowdown = 0;  // stated, and none
  EXPECT_EQ(read_profile(profile_to_json(profile).dump(), "profile.json", default_profile()), profile);
}

TEST(ProfileJson, MeasuredOperationsReplaceThoseOfTheBase) {
  Profile base = default_profile();
  base.devices["cpu"].operations[OpKey{}] = Nanos{1};
  const Profile changed = read_profile(
      R"({"weft_profile": 1, "devices": {"cpu": {"operations": [
          {"kind": "attention", "phase": "input_grad", "dtype": "fp32", "causal_half": true,
           "dims": [1, 2, 3, 4, 5, 6], "seconds": 0.25}]}}})",
      "profile.json", base);
  OpKey key;
  key.kind = OpKind::attention;
  key.phase = Phase::input_grad;
  key.dtype = ElementType::fp32;
  key.causal_half = true;
  key.dims = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(changed.device("cpu").operations, (std::map<OpKey, Nanos>{{key, Nanos{250'000'000}}}));
}

TEST(ProfileJson, ReadsMeasuredOperationsOfEveryKindThatAreWritten) {
  Profile profile = default_profile();
  for (int kind = 0; kind < static_cast<int>(OpKind::transfer); ++kind) {
    OpKey key;
    key.kind = static_cast<OpKind>(kind);
    for (std::size_t i = 0; i < dimensions_of(key.kind); ++i) key.dims[i] = static_cast<std::int64_t>(i) + 1;
    profile.devices["cpu"].operations[key] = Nanos{1000 + kind};
  }
  EXPECT_EQ(read_profile(profile_to_json(profile).dump(), "profile.json", default_profile()), profile);
}

TEST(ProfileJson, MistakesInMeasuredOperationsNameTheEntry) {
  const std::string good = R"({"kind": "adam", "phase": "optimizer", "dtype": "fp32", "dims": [9, 28], "seconds": 1})";
  const auto with = [](const std::string& list) {
    return R"({"weft_profile": 1, "devices": {"cpu": {"operations": )" + list + "}}}";
  };
  EXPECT_EQ(message(with("[" + good + "]")), "");
  const std::vector<std::pair<std::string, std::vector<std::string>>> mistakes = {
      {"{}", {"devices.cpu", "'operations'", "array"}},
      {"[" + good + ", 3]", {"operations[1]"}},
      {"[" + good + "," + good + "]", {"operations[1]", "twice"}},
      {R"([{"phase": "forward"}])", {"operations[0]", "'seconds' is missing"}},
      {R"([{"kind": "gem", "phase": "forward", "dtype": "fp32", "dims": [1, 1, 1, 1], "seconds": 1}])",
       {"'gem'", "gemm"}},
      {R"([{"kind": "transfer", "phase": "forward", "dtype": "fp32", "dims": [], "seconds": 1}])", {"'transfer'"}},
      {R"([{"kind": "gemm", "phase": "forward", "dtype": "fp32", "dims": [1, 1, 1], "seconds": 1}])",
       {"operations[0]", "'dims'", "an array of 4, as gemm has"}},
      {R"([{"kind": "norm", "phase": "forward", "dtype": "fp32", "dims": [1, -1], "seconds": 1}])",
       {"'dims'[1]", "-1"}},
      {R"([{"kind": "norm", "phase": "forward", "dtype": "fp32", "dims": [1, 1], "seconds": 0}])",
       {"'seconds'", "1e-09"}},
      {R"([{"kind": "norm", "phase": "forward", "dtype": "fp32", "dims": [1, 1], "secs": 1}])", {"'secs'", "seconds"}}};
  for (const auto& [list, words] : mistakes) {
    for (const std::string& word : words) {
      EXPECT_NE(message(with(list)).find(word), std::string::npos) << list << ": " << message(with(list));
    }
  }
}

TEST(ProfileJson, MistakesNameThePlaceAndWhatIsAllowed) {
  EXPECT_NE(message("[]").find("profile.json: a profile is a JSON object"), std::string::npos) << message("[]");
  for (
      const auto& [text, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
          {R"({"devices": {}})", {"weft_profile"}},
          {R"({"weft_profile": 2})", {"weft_profile", "2", "1..1"}},
          {R"({"weft_profile": 1, "device": {}})", {"'device'", "devices"}},
          {R"({"weft_profile": 1, "devices": {"a100-80": {"matrix_eficiency": 1}}})",
           {"devices.a100-80", "matrix_eficiency", "matrix_efficiency"}},
          {R"({"weft_profile": 1, "devices": {"a100-80": {"matrix_efficiency": 1.5}}})", {"matrix_efficiency", "1.5"}},
          {R"({"weft_profile": 1, "devices": {"a100-80": {"matrix_efficiency": 0}}})", {"matrix_efficiency", "0.001"}},
          {R"({"weft_profile": 1, "devices": {"a100-80": {"launch_us": -1}}})", {"launch_us", "-1"}},
          {R"({"weft_profile": 1, "devices": {"a100-80": 3}})", {"devices.a100-80"}},
          {R"({"weft_profile": 1, "devices": 3})", {"devices"}},
          {R"({"weft_profile": 1, "devices": {"cpu": {"compute_slowdown": -0.5}}})", {"compute_slowdown", "-0.5"}},
          {R"({"weft_profile": 1, "devices": {"cpu": {"handoff": 1}}})", {"'handoff'", "handoff_us"}},
          {R"({"weft_profile": 1, "machine": {"cores": 2}})", {"machine", "'cpu' is missing"}},
          {R"({"weft_profile": 1, "machine": {"cpu": "x", "cores": -2}})", {"machine", "cores", "-2"}},
          {R"({"weft_profile": 1, "machine": {"cpu": "x", "cores": 2, "rank": 1}})", {"'rank'", "ranks"}},
          {R"({"weft_profile": 1, "links": {"nic": {"measured": [{"members": 1, "bytes": [1], "efficiency": [1]}]}}})",
           {"links.nic", "members"}},
          {R"({"weft_profile": 1, "links": {"nic": {"measured": [{"members": 2, "bytes": [2, 1], "efficiency": [1, 1]}]}}})",
           {"bytes", "ascending"}},
          {R"({"weft_profile": 1, "links": {"nic": {"measured": [{"members": 2, "bytes": [1, 2], "efficiency": [1]}]}}})",
           {"2 entries", "1"}}}) {
    for (const std::string& word : words) {
      EXPECT_NE(message(text).find(word), std::string::npos) << text << ": " << message(text);
    }
  }
}

TEST(ProfileJson, KeepsTheTimesOfALibrarysCollectives) {
  Profile profile = default_profile();
  profile.library.measured[{Collective::all_reduce, 2}] = {{Bytes{4096}, Nanos{70'000}},
                                                           {Bytes{65536}, Nanos{900'000}}};
  profile.library.measured[{Collective::all_gather, 4}] = {{Bytes{4096}, Nanos{50'000}, Nanos{60'000}}};
  const Profile again = read_profile(profile_to_json(profile).dump(), "profile.json", default_profile());
  EXPECT_EQ(again.library, profile.library);
  const auto refused = [](const std::string& entries) {
    try {
      read_profile(R"({"weft_profile": 1, "library": [)" + entries + "]}", "p.json", {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string good = R"({"collective": "all_reduce", "members": 2, "bytes": [1, 2], "seconds": [1, 2]})";
  EXPECT_EQ(refused(good), "accepted");
  EXPECT_NE(refused(good + "," + good).find("all_reduce of 2 members is listed twice"), std::string::npos);
  EXPECT_NE(
      refused(R"({"collective": "all_reduce", "members": 2, "bytes": [1], "seconds": [1, 2]})").find("same number"),
      std::string::npos);
  EXPECT_NE(
      refused(R"({"collective": "all_reduce", "members": 2, "bytes": [2, 1], "seconds": [1, 2]})").find("ascending"),
      std::string::npos);
  EXPECT_NE(refused(R"({"collective": "all_reduce", "members": 2, "bytes": [1], "seconds": [1],
                        "seconds_after_pause": [1, 2]})")
                .find("'seconds_after_pause' 2"),
            std::string::npos);
  EXPECT_NE(refused(R"({"collective": "sum", "members": 2, "bytes": [1], "seconds": [1]})").find("all_reduce"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
