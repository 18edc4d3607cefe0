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
#include "cluster/device.hpp"
#include "cost/kernel_time.hpp"
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

struct MeasuredProduct {
  std::int64_t rows, columns, inner;
  double seconds;
};

// The products of the file in the order in which they were measured, each ten times.
std::vector<MeasuredProduct> h200_products() {
  std::vector<MeasuredProduct> products;
  for (const auto& row : measured_rows("devices/h200_gemm_bf16.csv")) {
    products.push_back({std::stoll(row[1]), std::stoll(row[2]), std::stoll(row[3]), std::stod(row[4]) / 1e3});
  }
  return products;
}

double modelled_seconds(const MeasuredProduct& p, const DeviceProfile& reached) {
  OpKey key;
  key.kind = OpKind::gemm;
  key.dtype = ElementType::bf16;
  key.dims = {p.rows, p.columns, p.inner, 1};
  return kernel_seconds(key, device_profile("h200"), reached);
}

struct ProductErrors {
  double mean = 0, worst = 0;
};
ProductErrors errors_of(const std::vector<MeasuredProduct>& products, const DeviceProfile& reached) {
  std::vector<double> errors;
  for (const MeasuredProduct& p : products) errors.push_back(std::abs(modelled_seconds(p, reached) / p.seconds - 1));
  return {mean_of(errors), *std::max_element(errors.begin(), errors.end())};
}

// For the first 50 ms of load an H200 runs at its full clock, then its power limit lowers the clock by a sixth: the
// profile's efficiency is that of the second kind. Products of less than 30 us measure the host that starts them.
TEST(MeasuredDevices, ProductsOfH200FollowTheirMeasurements) {
  constexpr double kFullClockSeconds = 0.05, kHostSeconds = 30e-6;
  std::vector<MeasuredProduct> at_full_clock, sustained;
  double loaded = 0;
  for (const MeasuredProduct& p : h200_products()) {
    loaded += 10 * p.seconds;
    if (p.seconds > kHostSeconds) (loaded < kFullClockSeconds ? at_full_clock : sustained).push_back(p);
  }
  if (sustained.empty()) GTEST_SKIP() << "../shared/data/devices is not here";
  const Profile profile = default_profile();
  DeviceProfile reached = profile.device("h200");
  const ProductErrors long_run = errors_of(sustained, reached);
  EXPECT_LT(long_run.mean, 0.05);
  EXPECT_LT(long_run.worst, 0.14);
  // At the full clock the largest product tells the efficiency; what is compared is how time falls off with size.
  const MeasuredProduct& largest =
      *std::max_element(at_full_clock.begin(), at_full_clock.end(),
                        [](const MeasuredProduct& a, const MeasuredProduct& b) { return a.seconds < b.seconds; });
  reached.matrix_efficiency *= modelled_seconds(largest, reached) / largest.seconds;
  const ProductErrors burst = errors_of(at_full_clock, reached);
  EXPECT_LT(burst.mean, 0.035);
  EXPECT_LT(burst.worst, 0.15);
}

}  // namespace
}  // namespace weft
