#include "exec/tensor_collector.hpp"

#include <algorithm>

namespace weft {

void TensorCollector::add(const ParameterState& parameter, ElementRange range, std::span<const float> data) {
  const std::lock_guard lock(mutex_);
  for (const HeldTensor& held : parameter.tensors) {
    NamedTensor& tensor = tensors_[held.whole.name];
    if (tensor.data.empty()) {
      tensor.name = held.whole.name;
      tensor.shape = held.whole.shape;
      tensor.data.assign(held.whole.elements(), 0.0F);
    }
    const auto part = data.begin() + (held.offset - range.begin);
    for_each_run(held, {range.begin - held.offset, range.end - held.offset}, [&](const HeldRange& run) {
      std::copy_n(part + run.in_part, run.count, tensor.data.begin() + run.in_whole);
    });
  }
}

std::vector<NamedTensor> TensorCollector::take() {
  std::vector<NamedTensor> all;
  for (auto& [name, tensor] : tensors_) all.push_back(std::move(tensor));
  tensors_.clear();
  return all;
}

}  // namespace weft
