// What the host gives a recording at every start, in places that its kernels read. All of it goes to the device at
// once before the start, so the recording itself holds no copies.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/memory.hpp"

namespace weft::cuda {

class RecordedData {
 public:
  RecordedData() { add_block(0); }

  // Recording: a new place. Renewal: the next place, in the order in which they were recorded, with as many bytes.
  // Returns the place on the device.
  const std::byte* take(std::span<const std::byte> data);
  std::size_t places() const { return places_.size(); }
  bool is_renewed() const { return is_renewed_; }
  void begin_renewal() {
    is_renewed_ = true;
    next_ = 0;
  }
  // When all has been renewed.
  void copy_to_device(cudaStream_t stream);

 private:
  struct Block {
    PinnedMemory host;
    DeviceMemory device;
    std::int64_t used = 0;
  };
  struct Place {
    std::size_t block = 0;
    std::int64_t offset = 0, bytes = 0;
  };
  void add_block(std::int64_t bytes);

  std::vector<Block> blocks_;
  std::vector<Place> places_;
  bool is_renewed_ = false;
  std::size_t next_ = 0;
};

}  // namespace weft::cuda
