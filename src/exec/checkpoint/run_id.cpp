#include "exec/checkpoint/run_id.hpp"

#include <fmt/format.h>

#include <random>

namespace weft {
namespace {

constexpr std::size_t kDigits = 32;

}  // namespace

std::string draw_run_id() {
  std::random_device random;
  std::string id;
  while (id.size() < kDigits) id += fmt::format("{:08x}", random());
  return id;
}

bool is_run_id(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace weft
