#include "timeline/trace/trace_breakdown.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "timeline/trace/communication_library.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMicrosecond = 1000;

DeviceActivity kernel(KernelKind kind, std::int64_t start_ns, std::int64_t end_ns, std::int32_t position = 0) {
  DeviceActivity activity;
  activity.start = {start_ns};
  activity.end = {end_ns};
  activity.kind = kind;
  activity.position = position;
  return activity;
}

DeviceTrace trace_of(std::vector<DeviceActivity> activities) {
  DeviceTrace trace;
  trace.names = {"k"};
  trace.device = std::move(activities);
  connect_launches(trace);
  return trace;
}

// Names as the libraries' own sources and traces of jobs that use them have them.
TEST(KernelKind, KnowsOtherLibrariesThanNccl) {
  for (const auto& [name, library] : std::vector<std::pair<const char*, const char*>>{
           {"void internode::dispatch<true, 2, false>(int4*, float*)", "DeepEP"},
           {"void deep_ep::internode::notify_dispatch<false, 8>(int const*)", "DeepEP"},
           {"void intranode::combine<__nv_bfloat16, 8, 768, 4096>()", "DeepEP"},
           {"void internode_ll::combine<7168, 9>(void*)", "DeepEP"},
           {"void hybrid_ep::dispatch_kernel<256>()", "HybridEP"},
           {"void nvshmemi_transfer_rma_block(int)", "NVSHMEM"},
           {"userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", "user buffers"},
           {"void symm_mem::one_shot_all_reduce_kernel<c10::BFloat16>()", "symmetric memory"},
           {"multimem_all_reduce_kernel", "symmetric memory"},
           {"hcclAllReduce", "HCCL"},
           {"Memcpy PtoP (Device -> Device)", "copy engines"},
           {"ncclSymkDevKernel_AllGather_LL", "NCCL"}}) {
    EXPECT_EQ(communication_library(name), library) << name;
    EXPECT_EQ(kernel_kind(name), KernelKind::communication) << name;
  }
  for (const char* name :
       {"void cutlass::Kernel2<cutlass_80_tensorop>()", "flash_fwd_kernel", "Memcpy DtoH (Device -> Pinned)",
        "void combine_heads_kernel<float>()", "dispatch_table_kernel"}) {
    EXPECT_EQ(communication_library(name), "") << name;
  }
}

