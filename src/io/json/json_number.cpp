#include "io/json/json_number.hpp"

#include <string>

namespace weft {
namespace {

constexpr std::int64_t kMaxMagnitude = std::int64_t{1} << 61;

// The parts of "-12.5e3": digits without leading zeros, and where the point is among them.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t point = 0;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<Decimal> decimal_of(std::string_view text) {
  Decimal result;
  std::size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) result.negative = text[i++] == '-';
  bool any = false, after_point = false;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !after_point)); ++i) {
    if (text[i] == '.') {
      after_point = true;
      continue;
    }
    any = true;
    if (text[i] == '0' && result.digits.empty()) {
      if (after_point) --result.point;
      continue;
    }
    result.digits += text[i];
    if (!after_point) ++result.point;
  }
  if (!any) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    const bool minus = i < text.size() && text[i] == '-';
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    std::int64_t exponent = 0;
    const std::size_t begin = i;
    for (; i < text.size() && is_digit(text[i]); ++i) {
      if (exponent < 100'000) exponent = exponent * 10 + (text[i] - '0');
    }
    if (i == begin) return std::nullopt;
    result.point += minus ? -exponent : exponent;
  }
  if (i != text.size()) return std::nullopt;
  return result;
}

}  // namespace

std::optional<std::int64_t> JsonNumber::scaled(int digits) const {
  // Nearly all numbers: up to 18 digits in all, no exponent, no more decimals than asked for.
  std::int64_t quick = 0;
  int seen = 0, decimals = -1;
  std::size_t i = !text.empty() && text.front() == '-' ? 1 : 0;
  for (; i < text.size() && seen < 18; ++i) {
    if (is_digit(text[i])) {
      quick = quick * 10 + (text[i] - '0');
      ++seen;
      if (decimals >= 0) ++decimals;
    } else if (text[i] == '.' && decimals < 0) {
      decimals = 0;
    } else {
      break;
    }
  }
  if (i == text.size() && seen > 0 && decimals <= digits) {
    int missing = digits - (decimals < 0 ? 0 : decimals);
    for (; missing > 0 && quick <= kMaxMagnitude / 10; --missing) quick *= 10;
    if (missing == 0 && quick <= kMaxMagnitude) return text.front() == '-' ? -quick : quick;
  }
  const std::optional<Decimal> decimal = decimal_of(text);
  if (!decimal) return std::nullopt;
  const std::int64_t point = decimal->point + digits;
  if (decimal->digits.empty() || point < 0) return 0;
  if (point > 19) return std::nullopt;
  std::uint64_t value = 0;
  for (std::int64_t k = 0; k < point; ++k) {
    const std::size_t place = k;
    value = value * 10 + static_cast<std::uint64_t>(place < decimal->digits.size() ? decimal->digits[place] - '0' : 0);
  }
  const std::size_t next = point;
  if (next < decimal->digits.size() && decimal->digits[next] >= '5') ++value;
  if (value > static_cast<std::uint64_t>(kMaxMagnitude)) return std::nullopt;
  const auto magnitude = static_cast<std::int64_t>(value);
  return decimal->negative ? -magnitude : magnitude;
}

}  // namespace weft
