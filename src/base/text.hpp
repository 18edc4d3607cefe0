// Formats and parses quantities as people write them, and suggests names that people mistyped.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace weft {

// "1.234 s", "12.3 ms", "45.6 us", "789 ns".
std::string format_time(Nanos t);
// Binary units: "79.25 GiB".
std::string format_bytes(Bytes b);
// 68976648192 -> "68,976,648,192".
std::string format_count(std::int64_t n);

// "200Gb/s" (bits), "25GB/s" (bytes), "1.5GiB/s"; decimal prefixes K M G T, binary Ki Mi Gi Ti.
// Throws Error naming `what`.
Bandwidth parse_bandwidth(std::string_view text, std::string_view what);
// "2us", "1.5ms", "300ns", "1s".
Nanos parse_time(std::string_view text, std::string_view what);
// "80GB", "40GiB", "1024" (bytes).
Bytes parse_bytes(std::string_view text, std::string_view what);
// A whole decimal integer.
std::int64_t parse_integer(std::string_view text, std::string_view what);

std::vector<std::string> split(std::string_view text, char separator);

// Returns the candidate with the smallest edit distance, or "" where none is near enough to be a typing error.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
// Returns "; did you mean 'llama2-70b'?", or the whole list where no name is near.
std::string suggestion(std::string_view name, std::span<const std::string> candidates);

}  // namespace weft
