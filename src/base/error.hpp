// Bad input throws Error and is reported once, in app. A broken invariant aborts through WEFT_CHECK.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// Says the thing, the value and what was allowed: "plan.json: op 12: rank 9 is not in 0..7".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// A run that began and could not end: a rank was lost, a peer did not answer. Exit code 3; bad input is 2.
class RunFailed : public std::runtime_error {
 public:
  explicit RunFailed(const std::string& message) : std::runtime_error(message) {}
};

// Weft made a plan that its own verifier refuses: nobody's input is at fault. Exit code 1.
class UnsafePlan : public std::runtime_error {
 public:
  explicit UnsafePlan(const std::string& message) : std::runtime_error(message) {}
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace weft

// For invariants of our own code, in release builds too. Never on user input.
#define WEFT_CHECK(expression) \
  ((expression) ? static_cast<void>(0) : ::weft::check_failed(#expression, __FILE__, __LINE__))
