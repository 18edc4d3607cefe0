// Whole tensors put together from the parts that ranks hold.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "exec/parameter_state.hpp"
#include "exec/safetensors.hpp"

namespace weft {

// Ranks that are threads add to one collector.
class TensorCollector {
 public:
  // `data` holds elements `range` of the rank's parameter.
  void add(const ParameterState& parameter, ElementRange range, std::span<const float> data);
  std::vector<NamedTensor> take();  // by name

 private:
  std::mutex mutex_;
  std::map<std::string, NamedTensor> tensors_;
};

}  // namespace weft
