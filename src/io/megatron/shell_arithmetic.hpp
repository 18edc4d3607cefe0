// Whole numbers as $(( )) computes them: + - * / %, parentheses, variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// The text of a variable, or nothing where it is not set.
using ShellLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Nothing where the text is not such an expression, a variable is unset or no number, or a result leaves 63 bits.
std::optional<std::int64_t> shell_arithmetic(std::string_view text, const ShellLookup& lookup);

}  // namespace weft
