#include "io/megatron/shell_arithmetic.hpp"

#include <cctype>
#include <charconv>
#include <limits>

namespace weft {
namespace {

using Number = std::optional<std::int64_t>;

Number whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

Number apply(char operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  const bool divides = operation == '/' || operation == '%';
  if (divides && (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min()))) return std::nullopt;
  const bool overflow = operation == '+'   ? __builtin_add_overflow(a, b, &result)
                        : operation == '-' ? __builtin_sub_overflow(a, b, &result)
                        : operation == '*' ? __builtin_mul_overflow(a, b, &result)
                                           : false;
  if (overflow) return std::nullopt;
  if (divides) result = operation == '/' ? a / b : a % b;
  return result;
}

class Parser {
 public:
  Parser(std::string_view text, const ShellLookup& lookup) : text_(text), lookup_(lookup) {}

  Number whole() {
    const Number value = sum(0);
    return next() == '\0' && at_ == text_.size() ? value : std::nullopt;
  }

 private:
  static constexpr int kMaxDepth = 50;

  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Number sum(int depth) {
    Number value = product(depth);
    while (value && (next() == '+' || next() == '-')) {
      const char operation = text_[at_++];
      const Number other = product(depth);
      value = other ? apply(operation, *value, *other) : std::nullopt;
    }
    return value;
  }

  Number product(int depth) {
    Number value = atom(depth);
    while (value && (next() == '*' || next() == '/' || next() == '%')) {
      const char operation = text_[at_++];
      const Number other = atom(depth);
      value = other ? apply(operation, *value, *other) : std::nullopt;
    }
    return value;
  }

  Number atom(int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    if (next() == '(') {
      ++at_;
      const Number value = sum(depth + 1);
      if (next() != ')') return std::nullopt;
      ++at_;
      return value;
    }
    if (next() == '$') {
      ++at_;
      const bool braces = at_ < text_.size() && text_[at_] == '{';
      if (braces) ++at_;
      const Number value = name_or_number();
      if (!braces) return value;
      if (at_ >= text_.size() || text_[at_] != '}') return std::nullopt;
      ++at_;
      return value;
    }
    return name_or_number();
  }

  Number name_or_number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) return whole_number(word);
    const auto value = lookup_(word);
    return value ? whole_number(*value) : std::nullopt;
  }

  std::string_view text_;
  const ShellLookup& lookup_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(std::string_view text, const ShellLookup& lookup) {
  return Parser(text, lookup).whole();
}

}  // namespace weft
