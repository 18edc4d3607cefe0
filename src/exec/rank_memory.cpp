#include "exec/rank_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/half_float.hpp"

namespace weft {
namespace {

std::byte* map_zeros(std::size_t size) {
  void* const pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw RunFailed(fmt::format("no memory for a rank's {} bytes", size));
  madvise(pages, size, MADV_HUGEPAGE);
  std::memset(pages, 0, size);
  return static_cast<std::byte*>(pages);
}

void require_float_or_bf16(ElementType type) {
  WEFT_CHECK(type == ElementType::fp32 || type == ElementType::bf16);
}

}  // namespace

RankMemory::RankMemory(Bytes size, Accelerator* device)
    : device_(device), size_(static_cast<std::size_t>(std::max<std::int64_t>(size.value, 1))) {
  data_ = device_ != nullptr ? device_->allocate(Bytes{static_cast<std::int64_t>(size_)}) : map_zeros(size_);
}

RankMemory::~RankMemory() {
  if (device_ != nullptr)
    device_->release(data_);
  else
    munmap(data_, size_);
}

void RankMemory::read(const Vector& from, std::span<float> to) const {
  WEFT_CHECK(std::ssize(to) == from.size);
  require_float_or_bf16(from.data.type);
  if (from.data.type == ElementType::fp32) {
    const std::span<std::byte> bytes = std::as_writable_bytes(to);
    if (device_ != nullptr) return device_->copy_out(from.data.address, bytes);
    std::memcpy(bytes.data(), from.data.address, bytes.size());
    return;
  }
  std::vector<std::uint16_t> halves(to.size());
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(halves));
  if (device_ != nullptr)
    device_->copy_out(from.data.address, bytes);
  else
    std::memcpy(bytes.data(), from.data.address, bytes.size());
  std::ranges::transform(halves, to.begin(), float_from_bf16);
}

std::vector<float> RankMemory::read(const Vector& from) const {
  std::vector<float> all(static_cast<std::size_t>(from.size));
  read(from, all);
  return all;
}

void RankMemory::write(std::span<const float> from, const Vector& to) const {
  WEFT_CHECK(std::ssize(from) == to.size);
  require_float_or_bf16(to.data.type);
  std::vector<std::uint16_t> halves;
  std::span<const std::byte> bytes = std::as_bytes(from);
  if (to.data.type == ElementType::bf16) {
    halves.resize(from.size());
    std::ranges::transform(from, halves.begin(), bf16_from_float);
    bytes = std::as_bytes(std::span(halves));
  }
  write_bytes(bytes, to.data.address);
}

void RankMemory::write_bytes(std::span<const std::byte> from, std::byte* to) const {
  if (device_ != nullptr) return device_->copy_in(from, to);
  std::ranges::copy(from, to);
}

}  // namespace weft
