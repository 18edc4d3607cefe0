// Modelled times against tables that were measured on devices, where ../shared/data is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "cost/profile.hpp"

namespace weft {
namespace {

// The rows of a comma-separated file behind its heading, without comments; empty where it is absent.
std::vector<std::vector<std::string>> measured_rows(const std::string& name) {
  std::ifstream file(std::filesystem::path(WEFT_SOURCE_DIR "/../shared/data") / name);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') rows.push_back(split(line, ','));
  }
  if (!rows.empty()) rows.erase(rows.begin());
  return rows;
}

double mean_of(const std::vector<double>& errors) {
  return std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
}

// vTrain measured every whole number of MiB; the profile holds some of them.
TEST(MeasuredDevices, AllReducesOfA100FollowVTrainsTablesBetweenTheirSizesToo) {
  const Profile profile = default_profile();
  const LinkProfile& link = profile.link("a100-80", "nvlink", LinkTiming::nominal);
  for (const std::int64_t members : {2, 4, 8}) {
    SCOPED_TRACE(members);
    const auto rows = measured_rows("nccl_tables/vtrain_a100_allreduce_" + std::to_string(members) + "gpu.csv");
    if (rows.empty()) GTEST_SKIP() << "../shared/data/nccl_tables is not here";
    std::vector<double> errors;
    double worst = 0;
    for (const auto& row : rows) {
      const double rate = 300e9 * link.at(members, Bytes{std::stoll(row[0])});
      errors.push_back(std::abs(rate / (1e9 * std::stod(row[6])) - 1));
      worst = std::max(worst, errors.back());
    }
    EXPECT_LT(mean_of(errors), 0.012);
    EXPECT_LT(worst, 0.17);
  }
}

}  // namespace
}  // namespace weft
