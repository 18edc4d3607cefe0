// Collectives of a job whose links were measured, or whose library's choice is modelled.
#include "cost/library_time.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/cost_model.hpp"
#include "cost/measured_links.hpp"
#include "cost/nccl_model.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

// A reduction of tensor parallelism: a micro-batch's activations in bf16.
constexpr Bytes kActivations{std::int64_t{2048} * 2304 * 2};

struct Job {
  Cluster cluster;
  StepGraph graph;
  Job(const char* text, std::int64_t tp, std::int64_t dp) : cluster(parse_cluster(text)) {
    Layout layout;
    layout.tp = tp;
    layout.dp = layout.global_batch = dp;
    layout.seq = 2048;
    graph = build_step_graph(model_preset("megatron-1.7b"), cluster, layout);
  }
  const Operation& all_reduce(GroupKind group) const {
    for (const Operation& op : graph.operations) {
      const bool meant = op.communication && op.communication->group == group &&
                         op.communication->collective == Collective::all_reduce;
      if (meant && op.communication->bytes >= kActivations) return op;
    }
    ADD_FAILURE() << "no such operation";
    return graph.operations.front();
  }
  double seconds_of(GroupKind group, const Profile& profile) const {
    return seconds(CostModel(graph, cluster, profile).transfer(all_reduce(group)).alone());
  }
};

Profile ideal_links() {
  Profile profile = default_profile();
  remove_overheads(profile);
  return profile;
}

Profile measured(const Job& job, const MeasuredCollective& collective) {
  Profile profile = ideal_links();
  apply_measured_links(profile, job.cluster, std::vector{collective});
  return profile;
}

TEST(MeasuredLinks, ACollectiveTakesWhatItsSizeTook) {
  const Job job("dgx-a100:1,nvlink=300GB/s", 8, 1);
  const Profile profile =
      measured(job, {Collective::all_reduce, 8, 0, {{kActivations, {100e9}}, {Bytes{1 << 30}, {200e9}}}});
  // 2 * 7 / 8 of the bytes at a bus bandwidth of 100 GB/s, latency included.
  EXPECT_NEAR(job.seconds_of(GroupKind::tp, profile), 1.75 * static_cast<double>(kActivations.value) / 100e9, 2e-9);
}

TEST(MeasuredLinks, AcrossNodesTheShareOfTheNodesLinksCounts) {
  // All 16 ranks of two nodes reached 100 of the 200 GB/s that eight adapters carry, so a group with one rank in each
  // node gets half of its adapter: 2 * 1 / 2 of the bytes at 12.5 GB/s, which nothing beats, after two latencies.
  const Job job("dgx-a100:2", 8, 2);
  const double bytes = static_cast<double>(job.all_reduce(GroupKind::dp).communication->bytes.value);
  const Profile profile = measured(job, {Collective::all_reduce, 16, 8, {{Bytes{1 << 30}, {100e9}}}});
  EXPECT_EQ(job.cluster.spec().levels[1].name, "nic");
  const double latencies = 2 * seconds(job.cluster.spec().levels[1].latency);
  EXPECT_NEAR(job.seconds_of(GroupKind::dp, profile), bytes / 12.5e9 + latencies, 1e-8);
  // Groups inside a node are as before.
  EXPECT_EQ(job.seconds_of(GroupKind::tp, profile), job.seconds_of(GroupKind::tp, ideal_links()));
}

TEST(MeasuredLinks, OneSizeKeepsTheShapeOfTheOthers) {
  const Job job("dgx-h100:1", 8, 1);
  Profile profile = default_profile();
  const LinkProfile before = profile.link("h100", "nvlink", LinkTiming::nominal);
  apply_measured_links(profile, job.cluster,
                       std::vector<MeasuredCollective>{{Collective::all_reduce, 8, 0, {{Bytes{1 << 30}, {360e9}}}}});
  const LinkProfile& after = profile.link("h100", "nvlink", LinkTiming::nominal);
  // 360 of 450 GB/s at 1 GiB, and at 16 MiB as much less as before.
  EXPECT_NEAR(*after.collective_at(Collective::all_reduce, 8, Bytes{1 << 30}), 0.8, 1e-12);
  EXPECT_NEAR(*after.collective_at(Collective::all_gather, 8, Bytes{1 << 24}),
              0.8 * before.at(8, Bytes{1 << 24}) / before.at(8, Bytes{1 << 30}), 1e-12);
}

TEST(MeasuredLinks, NoLinkCarriesTwiceItsRate) {
  const Job job("dgx-a100:2", 8, 2);
  try {
    measured(job, {Collective::all_reduce, 16, 8, {{Bytes{1 << 30}, {401e9}}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "all_reduce of 16 ranks: 401 GB/s of 1.00 GiB is 2.0 times the 200 GB/s that its nic links carry in "
                 "the cluster");
  }
}

TEST(NcclTimes, ReplaceTheEfficiencyOfLinks) {
  const Job job("dgx-a100:1,nvlink=300GB/s", 8, 1);
  Profile profile = ideal_links();
  profile.collective_model = CollectiveModel::nccl;
  const double ring = 1.75 * static_cast<double>(kActivations.value) / 300e9;
  const auto choice = choose_nccl(Collective::all_reduce, {8, 1}, "a100-80", kActivations, {ring, Nanos{0}});
  EXPECT_NEAR(job.seconds_of(GroupKind::tp, profile), choice->seconds(), 2e-9);
  EXPECT_GT(choice->seconds(), ring);
}

}  // namespace
}  // namespace weft
