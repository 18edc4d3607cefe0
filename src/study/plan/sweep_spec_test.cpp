// What --sweep reads: keys, ranges, and the mistakes people make.
#include "study/plan/sweep_spec.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string error_of(const std::string& text) {
  try {
    parse_sweep(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SweepSpec, TheLastKeyChangesFastest) {
  const SweepSpec spec = parse_sweep("tp=1,2;micro-batch=3..5;");
  ASSERT_EQ(spec.keys, (std::vector<SweepKey>{{"tp", {"1", "2"}}, {"micro-batch", {"3", "4", "5"}}}));
  ASSERT_EQ(spec.combinations(), 6u);
  EXPECT_EQ(spec.choice(0), (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(spec.choice(1), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(spec.choice(3), (std::vector<std::size_t>{1, 0}));
  EXPECT_EQ(spec.choice(5), (std::vector<std::size_t>{1, 2}));
}

TEST(SweepSpec, RangesAndSingleValuesMix) {
  EXPECT_EQ(parse_sweep("micro-batch=1..3,8").keys[0].values, (std::vector<std::string>{"1", "2", "3", "8"}));
}

TEST(SweepSpec, ListsAreSeparatedByBars) {
  EXPECT_EQ(parse_sweep("mesh-order=tp,cp,dp,pp|tp,pp,dp,cp").keys[0].values,
            (std::vector<std::string>{"tp,cp,dp,pp", "tp,pp,dp,cp"}));
}

TEST(SweepSpec, MistakesAreNamed) {
  EXPECT_EQ(error_of("micro-bach=1"), "--sweep: key 'micro-bach' cannot be varied; did you mean 'micro-batch'?");
  EXPECT_EQ(error_of("tp"), "--sweep: 'tp' is not key=value,value,...");
  EXPECT_EQ(error_of(""), "--sweep: '' is not key=value,value,...");
  EXPECT_EQ(error_of("tp=1,"), "--sweep: key 'tp': a value is empty");
  EXPECT_EQ(error_of("policy="), "--sweep: key 'policy': a value is empty");
  EXPECT_EQ(error_of("tp=1,2;pp=1;tp=4"), "--sweep: key 'tp' is there twice");
  EXPECT_EQ(error_of("tp=1..4,2"), "--sweep: key 'tp': value '2' is there twice");
  EXPECT_EQ(error_of("tp=4..1"), "--sweep: key 'tp': value '4..1': a range goes upwards");
  EXPECT_EQ(error_of("tp=0"), "--sweep: key 'tp': value '0': is not in 1..1000000000");
  EXPECT_EQ(error_of("recompute=some"), "--sweep: key 'recompute': value 'some' is not one of none, selective, full");
  EXPECT_EQ(error_of("sequence-parallel=yes"),
            "--sweep: key 'sequence-parallel': value 'yes' is not one of true, false");
  EXPECT_TRUE(contains(error_of("policy=seriel"), "did you mean 'serial'?"));
  EXPECT_TRUE(contains(error_of("tp=x"), "--sweep: key 'tp': value"));
  EXPECT_TRUE(contains(error_of("nic=fast"), "--sweep: key 'nic': value"));
  EXPECT_TRUE(contains(error_of("clip-grad=-1"), "is not a number from 0"));
  EXPECT_TRUE(contains(error_of("tp=1..1000;pp=1..1000;dp=1..2"), "at most 1000000 are tried"));
}

TEST(SweepSpec, ClusterKeysReplaceWhatTheTextSays) {
  EXPECT_EQ(with_cluster_key("dgx-a100:8", "nic", "400Gb/s"), "dgx-a100:8,nic=400Gb/s");
  EXPECT_EQ(with_cluster_key("dgx-a100:8,nic=1Gb/s,gpus=4", "nic", "400Gb/s"), "dgx-a100:8,gpus=4,nic=400Gb/s");
}

}  // namespace
}  // namespace weft
