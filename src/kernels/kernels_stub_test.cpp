#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

TEST(KernelsStub, SaysThatThereIsNoLibtorch) {
  EXPECT_FALSE(kernels_available());
  EXPECT_NE(kernels_in_words().find("without libtorch"), std::string::npos);
  EXPECT_THROW(make_kernels(), Error);
}

}  // namespace
}  // namespace weft
