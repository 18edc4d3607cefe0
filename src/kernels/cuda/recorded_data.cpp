#include "kernels/cuda/recorded_data.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace weft::cuda {
namespace {

constexpr std::int64_t kSmallestBlock = 1 << 20, kAlignment = 256;

}  // namespace

void RecordedData::add_block(std::int64_t bytes) {
  const std::int64_t size = std::max(bytes, kSmallestBlock);
  blocks_.push_back({PinnedMemory(size), DeviceMemory(size), 0});
}

const std::byte* RecordedData::take(std::span<const std::byte> data) {
  if (data.empty()) return nullptr;
  if (!is_renewed_) {
    const std::int64_t bytes = (std::ssize(data) + kAlignment - 1) / kAlignment * kAlignment;
    if (blocks_.back().used + bytes > blocks_.back().device.size()) add_block(bytes);
    places_.push_back({blocks_.size() - 1, blocks_.back().used, std::ssize(data)});
    blocks_.back().used += bytes;
  }
  const Place& place = is_renewed_ ? places_.at(next_++) : places_.back();
  WEFT_CHECK(place.bytes == std::ssize(data));
  const Block& block = blocks_[place.block];
  std::memcpy(block.host.data() + place.offset, data.data(), data.size());
  return block.device.data() + place.offset;
}

void RecordedData::copy_to_device(cudaStream_t stream) {
  WEFT_CHECK(next_ == places_.size());
  for (const Block& block : blocks_) {
    if (block.used == 0) continue;
    check(cudaMemcpyAsync(block.device.data(), block.host.data(), static_cast<std::size_t>(block.used),
                          cudaMemcpyHostToDevice, stream),
          "giving host data to a recording");
  }
}

}  // namespace weft::cuda
