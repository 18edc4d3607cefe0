// Bad input throws Error and is reported once, in app. A broken invariant aborts through WEFT_CHECK.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// The message names the thing, the value and what was allowed: "plan.json: op 12: rank 9 is not in 0..7".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// Thrown when a run has begun and cannot finish: a rank was lost, or a peer did not answer. The exit code is 3; it is 2
// for bad input.
class RunFailed : public std::runtime_error {
 public:
  explicit RunFailed(const std::string& message) : std::runtime_error(message) {}
};

// Thrown when Weft's own verifier refuses a plan that Weft made, which no input can be blamed for. The exit code is 1.
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

// Checks an invariant of our own code, in release builds too. It is never used on user input.
#define WEFT_CHECK(expression) \
  ((expression) ? static_cast<void>(0) : ::weft::check_failed(#expression, __FILE__, __LINE__))
