// What a run says on stderr while it trains: one line drawn in place on a terminal, a line now and then in a log.
#pragma once

#include <chrono>
#include <ostream>
#include <string>

#include "study/progress.hpp"
#include "study/run/run_listener.hpp"

namespace weft {

std::string loss_in_words(double loss);  // "4.5123", or "2.7e+08" where it has diverged

class RunProgress final : public RunListener {
 public:
  // `reports`: whether this process has rank 0; the others make remarks only.
  RunProgress(std::ostream& err, bool reports, bool terminal);
  void remark(const std::string& words) override;
  // Not on a terminal, where a bar shows it.
  void measuring(Nanos about) override;
  void progress(std::string_view task, std::size_t done, std::size_t total) override;
  void begin(const std::string& policy, std::int64_t steps) override;
  void step(std::int64_t step, double loss, const StepGlance& glance) override;
  void validated(std::int64_t steps, double loss) override;

 private:
  bool is_due(std::int64_t step);

  std::ostream& err_;
  bool reports_, terminal_;
  OnProgress bars_;
  std::string policy_;
  std::int64_t steps_ = 0;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace weft
