#include "base/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace weft {
namespace {

struct Number {
  double value;
  std::string_view unit;
};

Number split_number(std::string_view text, std::string_view what, std::string_view allowed) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || !std::isfinite(value) || value < 0) fail("{}: '{}' is not {}", what, text, allowed);
  return {value, text.substr(end - text.data())};
}

// Removes a leading prefix (K, Mi, ...) from `unit` and returns its factor.
double take_prefix(std::string_view& unit) {
  constexpr std::string_view kLetters = "KMGT";
  if (unit.size() < 2) return 1;
  const char first = unit[0] == 'k' ? 'K' : unit[0];
  const auto power = kLetters.find(first);
  if (power == std::string_view::npos) return 1;
  const bool binary = unit[1] == 'i';
  unit.remove_prefix(binary ? 2 : 1);
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      // A wrong letter costs as much as a deletion and an insertion, so "39b" is nearer to "39.1b" than to "22b".
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 2);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string format_time(Nanos t) {
  const auto ns = static_cast<double>(t.value);
  if (std::abs(ns) >= 1e9) return fmt::format("{:.3f} s", ns * 1e-9);
  if (std::abs(ns) >= 1e6) return fmt::format("{:.2f} ms", ns * 1e-6);
  if (std::abs(ns) >= 1e3) return fmt::format("{:.2f} us", ns * 1e-3);
  return fmt::format("{} ns", t.value);
}

std::string format_bytes(Bytes b) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(b.value);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", b.value) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string format_count(std::int64_t n) {
  std::string digits = fmt::format("{}", n);
  const std::size_t first = n < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

Bandwidth parse_bandwidth(std::string_view text, std::string_view what) {
  constexpr std::string_view kAllowed = "a bandwidth such as 200Gb/s (bits) or 25GB/s (bytes)";
  auto [value, unit] = split_number(text, what, kAllowed);
  value *= take_prefix(unit);
  if (unit == "b/s" || unit == "bps" || unit == "bit" || unit == "bit/s") {
    value /= 8;
  } else if (unit != "B/s") {
    fail("{}: '{}' is not {}", what, text, kAllowed);
  }
  if (value <= 0) fail("{}: '{}' must be above zero", what, text);
  return {value};
}

Nanos parse_time(std::string_view text, std::string_view what) {
  constexpr std::string_view kAllowed = "a time such as 300ns, 2us, 1.5ms or 1s";
  const auto [value, unit] = split_number(text, what, kAllowed);
  const double factor = unit == "ns" ? 1e-9 : unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : unit == "s" ? 1 : 0;
  if (factor == 0 || value * factor > 1e6) fail("{}: '{}' is not {}", what, text, kAllowed);
  return nanos_from_seconds(value * factor);
}

Bytes parse_bytes(std::string_view text, std::string_view what) {
  constexpr std::string_view kAllowed = "a size such as 80GB, 40GiB or 1024";
  auto [value, unit] = split_number(text, what, kAllowed);
  value *= take_prefix(unit);
  if ((!unit.empty() && unit != "B") || value > 9e18) fail("{}: '{}' is not {}", what, text, kAllowed);
  return {static_cast<std::int64_t>(std::llround(value))};
}

std::int64_t parse_integer(std::string_view text, std::string_view what) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) fail("{}: '{}' is not an integer", what, text);
  return value;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(3, name.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view name, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) return fmt::format("; did you mean '{}'?", nearest);
  return fmt::format("; allowed: {}", fmt::join(candidates, ", "));
}

}  // namespace weft
