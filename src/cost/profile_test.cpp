#include "cost/profile.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(LinkProfile, InterpolatesOverTheLogarithmOfSizeAndMembers) {
  LinkProfile link{0.5, {}};
  link.measured[2] = {{Bytes{1 << 20}, 0.2}, {Bytes{1 << 22}, 0.6}};
  link.measured[8] = {{Bytes{1 << 20}, 0.1}, {Bytes{1 << 22}, 0.3}};
  EXPECT_DOUBLE_EQ(link.at(2, Bytes{1 << 20}), 0.2);
  EXPECT_DOUBLE_EQ(link.at(2, Bytes{1 << 21}), 0.4);  // halfway in the logarithm
  EXPECT_DOUBLE_EQ(link.at(4, Bytes{1 << 21}), 0.3);  // between 0.4 of two and 0.2 of eight members
  EXPECT_DOUBLE_EQ(link.at(2, Bytes{1 << 30}), 0.6);  // beyond the last point
  EXPECT_DOUBLE_EQ(link.at(64, Bytes{1 << 22}), 0.3);
  EXPECT_DOUBLE_EQ(link.best(), 0.6);
}

TEST(LinkProfile, SmallTransfersTakeTheTimeOfTheFirstPoint) {
  LinkProfile link{0.5, {}};
  link.measured[2] = {{Bytes{1 << 20}, 0.2}, {Bytes{1 << 22}, 0.6}};
  const auto time = [&](std::int64_t bytes) { return static_cast<double>(bytes) / link.at(2, Bytes{bytes}); };
  EXPECT_DOUBLE_EQ(time(1 << 10), time(1 << 20));
}

TEST(LinkProfile, WithoutMeasurementsThereIsOneEfficiency) {
  const LinkProfile link{0.85, {}};
  EXPECT_EQ(link.at(16, Bytes{1}), 0.85);
  EXPECT_EQ(link.best(), 0.85);
}

TEST(Profile, ADevicesOwnLinksComeFirstAndOnlyNominalOnesReachLessThanIsStated) {
  Profile profile = default_profile();
  profile.links["nvlink"].efficiency = 0.11;
  profile.devices["a100-80"].links["nvlink"] = {0.22, {}};
  EXPECT_EQ(profile.link("a100-80", "nvlink", LinkTiming::nominal).efficiency, 0.22);
  EXPECT_EQ(profile.link("cpu", "nvlink", LinkTiming::nominal).efficiency, 0.11);
  for (const LinkTiming timing : {LinkTiming::paced, LinkTiming::measured}) {
    EXPECT_EQ(profile.link("a100-80", "nvlink", timing).best(), 1.0) << name_of(timing);
  }
}

// The points are vTrain's: 8 A100 reach a bus bandwidth of 229 GB/s on 300 GB/s links with 1 GiB.
TEST(Profile, A100NvlinkIsAsMeasured) {
  const Profile profile = default_profile();
  EXPECT_NEAR(profile.link("a100-80", "nvlink", LinkTiming::nominal).at(8, Bytes{1 << 30}) * 300, 229.25, 0.5);
}

TEST(LibraryProfile, TimesFollowStraightLinesThroughWhatWasMeasured) {
  LibraryProfile library;
  EXPECT_EQ(library.time(Collective::all_reduce, 4, Bytes{100}), std::nullopt);
  library.measured[{Collective::all_reduce, 4}] = {
      {Bytes{100}, Nanos{50}}, {Bytes{200}, Nanos{60}}, {Bytes{400}, Nanos{100}}};
  const auto time = [&](std::int64_t bytes) { return library.time(Collective::all_reduce, 4, Bytes{bytes})->value; };
  EXPECT_EQ(time(1), 50);
  EXPECT_EQ(time(100), 50);
  EXPECT_EQ(time(150), 55);
  EXPECT_EQ(time(300), 80);
  EXPECT_EQ(time(1400), 300);  // 100 ns for 200 bytes and 20 ns for every further 100
  EXPECT_EQ(library.time(Collective::all_reduce, 2, Bytes{100}), std::nullopt);
  EXPECT_EQ(library.time(Collective::all_gather, 4, Bytes{100}), std::nullopt);
  library.measured[{Collective::all_gather, 2}] = {{Bytes{100}, Nanos{50}}};
  EXPECT_EQ(library.time(Collective::all_gather, 2, Bytes{300}), Nanos{150});
}

TEST(LibraryProfile, SaysWhatAPauseAdds) {
  LibraryProfile library;
  const auto added = [&](std::int64_t bytes) {
    return library.added_by_pause(Collective::all_reduce, 4, Bytes{bytes}).value;
  };
  EXPECT_EQ(added(100), 0);  // nothing was measured
  std::vector<LibraryProfile::Point>& points = library.measured[{Collective::all_reduce, 4}];
  points = {{Bytes{100}, Nanos{50}, Nanos{60}}, {Bytes{300}, Nanos{80}, Nanos{110}}};
  EXPECT_EQ(added(50), 10);
  EXPECT_EQ(added(200), 20);
  EXPECT_EQ(added(500), 50);  // 160 and 110 on the lines that go on
  points.push_back({Bytes{400}, Nanos{200}, Nanos{150}});
  EXPECT_EQ(added(400), 0);  // never less than one after the other
  points[0].after_pause = Nanos{0};
  EXPECT_EQ(added(200), 0);  // not measured for all sizes
}

// An all_reduce of 4 ranks moves 1.5 times the buffer in 6 steps, a gather of 2 ranks half of it in one.
TEST(LibraryProfile, SaysWhatTheLinksReach) {
  LibraryProfile library;
  EXPECT_FALSE(link_of(library));
  library.measured[{Collective::all_reduce, 4}] = {{Bytes{6}, Nanos{60}}, {Bytes{1000}, Nanos{300}}};
  EXPECT_EQ(link_of(library)->latency, Nanos{10});
  // From the first size to the second 1.5 * 994 bytes took 240 ns.
  EXPECT_NEAR(link_of(library)->bandwidth.bytes_per_second, 1.5 * 994 / 240e-9, 1);
  library.measured[{Collective::all_gather, 2}] = {{Bytes{8000}, Nanos{400}}};
  EXPECT_EQ(link_of(library)->latency, Nanos{10});
  EXPECT_NEAR(link_of(library)->bandwidth.bytes_per_second, 4000 / 400e-9, 1);
  library.at_once = 1.5;
  EXPECT_NEAR(link_of(library)->bandwidth.bytes_per_second, 6000 / 400e-9, 1);
}

}  // namespace
}  // namespace weft
