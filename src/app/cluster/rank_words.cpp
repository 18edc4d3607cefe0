#include "app/cluster/rank_words.hpp"

#include <fmt/format.h>

namespace weft {

std::string rate_in_words(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second * 1e-9);
  return fmt::format("{:.2f} MB/s", bytes_per_second * 1e-6);
}

std::string ranks_in_words(const std::vector<std::int64_t>& ranks) {
  std::string words;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    words += words.empty() ? "" : ", ";
    words += end == i + 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  return words;
}

}  // namespace weft
