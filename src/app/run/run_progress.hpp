// What a run says on stderr while it trains: one line drawn in place on a terminal, a line now and then in a log.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

#include "exec/step_glance.hpp"

namespace weft {

std::string loss_in_words(double loss);  // "4.5123", or "2.7e+08" where it has diverged

class RunProgress {
 public:
  // `out` may be null: nothing is said.
  RunProgress(std::ostream* out, bool terminal) : out_(out), terminal_(terminal) {}
  void begin(std::string policy, std::int64_t steps);
  // Steps in order, from 0.
  void validated(std::int64_t steps, double loss);
  void step(std::int64_t step, double loss, const StepGlance& glance);
  // Before something else that takes a while. Not on a terminal, where a bar shows it.
  void say(const std::string& words);
  std::ostream* bar() const { return terminal_ ? out_ : nullptr; }

 private:
  bool is_due(std::int64_t step);

  std::ostream* out_;
  bool terminal_;
  std::string policy_;
  std::int64_t steps_ = 0;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace weft
