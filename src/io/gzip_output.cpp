#include "io/gzip_output.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <streambuf>
#include <string>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr int kGzipFormat = 15 + 16;  // the largest window, and gzip's header in place of zlib's
constexpr int kLevel = 6;             // zlib's own default
constexpr int kMemory = 8;            // likewise

class GzipBuffer : public std::streambuf {
 public:
  explicit GzipBuffer(std::ostream& out) : out_(out) {
    WEFT_CHECK(deflateInit2(&stream_, kLevel, Z_DEFLATED, kGzipFormat, kMemory, Z_DEFAULT_STRATEGY) == Z_OK);
    setp(text_.data(), text_.data() + text_.size());
  }
  GzipBuffer(const GzipBuffer&) = delete;
  GzipBuffer& operator=(const GzipBuffer&) = delete;
  ~GzipBuffer() override { deflateEnd(&stream_); }

  void finish() { compress(Z_FINISH); }

 protected:
  int_type overflow(int_type c) override {
    compress(Z_NO_FLUSH);
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

 private:
  void compress(int flush) {
    std::copy(pbase(), pptr(), plain_.begin());
    stream_.next_in = plain_.data();
    stream_.avail_in = static_cast<uInt>(pptr() - pbase());
    do {
      stream_.next_out = packed_.data();
      stream_.avail_out = static_cast<uInt>(packed_.size());
      deflate(&stream_, flush);
      const std::string ready(packed_.begin(), packed_.end() - stream_.avail_out);
      out_.write(ready.data(), std::ssize(ready));
    } while (stream_.avail_out == 0);
    setp(text_.data(), text_.data() + text_.size());
    if (!out_) fail("gzip: writing failed");
  }

  std::ostream& out_;
  z_stream stream_{};
  std::array<char, 1 << 16> text_{};
  std::array<Bytef, 1 << 16> plain_{}, packed_{};  // zlib's bytes are unsigned
};

}  // namespace

void write_gzip(std::ostream& out, const std::function<void(std::ostream&)>& write) {
  GzipBuffer buffer(out);
  std::ostream text(&buffer);
  text.exceptions(std::ios::badbit);  // what the buffer throws comes through
  write(text);
  buffer.finish();
}

}  // namespace weft
