// What tests ask of the tensors that a rank holds of a parameter.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "graph/held_tensor.hpp"

namespace weft::test {

// The elements of all of them, which must follow each other without gaps.
inline std::int64_t elements_of(const std::vector<HeldTensor>& tensors) {
  std::int64_t sum = 0;
  for (const HeldTensor& tensor : tensors) {
    EXPECT_EQ(tensor.offset, sum) << tensor.whole.name;
    sum += tensor.elements();
  }
  return sum;
}

}  // namespace weft::test