TEST(KernelKind, IsToldByTheNameAsHtaDoes) {
  EXPECT_EQ(kernel_kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"), KernelKind::communication);
  EXPECT_EQ(kernel_kind("void my::ncclKernel<float>()"), KernelKind::communication);
  EXPECT_EQ(kernel_kind("Memcpy DtoD (Device -> Device)"), KernelKind::memory);
  EXPECT_EQ(kernel_kind("Memset (Device)"), KernelKind::memory);
  EXPECT_EQ(kernel_kind("volta_sgemm_128x64_nn"), KernelKind::computation);
  EXPECT_EQ(kernel_kind("Stream Wait Event"), KernelKind::computation);
  EXPECT_EQ(kernel_kind("Stream Sync"), KernelKind::other);
  EXPECT_EQ(kernel_kind(""), KernelKind::computation);
}

TEST(ElementBytes, KnowsPyTorchsNames) {
  EXPECT_EQ(element_bytes("BFloat16"), 2);
  EXPECT_EQ(element_bytes("c10::Half"), 2);
  EXPECT_EQ(element_bytes("float"), 4);
  EXPECT_EQ(element_bytes("Long"), 8);
  EXPECT_EQ(element_bytes("long int"), 8);
  EXPECT_EQ(element_bytes("unsigned char"), 1);
  EXPECT_EQ(element_bytes("Float8_e4m3fn"), 1);
  EXPECT_EQ(element_bytes("Something"), 0);
}

TEST(TraceBreakdown, CountsAnExampleByHand) {
  // Computation 0..10 and 20..30, communication 5..25, a copy 40..42: 42 in all, busy 0..30 and 40..42, so idle 10;
  // compute 20; non-compute 42 - 20 - 10 = 12; overlapped 5..10 and 20..25 of 20.
  const RankBreakdown b = break_down(
      trace_of({kernel(KernelKind::computation, 0, 10'000), kernel(KernelKind::communication, 5'000, 25'000),
                kernel(KernelKind::computation, 20'000, 30'000), kernel(KernelKind::memory, 40'000, 42'000)}),
      false);
  EXPECT_EQ(b.kernel.value, 42'000);
  EXPECT_EQ(b.idle.value, 10'000);
  EXPECT_EQ(b.compute.value, 20'000);
  EXPECT_EQ(b.non_compute.value, 12'000);
  EXPECT_EQ(b.overlap_pct, 50.0);
  EXPECT_EQ(b.idle_pct, 23.81);  // 10 / 42
  EXPECT_EQ(b.compute_pct, 47.62);
  EXPECT_EQ(b.non_compute_pct, 28.57);
  ASSERT_EQ(b.kernel_types.size(), 4U);  // of 32: equal times in the order of their numbers
  EXPECT_EQ(kernel_type_name(b.kernel_types[0].kinds), "COMPUTATION");
  EXPECT_EQ(b.kernel_types[0].percentage, 31.2);  // 10 / 32 = 31.25, halves to even
  EXPECT_EQ(kernel_type_name(b.kernel_types[2].kinds), "COMPUTATION overlapping COMMUNICATION");
  EXPECT_EQ(b.kernel_types[3].time.value, 2'000);
}

// Microsecond by microsecond, which kinds run.
RankBreakdown by_cells(const DeviceTrace& trace, std::map<int, std::int64_t>& types) {
  std::map<std::int64_t, std::uint8_t> cells;
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  for (const DeviceActivity& a : trace.device) {
    first = std::min(first, a.start.value / kMicrosecond);
    last = std::max(last, a.end.value / kMicrosecond);
    for (std::int64_t t = a.start.value / kMicrosecond; t < a.end.value / kMicrosecond; ++t) {
      cells[t] |= static_cast<std::uint8_t>(1 << static_cast<int>(a.kind));
    }
  }
  RankBreakdown b;
  std::int64_t compute = 0, communication = 0, both = 0;
  for (const auto& [t, kinds] : cells) {
    compute += kinds & 1;
    communication += (kinds >> 1) & 1;
    both += (kinds & 3) == 3 ? 1 : 0;
    if ((kinds & 7) != 0) ++types[kinds & 7];
  }
  b.kernel = {(last - first) * kMicrosecond};
  b.idle = {b.kernel.value - static_cast<std::int64_t>(cells.size()) * kMicrosecond};
  b.compute = {compute * kMicrosecond};
  b.communication = {communication * kMicrosecond};
  b.overlapped = {both * kMicrosecond};
  return b;
}

TEST(TraceBreakdown, AgreesWithCountingCells) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<DeviceActivity> activities;
    const auto count = 1 + random() % 20;
    for (unsigned i = 0; i < count; ++i) {
      const std::int64_t start = static_cast<std::int64_t>(random() % 60) * kMicrosecond;
      const std::int64_t length = static_cast<std::int64_t>(random() % 9) * kMicrosecond;
      activities.push_back(
          kernel(static_cast<KernelKind>(random() % 4), start, start + length, static_cast<std::int32_t>(i)));
    }
    const DeviceTrace trace = trace_of(activities);
    std::map<int, std::int64_t> types;
    const RankBreakdown expected = by_cells(trace, types);
    const RankBreakdown b = break_down(trace, false);
    EXPECT_EQ(b.kernel, expected.kernel);
    EXPECT_EQ(b.idle, expected.idle);
    EXPECT_EQ(b.compute, expected.compute);
    EXPECT_EQ(b.communication, expected.communication);
    EXPECT_EQ(b.overlapped, expected.overlapped);
    std::map<int, std::int64_t> found;
    for (const KernelTypeTime& type : b.kernel_types) found[type.kinds] = type.time.value / kMicrosecond;
    EXPECT_EQ(found, types);
  }
}

TEST(TraceBreakdown, RoundsFractionsAsHtaDoes) {
  DeviceTrace trace =
      trace_of({kernel(KernelKind::computation, 10'400, 20'600, 0), kernel(KernelKind::computation, 30'200, 30'800, 1),
                kernel(KernelKind::communication, 19'000, 25'999, 2)});
  trace.fractional = true;
  // Rounded: computation 11..20 and 31..30 (between two microseconds: minus one long), communication 19..25.
  const RankBreakdown b = break_down(trace, false);
  EXPECT_EQ(b.kernel.value, 19'000);         // 11..30
  EXPECT_EQ(b.compute.value, 8'000);         // 9 - 1
  EXPECT_EQ(b.idle.value, 19'000 - 13'000);  // 11..25 and 31..30
  EXPECT_EQ(b.communication.value, 6'000);
  EXPECT_EQ(b.overlapped.value, 1'000);
}

TEST(TraceBreakdown, LeavesOutWhatTheLastStepLaunched) {
  DeviceTrace trace;
  trace.names = {"k", "cudaLaunchKernel"};
  trace.threads.resize(1);
  for (int i = 0; i < 3; ++i) {
    HostActivity launch;
    launch.start = {i * 100'000 + 10'000};
    launch.end = {i * 100'000 + 11'000};
    launch.correlation = i;
    launch.name = 1;
    trace.host.push_back(launch);
    // Each runs 150 after its launch: the second of them within the third step.
    DeviceActivity activity = kernel(KernelKind::computation, i * 100'000 + 160'000, i * 100'000 + 165'000, i);
    activity.correlation = i;
    trace.device.push_back(activity);
    trace.steps.push_back({i + 7, Nanos{i * 100'000}, Nanos{i * 100'000 + 100'000}});
  }
  connect_launches(trace);
  EXPECT_TRUE(leaves_out_last_step(std::vector<DeviceTrace>{trace}));
  EXPECT_EQ(break_down(trace, true).activities, 2);
  EXPECT_EQ(break_down(trace, false).activities, 3);
  EXPECT_EQ(counted_activities(trace, true), (std::vector<bool>{true, true, false}));
  // A step that the profiler drew on a stream counts too, and it begins when its first kernel runs.
  trace.device_steps = {{9, Nanos{360'000}, Nanos{365'000}}};
  EXPECT_EQ(break_down(trace, true).activities, 3);
  // One step only: all of it counts.
  trace.steps.resize(1);
  trace.device_steps.clear();
  EXPECT_FALSE(leaves_out_last_step(std::vector<DeviceTrace>{trace}));
}

TEST(TraceBreakdown, HasNoNumbersForNothing) {
  const RankBreakdown b = break_down(trace_of({}), false);
  EXPECT_EQ(b.activities, 0);
  EXPECT_EQ(b.overlap_pct, std::nullopt);
  EXPECT_EQ(b.idle_pct, std::nullopt);
  EXPECT_TRUE(b.kernel_types.empty());
}

TEST(TraceBreakdown, SummarizesKernelsByName) {
  DeviceTrace trace = trace_of({kernel(KernelKind::computation, 0, 10), kernel(KernelKind::computation, 20, 24),
                                kernel(KernelKind::communication, 30, 37)});
  trace.names.emplace_back("nccl");
  trace.device[2].name = 1;
  const std::vector<KernelSummary> summaries = summarize_kernels(trace, false);
  ASSERT_EQ(summaries.size(), 2U);
  EXPECT_EQ(summaries[0].count, 2);
  EXPECT_EQ(summaries[0].total.value, 14);
  EXPECT_EQ(summaries[0].shortest.value, 4);
  EXPECT_EQ(summaries[0].longest.value, 10);
  EXPECT_EQ(summaries[1].kind, KernelKind::communication);
}

}  // namespace
}  // namespace weft
