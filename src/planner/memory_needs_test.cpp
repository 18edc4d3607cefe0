#include "planner/memory_needs.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "cost/framework.hpp"
#include "model/counts.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

Profile with_memory(const FrameworkMemory& memory) {
  Profile profile;
  profile.framework = std::make_shared<const Framework>(
      Framework{.name = "any", .policy = "serial", .kernels = {}, .devices = {}, .memory = memory});
  return profile;
}

// Its vocabulary needs no padding.
Transformer even_gpt() {
  Transformer model = test::small_gpt(2);
  model.vocab = 512;
  return model;
}

class TwoReplicas : public testing::Test {
 protected:
  PlanRequest request_ =
      test::request(even_gpt(), parse_cluster("local:2,nic=1Gb/s"), {.seq = 16}, /*micro_batches=*/2);
  Plan plan_ = make_plan(request_, test::build(request_), "serial");
  Bytes own_ = plan_.classes[ClassId{0}].memory;  // of the plan's values

  Bytes needed(const FrameworkMemory& memory) const { return memory_needs(plan_, with_memory(memory)).front().needed; }
};

TEST_F(TwoReplicas, NeedThePlansValuesAloneWhereNoFrameworkIsKnown) {
  const std::vector<MemoryNeed> needs = memory_needs(plan_, {});
  ASSERT_EQ(needs.size(), 1U);
  EXPECT_EQ(needs.front().needed, own_);
  EXPECT_EQ(needs.front().available, request_.cluster.device.memory);
  EXPECT_EQ(needed({}), own_);
}

// Two replicas reduce every gradient in buckets: so many bytes for each of the model's parameters.
TEST_F(TwoReplicas, NeedTheFrameworksBucketsBesides) {
  const std::int64_t parameters = total_parameters(request_.model);
  EXPECT_EQ(needed({.bucket_bytes = 4}), own_ + Bytes{4 * parameters});
}

TEST_F(TwoReplicas, FitOnlyWithWhatTheFrameworkTakes) {
  plan_.graph.classes[ClassId{0}].device.memory = own_;  // for the plan's values to the byte
  EXPECT_TRUE(judge_memory(plan_, {}).fits);
  const MemoryVerdict verdict = judge_memory(plan_, with_memory({.bucket_bytes = 4}));
  EXPECT_FALSE(verdict.fits);
  EXPECT_EQ(verdict.worst.needed, verdict.needed);
  EXPECT_GT(verdict.share, 1);
}

TEST_F(TwoReplicas, SayTheSameInDetail) {
  const Profile profile = with_memory({.activation_bytes = 2, .bucket_bytes = 4, .fragmentation = 0.1});
  const DetailedMemoryNeed detailed = detailed_memory_needs(plan_, profile).front();
  Bytes sum;
  for (const MemoryTerm& term : detailed.use.terms) sum += term.bytes;
  EXPECT_EQ(sum, detailed.needed);
  EXPECT_EQ(memory_needs(plan_, profile).front().needed, detailed.needed);
}

}  // namespace
}  // namespace weft
