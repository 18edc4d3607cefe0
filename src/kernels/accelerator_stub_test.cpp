#include <gtest/gtest.h>

#include "kernels/accelerator.hpp"

namespace weft {
namespace {

TEST(AcceleratorStub, SaysHowToBuildForCuda) {
  try {
    make_cuda_accelerator();
    FAIL() << "there is no CUDA in this build";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("-DWEFT_CUDA=ON"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
