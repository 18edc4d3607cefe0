#include "comm/tcp/landing_cursor.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "comm/reduce_kernels.hpp"

namespace weft::tcp {

namespace {

constexpr auto kScratchBytes = static_cast<std::int64_t>(sizeof(Scratch));

}  // namespace

LandingCursor::LandingCursor(const Landing& landing)
    : memory_(landing.dst),
      operand_(landing.operand),
      reduces_(!landing.operand.empty()),
      type_(landing.type),
      op_(landing.op),
      scale_(landing.scale),
      element_(size_of(landing.type).value) {
  if (!reduces_) return;
  const std::int64_t total = total_bytes(landing.dst);
  WEFT_CHECK(total == total_bytes(landing.operand) && total % element_ == 0);
}

void LandingCursor::land(const std::byte* bytes, std::int64_t count, Scratch& scratch) {
  if (!reduces_) {
    memory_.copy_in(bytes, count);
    return;
  }
  while (count > 0) {
    const std::int64_t here = std::min(count, kScratchBytes - begun_bytes_);
    std::memcpy(scratch.bytes.data() + begun_bytes_, bytes, static_cast<std::size_t>(here));
    reduce(here, scratch);
    bytes += here;
    count -= here;
  }
}

std::size_t LandingCursor::describe(std::span<iovec> entries, std::int64_t limit, Scratch& scratch) const {
  if (!reduces_) return memory_.describe(entries, limit);
  const std::int64_t room = std::min(limit, kScratchBytes - begun_bytes_);
  entries[0] = {scratch.bytes.data() + begun_bytes_, static_cast<std::size_t>(room)};
  return 1;
}

void LandingCursor::landed(std::int64_t count, Scratch& scratch) {
  if (reduces_) {
    reduce(count, scratch);
  } else {
    memory_.advance(count);
  }
}

// `count` bytes have arrived in the scratch, behind those of an incomplete element.
void LandingCursor::reduce(std::int64_t count, Scratch& scratch) {
  std::byte* from = scratch.bytes.data();
  std::memcpy(from, begun_.data(), static_cast<std::size_t>(begun_bytes_));
  std::int64_t left = begun_bytes_ + count;
  while (left >= element_) {
    const std::int64_t stretch = std::min({left, memory_.contiguous(), operand_.contiguous()});
    const std::int64_t elements = stretch / element_;
    WEFT_CHECK(elements > 0);  // segments are cut between elements
    reduce_into(type_, op_, memory_.data(), operand_.data(), from, elements, scale_);
    memory_.advance(elements * element_);
    operand_.advance(elements * element_);
    from += elements * element_;
    left -= elements * element_;
  }
  begun_bytes_ = left;
  std::memcpy(begun_.data(), from, static_cast<std::size_t>(left));
}

}  // namespace weft::tcp
