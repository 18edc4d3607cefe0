// What tests of `weft analyze` share.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "app/test_cli.hpp"

namespace weft {

// A trace of tests/data.
inline std::string data(const std::string& name) {
  return fmt::format("{}/tests/data/traces/{}", WEFT_SOURCE_DIR, name);
}

inline nlohmann::json analyzed(const std::string& arguments) {
  const CliResult result = weft_cli("analyze --json " + arguments);
  EXPECT_EQ(result.code, kOk) << result.err;
  return nlohmann::json::parse(result.out);
}

}  // namespace weft
