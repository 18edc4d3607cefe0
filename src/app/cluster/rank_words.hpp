// How reports about links name ranks and rates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// "171.43 GB/s", "25.00 MB/s".
std::string rate_in_words(double bytes_per_second);
// "0-3, 6": consecutive ranks as ranges.
std::string ranks_in_words(const std::vector<std::int64_t>& ranks);

}  // namespace weft
