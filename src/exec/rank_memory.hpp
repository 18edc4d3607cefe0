// The memory that a rank's plan lies in: this processor's, or a device's. Outside kernels and collectives, this is the
// one way to its elements.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/accelerator.hpp"
#include "kernels/matrix.hpp"

namespace weft {

class RankMemory {
 public:
  // Zeros. Whole pages, touched by the thread that makes it, where there is no device.
  RankMemory(Bytes size, Accelerator* device);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  std::byte* data() const { return data_; }
  Bytes size() const { return {static_cast<std::int64_t>(size_)}; }
  bool is_of_device() const { return device_ != nullptr; }
  // Elements as floats, whatever their type. A device ends all of its work first.
  void read(const Vector& from, std::span<float> to) const;
  std::vector<float> read(const Vector& from) const;
  void write(std::span<const float> from, const Vector& to) const;
  void write_bytes(std::span<const std::byte> from, std::byte* to) const;

 private:
  Accelerator* device_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weft
