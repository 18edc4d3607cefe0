#define ZLIB_CONST  // next_in points to const
#include "io/json/byte_source.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/input_file.hpp"

namespace weft {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;
constexpr int kGzipOnly = 15 + 16;  // window bits as zlib wants them

// A pipe may never end; no trace is as large as this.
constexpr std::int64_t kMaxPipedBytes = std::int64_t{1} << 33;

}  // namespace

class ByteSource::State {
 public:
  State(const std::string& file_name, Progress progress)
      : name(file_name),
        file_(std::make_unique<InputFile>(file_name, Pipes::accepted)),
        size_(file_->size()),
        progress_(std::move(progress)) {
    start();
  }
  State(std::string_view bytes, std::string given_name) : name(std::move(given_name)), memory_(bytes) { start(); }
  ~State() {
    if (gzip) inflateEnd(&zlib_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::size_t read(char* into, std::size_t capacity) {
    return gzip ? inflate_into(into, capacity) : copy(into, capacity);
  }

  std::string name;
  bool gzip = false;

 private:
  void start() {
    input_.resize(kPieceBytes);
    fill_input();
    gzip = input_end_ >= 2 && input_[0] == 0x1f && input_[1] == 0x8b;
    if (!gzip) return;
    output_.resize(kPieceBytes);
    if (inflateInit2(&zlib_, kGzipOnly) != Z_OK) fail("{}: zlib cannot be started", name);
  }

  // The next piece of the file itself; false at its end.
  bool fill_input() {
    input_begin_ = 0;
    if (file_) {
      input_end_ = 0;
      // A pipe may give less than the two bytes that identify gzip.
      while (const std::size_t got = file_->read(std::as_writable_bytes(std::span(input_).subspan(input_end_)))) {
        input_end_ += got;
      }
    } else {
      input_end_ = std::min(input_.size(), memory_.size());
      std::copy_n(memory_.begin(), input_end_, input_.begin());
      memory_.remove_prefix(input_end_);
    }
    taken_ += static_cast<std::int64_t>(input_end_);
    if (file_ && file_->is_piped() && taken_ > kMaxPipedBytes) {
      fail("{}: has more than {} bytes, which is the most that is read from a pipe", name, kMaxPipedBytes);
    }
    if (progress_ && input_end_ > 0) progress_(taken_, std::max(size_, taken_));
    return input_end_ > 0;
  }

  std::size_t copy(char* into, std::size_t capacity) {
    if (input_begin_ == input_end_ && !fill_input()) return 0;
    const std::size_t count = std::min(capacity, input_end_ - input_begin_);
    std::memcpy(into, input_.data() + input_begin_, count);
    input_begin_ += count;
    return count;
  }

  std::size_t inflate_into(char* into, std::size_t capacity) {
    while (output_begin_ == output_end_) {
      if (!inflate_piece()) return 0;
    }
    const std::size_t count = std::min(capacity, output_end_ - output_begin_);
    std::memcpy(into, output_.data() + output_begin_, count);
    output_begin_ += count;
    return count;
  }

  // False at the end of the last member. (A gzip file may have several; what follows the last one is ignored, as gzip
  // itself does.)
  bool inflate_piece() {
    if (input_begin_ == input_end_ && !fill_input()) {
      if (inside_member_) {
        fail("{}: the compressed data ends too early, after {} bytes: the file is truncated", name, taken_);
      }
      return false;
    }
    if (!inside_member_) {
      if (members_ > 0 && input_[input_begin_] != 0x1f) return false;
      if (members_ > 0) inflateReset(&zlib_);
      inside_member_ = true;
    }
    zlib_.next_in = input_.data() + input_begin_;
    zlib_.avail_in = static_cast<uInt>(input_end_ - input_begin_);
    zlib_.next_out = output_.data();
    zlib_.avail_out = static_cast<uInt>(output_.size());
    const int status = ::inflate(&zlib_, Z_NO_FLUSH);
    input_begin_ = input_end_ - zlib_.avail_in;
    output_begin_ = 0;
    output_end_ = output_.size() - zlib_.avail_out;
    if (status == Z_STREAM_END) {
      inside_member_ = false;
      ++members_;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail("{}: the compressed data is damaged before byte {} of the file ({})", name,
           taken_ - static_cast<std::int64_t>(input_end_ - input_begin_),
           zlib_.msg != nullptr ? zlib_.msg : "no reason given");
    }
    return true;
  }

  std::unique_ptr<InputFile> file_;
  std::string_view memory_;  // where there is no file: what is left of the bytes
  std::int64_t size_ = 0, taken_ = 0;
  Progress progress_;
  std::vector<unsigned char> input_, output_;
  std::size_t input_begin_ = 0, input_end_ = 0, output_begin_ = 0, output_end_ = 0;
  z_stream zlib_{};
  bool inside_member_ = false;
  std::int64_t members_ = 0;
};

ByteSource::ByteSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;

ByteSource ByteSource::of_file(const std::string& file_name, Progress progress) {
  return ByteSource(std::make_unique<State>(file_name, std::move(progress)));
}

ByteSource ByteSource::of_bytes(std::string_view bytes, std::string name) {
  return ByteSource(std::make_unique<State>(bytes, std::move(name)));
}

std::size_t ByteSource::read(char* into, std::size_t capacity) {
  return state_->read(into, capacity);
}

const std::string& ByteSource::name() const {
  return state_->name;
}

bool ByteSource::compressed() const {
  return state_->gzip;
}

}  // namespace weft
