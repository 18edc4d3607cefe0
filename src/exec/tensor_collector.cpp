#include "exec/tensor_collector.hpp"

#include <algorithm>

namespace weft {

void TensorCollector::add(const ParameterState& parameter, ElementRange range, const Vector& data) {
  const std::lock_guard lock(mutex_);
  for (const ParameterTensor& part : parameter.tensors) {
    NamedTensor& tensor = tensors_[part.name];
    if (tensor.data.empty()) {
      tensor.name = part.name;
      tensor.shape = part.shape;
      tensor.data.assign(static_cast<std::size_t>(part.elements()), 0.0F);
    }
    const std::int64_t begin = std::max(range.begin, part.offset);
    const std::int64_t end = std::min(range.end, part.offset + part.elements());
    if (begin >= end) continue;
    const float* const from = static_cast<const float*>(data.data) + (begin - range.begin);
    std::copy_n(from, end - begin, tensor.data.begin() + (begin - part.offset));
  }
}

std::vector<NamedTensor> TensorCollector::take() {
  std::vector<NamedTensor> all;
  for (auto& [name, tensor] : tensors_) all.push_back(std::move(tensor));
  tensors_.clear();
  return all;
}

}  // namespace weft
