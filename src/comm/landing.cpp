#include "comm/landing.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "comm/reduce_kernels.hpp"

namespace weft {
namespace {

// Walks a row of segments.
class Walk {
 public:
  explicit Walk(std::span<const Segment> row) : row_(row) { skip_empty(); }
  bool at_end() const { return next_ == row_.size(); }
  std::int64_t left() const { return row_[next_].bytes - within_; }
  std::byte* here() const { return row_[next_].data + within_; }
  void advance(std::int64_t bytes) {
    within_ += bytes;
    if (within_ < row_[next_].bytes) return;
    ++next_;
    within_ = 0;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (next_ < row_.size() && row_[next_].bytes == 0) ++next_;
  }
  std::span<const Segment> row_;
  std::size_t next_ = 0;
  std::int64_t within_ = 0;
};

}  // namespace

void land(std::span<const Segment> arrived, const Landing& landing) {
  Walk from(arrived), to(landing.dst), operand(landing.operand);
  while (!from.at_end()) {
    WEFT_CHECK(!to.at_end());
    std::int64_t bytes = std::min(from.left(), to.left());
    if (landing.operand.empty()) {
      std::memcpy(to.here(), from.here(), static_cast<std::size_t>(bytes));
    } else {
      bytes = std::min(bytes, operand.left());
      reduce_into(landing.type, landing.op, to.here(), operand.here(), from.here(), bytes / size_of(landing.type).value,
                  landing.scale);
      operand.advance(bytes);
    }
    from.advance(bytes);
    to.advance(bytes);
  }
}

}  // namespace weft
