#include "io/userbuffer_config.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace weft {
namespace {

// By the lines of a published table (NVIDIA's recipe for Llama 3.1 405B on H100 in fp8).
TEST(UserbufferConfig, ReadsMethodAndSmsOfEveryProduct) {
  const UserbufferTable table = read_userbuffer_config(
      "# Llama 3.1 405B, H100, tp 8, fp8\n"
      "qkv_dgrad:\n  method: bulk\n  num_sm: 2\n  cga_size: 2\n  set_sm_margin: 0\n\n"
      "qkv_wgrad:\n  method: bulk\n  num_sm: 24   # of 132\n"
      "fc1_dgrad:\n  num_sm: 2\nfc1_wgrad:\n  num_sm: 2\n"
      "proj_fprop:\n  method: ring_exchange\n  set_sm_margin: 1\n"
      "fc2_fprop:\n  num_sm: 8\n  method: pipeline\n  num_splits: 4\n"
      "proj_wgrad:\n  method: external\n",
      "ub.yaml");
  UserbufferTable expected;
  const auto bulk = [&](LinearPass pass, std::int32_t blocks) { expected.of(pass) = {UserbufferMethod::bulk, blocks}; };
  bulk(LinearPass::qkv_dgrad, 2), bulk(LinearPass::qkv_wgrad, 24);
  bulk(LinearPass::fc1_dgrad, 2), bulk(LinearPass::fc1_wgrad, 2);
  expected.of(LinearPass::fc2_fprop) = {UserbufferMethod::pipeline, 8};
  EXPECT_EQ(table, expected);  // all else: ring exchanges with one SM
  EXPECT_EQ(read_userbuffer_config("", "ub.yaml"), default_userbuffers());
}

TEST(UserbufferConfig, SaysWhereAFileIsWrong) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      read_userbuffer_config(text, "ub.yaml");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const auto& [text, words] : {std::pair{"qkv_fpop:\n", "ub.yaml:1: 'qkv_fpop': allowed: "},
                                    {"fc1_dgrad:\n  method: pipeline\n", "ub.yaml:2: 'fc1_dgrad: method: pipeline'"},
                                    {"fc1_dgrad:\n  num_sm: 33\n", "1 to 32"},
                                    {"fc1_dgrad:\n  num_sm: few\n", "ub.yaml:2: num_sm"},
                                    {"fc1_dgrad:\n  num_sms: 3\n", "num_sm"},
                                    {"fc1_dgrad:\nfc1_dgrad:\n", "every product once"},
                                    {"  num_sm: 3\n", "keys below a product"},
                                    {"fc1_dgrad: {num_sm: 3}\n", "lines of their own"},
                                    {"fc1_dgrad\n", "PRODUCT"}}) {
    EXPECT_NE(refusal(text).find(words), std::string::npos) << refusal(text);
  }
}

}  // namespace
}  // namespace weft
