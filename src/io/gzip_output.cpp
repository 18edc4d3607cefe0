#include "io/gzip_output.hpp"

#include <zlib.h>

#include <array>
#include <streambuf>

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
    stream_.next_in = reinterpret_cast<Bytef*>(pbase());
    stream_.avail_in = static_cast<uInt>(pptr() - pbase());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(packed_.data());
      stream_.avail_out = static_cast<uInt>(packed_.size());
      deflate(&stream_, flush);
      out_.write(packed_.data(), static_cast<std::streamsize>(packed_.size() - stream_.avail_out));
    } while (stream_.avail_out == 0);
    setp(text_.data(), text_.data() + text_.size());
    if (!out_) fail("gzip: writing failed");
  }

  std::ostream& out_;
  z_stream stream_{};
  std::array<char, 1 << 16> text_{}, packed_{};
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
