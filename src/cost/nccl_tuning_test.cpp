// The whole choice against NCCL's own tuning code, restated here as NCCL writes it (NVIDIA/nccl 5067397c,
// src/graph/tuning.cc: ncclTunerConstantsDefaults, ncclTopoTuneModel, ncclTopoGetAlgoTime) with one channel, no collnet
// and no limits per channel, which Weft leaves out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "cost/nccl_model.hpp"

namespace weft {
namespace {

enum { kTree, kRing, kNvls, kNvlsTree, kPat, kNcclAlgorithms };
enum { kLl, kLl128, kSimple, kNcclProtocols };

constexpr double kBaseLatencies[kNcclAlgorithms][kNcclProtocols] = {
    {6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {0, 0, 0}, {0, 0, 0}, {8.0, 8.0, 8.0}};
constexpr double kNvlinkLatencies[kNcclAlgorithms][kNcclProtocols] = {
    {0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4.0}};
constexpr double kNetLatencies[kNcclAlgorithms][kNcclProtocols] = {
    {5.0, 8.5, 14}, {2.7, 4.0, 14.0}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}};
constexpr double kLlMaxBws[4][3] = {{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}};
constexpr double kTreeFactors[kNcclProtocols][24] = {
    {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0, 1.0},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

struct Machine {
  const char* device;
  int compute_capability, index;
  bool amd, x86;
};
struct Times {
  int algorithm = -1, protocol = -1;
  double microseconds = 0;
};

int log2i(std::int64_t n) {
  int l = 0;
  while (n >>= 1) ++l;
  return l;
}

// `bandwidth` of a ring in GB/s; `in_switch` of all-reduces in the switch.
Times tuned(const Machine& machine, Collective coll, int ranks, int nodes, std::int64_t bytes, double bandwidth,
            double in_switch) {
  const bool all_reduce = coll == Collective::all_reduce;
  const int nsteps = all_reduce ? 2 * (ranks - 1) : ranks - 1;
  const double ppn = static_cast<double>(ranks) / nodes;
  const int index2 = nodes <= 2 ? nodes - 1 : 2;
  const int index1 = nodes == 1 ? machine.index : machine.amd ? 1 : 0;
  const double llMaxBw = kLlMaxBws[index1][index2];
  Times best;
  for (int a = 0; a < kNcclAlgorithms; ++a) {
    if (!all_reduce && a != kPat && a != kRing && a != kNvls) continue;
    if (all_reduce && a == kPat) continue;
    if (a == kNvls && nodes > 1) continue;  // without collnet
    if (a == kNvlsTree && nodes == 1) continue;
    if ((a == kNvls || a == kNvlsTree) && (machine.compute_capability < 90 || ppn <= 1)) continue;
    if (a == kPat && nodes != ranks) continue;
    for (int p = 0; p < kNcclProtocols; ++p) {
      if ((a == kNvls || a == kNvlsTree || a == kPat) && p != kSimple) continue;
      double busBw = bandwidth;
      if (a == kNvls) busBw = all_reduce ? in_switch : in_switch / 2 * (ppn - 1) / ppn;
      if (a == kNvlsTree) busBw = bandwidth * (nodes <= 2 ? 2 : 1);
      if (a == kRing && p == kLl) busBw = std::min(llMaxBw, busBw * .5);
      if (a == kRing && p == kLl128) busBw = busBw * 0.92;
      if (a == kTree) busBw = busBw * .92;
      if (a == kTree && p == kLl) busBw = std::min(busBw * 1.0 / 3.8, llMaxBw);
      if (a == kTree && p == kLl128) busBw = busBw * (nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0);
      if (a == kPat) busBw *= .75;
      if (!(a != kRing && !all_reduce)) {
        busBw *= a == kRing || a == kNvls || a == kNvlsTree ? (1.0 * ranks) / nsteps : .5;
      }
      double latency = kBaseLatencies[a][p];
      double intraLat = kNvlinkLatencies[a][p];
      const double interLat = ppn == 1 ? kNetLatencies[kTree][p] : kNetLatencies[a][p];
      if (a == kRing) {
        double netOverhead = 0;
        if (nodes > 1) {
          netOverhead = machine.amd ? 2.0 : 1.0;
          if (p == kSimple) netOverhead *= 3;
        }
        intraLat = std::max(intraLat, netOverhead);
        const int nInterSteps = nodes == 1 ? 0 : all_reduce ? 2 * (nodes - 1) : nodes - 1;
        latency += (nsteps - nInterSteps) * intraLat + nInterSteps * interLat;
      } else if (a == kTree) {
        latency += 2 * ((ranks / nodes - 1) * intraLat + log2i(nodes) * interLat);
      } else if (a == kNvls) {
        latency = intraLat;
      } else if (a == kNvlsTree) {
        latency += intraLat + 2 * log2i(nodes) * interLat;
      } else {
        latency += log2i(nodes) * (interLat / 3.5) + ranks * 2.8;
      }
      const int logSize = log2i(bytes >> 6);
      if (a == kTree && logSize < 23) busBw *= kTreeFactors[p][logSize];
      if (a == kNvlsTree && logSize < 24 && machine.compute_capability >= 100 && machine.x86) {
        busBw *= kTreeFactors[p][logSize];
      }
      if (a == kRing && p == kSimple && nodes > 1 && all_reduce && bytes / ranks >= 64) {
        latency *= machine.compute_capability < 80 ? 1.9 : 1.4;
      }
      const double time = latency + static_cast<double>(bytes) / (1000 * busBw);
      if (best.algorithm < 0 || time < best.microseconds) best = {a, p, time};
    }
  }
  return best;
}

TEST(NcclModel, ChoosesAsNcclsTuningCodeDoes) {
  constexpr std::array kMachines{Machine{"v100-32", 70, 0, false, true}, Machine{"a100-80", 80, 1, true, true},
                                 Machine{"h100", 90, 2, false, true},    Machine{"b200", 100, 3, false, true},
                                 Machine{"gb200", 100, 3, false, false}, Machine{"gb300", 100, 3, false, false}};
  constexpr const char* kAlgorithmNames[] = {"tree", "ring", "NVLS", "NVLSTree", "PAT"};
  constexpr const char* kProtocolNames[] = {"LL", "LL128", "Simple"};
  int compared = 0;
  std::array<int, kNcclAlgorithms> chosen{};
  for (const Machine& machine : kMachines) {
    for (const Collective coll : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      for (const int nodes : {1, 2, 3, 4, 16, 64}) {
        for (const int per_node : {1, 2, 4, 8}) {
          const int ranks = nodes * per_node;
          if (ranks == 1) continue;
          for (std::int64_t bytes = 1 << 10; bytes <= std::int64_t{8} << 30; bytes *= 2) {
            const double bandwidth = nodes == 1 ? 230 : 42;  // GB/s
            const double steps = (coll == Collective::all_reduce ? 2.0 : 1.0) * (ranks - 1);
            const double ring = steps / ranks * static_cast<double>(bytes) / (bandwidth * 1e9);
            const Times expected = tuned(machine, coll, ranks, nodes, bytes, bandwidth, 1.27 * bandwidth);
            const auto choice = choose_nccl(coll, {ranks, nodes}, machine.device, Bytes{bytes}, {ring, Nanos{0}});
            ASSERT_TRUE(choice);
            const std::string place = std::string(machine.device) + ", " + std::to_string(ranks) + " ranks on " +
                                      std::to_string(nodes) + " nodes, " + std::to_string(bytes) + " bytes";
            ASSERT_NEAR(choice->seconds() * 1e6, expected.microseconds, 1e-3 * expected.microseconds) << place;
            EXPECT_EQ(name_of(choice->algorithm), kAlgorithmNames[expected.algorithm]) << place;
            EXPECT_EQ(name_of(choice->protocol), kProtocolNames[expected.protocol]) << place;
            ++compared;
            ++chosen[static_cast<std::size_t>(expected.algorithm)];
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 9000);
  for (const int times : chosen) EXPECT_GT(times, 0);  // every algorithm is somewhere the best
}

}  // namespace
}  // namespace weft
