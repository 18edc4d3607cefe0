#include "compress_speed_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "kernels/accelerator.hpp"
#include "kernels/encode_on_host.hpp"

namespace weft {
namespace {

constexpr int kRounds = 15, kCallsOfRound = 10;

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class DeviceSpeeds {
 public:
  DeviceSpeeds(Accelerator& device, std::int64_t elements)
      : device_(device),
        stream_(device.make_stream(StreamPriority::usual)),
        begun_(device.make_event()),
        ended_(device.make_event()),
        numbers_(static_cast<std::size_t>(elements)) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& number : numbers_) number = normal(random);
    for (Vector* const vector : {&values_, &errors_, &result_}) {
      *vector = {{device.allocate({4 * elements}), ElementType::fp32}, elements};
    }
    device.copy_in(std::as_bytes(std::span(numbers_)), values_.data.address);
    device.use(stream_);
  }

  bool measure(CompressionFormat format, double goal) {
    const std::int64_t elements = values_.size, bytes = encoded_bytes(format, elements).value;
    const EncodedShards encoded{format, elements, 1, {{device_.allocate({bytes}), ElementType::u8}, bytes}};
    check(encoded);
    Kernels& kernels = device_.kernels();
    const std::vector<std::function<void()>> works = {
        [&] { kernels.copy(row(values_), row(result_)); }, [&] { kernels.encode(values_, {}, {1}, encoded, nullptr); },
        [&] { kernels.encode(values_, errors_, {1}, encoded, nullptr); },
        [&] { kernels.decode_sum(encoded, 1, result_); }, [&] { kernels.decode_sum(encoded, 1, result_, Into::add); }};
    std::vector<std::vector<double>> seconds(works.size());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < works.size(); ++i) seconds[i].push_back(seconds_of(works[i]));
    }
    const double copy = median_of(seconds[0]), floats = 4.0 * static_cast<double>(elements);
    std::vector<double> shares;
    for (std::size_t i = 1; i < works.size(); ++i) {
      std::vector<double> ratios;
      for (int round = 0; round < kRounds; ++round) ratios.push_back(seconds[0][round] / seconds[i][round]);
      shares.push_back(median_of(ratios));
    }
    // A copy moves each float twice; encoding reads it and writes its code.
    const double encoding_rate = (floats + static_cast<double>(bytes)) / median_of(seconds[1]);
    fmt::print("{:16} {:10.0f} {:8.2f} {:14.2f} {:8.2f} {:8.2f} {:16.2f}\n", name_of(format), floats / copy / 1e9,
               shares[0], shares[1], shares[2], shares[3], encoding_rate / (2 * floats / copy));
    device_.kernels().synchronize();
    device_.release(encoded.bytes.data.address);
    return shares[0] >= goal && shares[2] >= goal;
  }

 private:
  static Matrix row(const Vector& x) { return Matrix::dense(x.data, 1, x.size); }

  // The bytes are those of the processor, and so is what is decoded.
  void check(const EncodedShards& encoded) {
    const auto bytes = static_cast<std::size_t>(encoded.bytes.size);
    std::vector<std::byte> expected(bytes), found(bytes);
    const Vector on_host{ElementPointer(numbers_.data()), values_.size};
    encode_on_host(on_host, {}, {1},
                   {encoded.format, encoded.elements, 1, {{expected.data(), ElementType::u8}, encoded.bytes.size}},
                   nullptr);
    device_.kernels().encode(values_, {}, {1}, encoded, nullptr);
    device_.copy_out(encoded.bytes.data.address, found);
    if (found != expected) fail("{}: the GPU encodes other bytes than the processor", name_of(encoded.format));
  }

  double seconds_of(const std::function<void()>& work) {
    device_.record(begun_, stream_);
    for (int call = 0; call < kCallsOfRound; ++call) work();
    device_.record(ended_, stream_);
    device_.kernels().synchronize();
    return 1e-9 * static_cast<double>(device_.time_of(ended_) - device_.time_of(begun_)) / kCallsOfRound;
  }

  Accelerator& device_;
  StreamId stream_;
  EventId begun_, ended_;
  std::vector<float> numbers_;
  Vector values_, errors_, result_;
};

}  // namespace

bool measure_device(CompressionFormat only, std::size_t mebibytes, double goal) {
  const std::unique_ptr<Accelerator> device = make_cuda_accelerator();
  fmt::print("{}\n", device->in_words());
  fmt::print("{:16} {:>10} {:>8} {:>14} {:>8} {:>8} {:>16}\n", "format", "copy GB/s", "encode", "with feedback",
             "decode", "reduce", "encode, traffic");
  DeviceSpeeds speeds(*device, static_cast<std::int64_t>(mebibytes) * 1024 * 1024 / 4);
  bool reached = true;
  for (int i = 1; i < kCompressionFormats; ++i) {
    const auto format = static_cast<CompressionFormat>(i);
    if (only != CompressionFormat::none && format != only) continue;
    const bool good = speeds.measure(format, goal);
    if (format == CompressionFormat::int8) reached = good;
  }
  return reached;
}

}  // namespace weft
