// The device table against the vendors' data sheets.
#include "cluster/device.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cluster/validate.hpp"

namespace weft {
namespace {

TEST(Device, EveryNamedProfileIsValidAndBearsItsName) {
  for (const std::string& name : device_names()) {
    const Device device = device_profile(name);
    EXPECT_EQ(device.name, name);
    EXPECT_NO_THROW(validate(device)) << name;
  }
}

// Data sheets: NVIDIA A100 SXM4 80 GB, H100 SXM5, H200 SXM.
TEST(Device, FiguresAreThoseOfTheDataSheets) {
  const Device a100 = device_profile("a100-80");
  EXPECT_DOUBLE_EQ(a100.matrix_tflops_16, 312);
  EXPECT_DOUBLE_EQ(a100.matrix_tflops_32, 156);
  EXPECT_DOUBLE_EQ(a100.vector_tflops_32, 19.5);
  EXPECT_EQ(a100.memory, Bytes{85'899'345'920});  // 80 x 2^30
  EXPECT_DOUBLE_EQ(a100.memory_bandwidth.bytes_per_second, 2.039e12);
  EXPECT_EQ(a100.compute_units, 108);
  EXPECT_DOUBLE_EQ(device_profile("h100").matrix_tflops_16, 989);
  EXPECT_DOUBLE_EQ(device_profile("h200").memory_bandwidth.bytes_per_second, 4.8e12);
  EXPECT_DOUBLE_EQ(device_profile("v100-32").matrix_tflops_32, 15.7);
}

// Data sheets: HGX B200 (36 PFLOP/s in fp8 of eight GPUs, dense), GB200 and GB300 NVL72 (360; 720 and 1,080 in fp4, of
// 72).
TEST(Device, NarrowProductsAreThoseOfTheDataSheets) {
  EXPECT_DOUBLE_EQ(device_profile("h100").matrix_tflops_8, 1979);
  EXPECT_DOUBLE_EQ(device_profile("h100").matrix_tflops_4, 0);
  EXPECT_DOUBLE_EQ(device_profile("a100-80").matrix_tflops_8, 0);
  EXPECT_DOUBLE_EQ(device_profile("b200").matrix_tflops_8, 36'000.0 / 8);
  EXPECT_DOUBLE_EQ(device_profile("gb200").matrix_tflops_8, 360'000.0 / 72);
  EXPECT_DOUBLE_EQ(device_profile("gb200").matrix_tflops_4, 720'000.0 / 72);
  EXPECT_DOUBLE_EQ(device_profile("gb300").matrix_tflops_4, 1'080'000.0 / 72);
}

// The tensor cores of both generations do TF32 at half their 16-bit rate; a V100 has no TF32.
TEST(Device, Tf32RunsAtHalfTheSixteenBitRateWhereItExists) {
  for (const char* name : {"a100-40", "a100-80", "h100", "h800", "h200"}) {
    const Device device = device_profile(name);
    EXPECT_NEAR(device.matrix_tflops_32 / device.matrix_tflops_16, 0.5, 0.001) << name;
  }
  EXPECT_DOUBLE_EQ(device_profile("v100-16").matrix_tflops_32, device_profile("v100-16").vector_tflops_32);
}

TEST(Device, ACoreOfThisMachineIsNotSlowedByPacedLinks) {
  EXPECT_EQ(device_profile("cpu").compute_slowdown, 0);
  EXPECT_EQ(device_profile("cpu").transfer_slowdown, 0);
  EXPECT_DOUBLE_EQ(device_profile("a100-80").compute_slowdown, 0.1255);
}

TEST(Device, AnUnknownNameGetsTheNearestSuggested) {
  try {
    device_profile("a100-8");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "device 'a100-8' is not known; did you mean 'a100-80'?");
  }
}

TEST(Device, MemoryIsReadAndWritten) {
  Device device;
  device.memory_bandwidth = {1e9};
  EXPECT_EQ(memory_time(device, MemoryWork::copy, Bytes{1000}), Nanos{2000});
  EXPECT_EQ(memory_time(device, MemoryWork::reduce, Bytes{1000}), Nanos{3000});
  EXPECT_EQ(memory_time(device, MemoryWork::copy, Bytes{1000}, 10), Nanos{20'000});
}

}  // namespace
}  // namespace weft
