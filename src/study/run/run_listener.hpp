// Who is told what happens while a run goes on. This one does not listen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "exec/step_glance.hpp"

namespace weft {

// All calls but `remark` come from the thread of rank 0.
class RunListener {
 public:
  virtual ~RunListener() = default;
  // What people should know at once. From any rank's thread.
  virtual void remark(const std::string& /*words*/) {}
  // The machine will be measured for about so long; `progress` follows.
  virtual void measuring(Nanos /*about*/) {}
  virtual void progress(std::string_view /*task*/, std::size_t /*done*/, std::size_t /*total*/) {}
  // The training of a policy begins.
  virtual void begin(const std::string& /*policy*/, std::int64_t /*steps*/) {}
  // Steps come in order, from 0.
  virtual void step(std::int64_t /*step*/, double /*loss*/, const StepGlance& /*glance*/) {}
  virtual void validated(std::int64_t /*steps*/, double /*loss*/) {}
};

}  // namespace weft
