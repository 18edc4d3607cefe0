#include "study/run/lengths_run.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(LengthStudy, TheMedianIsOfMeasuredStepsAndNothingWithoutAny) {
  LengthStudy study;
  EXPECT_EQ(study.median_s(), 0);
  study.measured_s = {5, 1, 9};
  EXPECT_EQ(study.median_s(), 5);
}

}  // namespace
}  // namespace weft
