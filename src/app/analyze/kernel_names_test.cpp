#include "app/analyze/kernel_names.hpp"

#include <gtest/gtest.h>

#include <set>

namespace weft {
namespace {

TEST(KernelNames, LoseTypeAndArgumentsOfTheFunctionAlone) {
  EXPECT_EQ(plain_kernel_name("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::A<2>, "
                              "B<float, (C)1> >(int, D)"),
            "at::native::multi_tensor_apply_kernel<at::native::A<2>, B<float, (C)1>>");
  EXPECT_EQ(plain_kernel_name("Memcpy DtoD (Device -> Device)"), "Memcpy DtoD");
  EXPECT_EQ(plain_kernel_name("ampere_sgemm_128x64_nn"), "ampere_sgemm_128x64_nn");
  EXPECT_EQ(plain_kernel_name("(weird)"), "(weird)");
}

// What once was `cutlass::Kernel` twice.
TEST(KernelNames, KernelsOfOneTemplateStayApart) {
  const std::vector<std::string> names = {
      "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(Params)",
      "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nt_align4>(Params)",
      "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, "
      "3> "
      ">(int)",
      "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor_x<float>, at::detail::Array<char*, 3> "
      ">(int)"};
  for (const std::size_t width : {24, 40, 48, 80}) {
    const std::vector<std::string> shown = column_names(names, width);
    EXPECT_EQ(std::set<std::string>(shown.begin(), shown.end()).size(), names.size()) << width;
    for (const std::string& name : shown) EXPECT_LE(name.size(), width) << name;
  }
  const std::vector<std::string> shown = column_names(names, 48);
  EXPECT_EQ(shown[0], "Kernel<cutlass_80_tens...128x128_16x5_nn_align4>");
  EXPECT_NE(shown[2].find("CUDAFunctor_add"), std::string::npos) << shown[2];
  EXPECT_NE(shown[3].find("MulFunctor_x"), std::string::npos) << shown[3];
}

TEST(KernelNames, WhatFitsStaysWholeAndWhatIsOneNameStaysOne) {
  EXPECT_EQ(column_names({"void a::b<c::d>(int)"}, 24).front(), "a::b<c::d>");
  EXPECT_EQ(column_names({"gemm", "gemm"}, 24), (std::vector<std::string>{"gemm", "gemm"}));
  // Overloads differ in nothing that is shown.
  EXPECT_EQ(column_names({"f(int)", "f(float)"}, 24), (std::vector<std::string>{"f #1", "f #2"}));
}

}  // namespace
}  // namespace weft
