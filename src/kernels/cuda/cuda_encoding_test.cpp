// Every format on a GPU against the kernels of the processor, which have oracles of their own (compress_test,
// compression_oracle): bytes, errors and sums are the same to the last bit.
#include <array>
#include <limits>

#include "base/half_float.hpp"
#include "compress/compressor.hpp"
#include "kernels/cuda/test_cuda.hpp"
#include "kernels/encode_on_host.hpp"

namespace weft {
namespace {

using Bytes8 = std::vector<std::byte>;

// What lies between the numbers that are encoded.
enum class Special : std::uint8_t { none, zeros_and_nan, equal_magnitudes };

struct EncodingCase {
  std::int64_t size, shards;
  Special special = Special::none;
};
// One element, odd sizes whose shards begin anywhere, whole blocks of both kinds, and several of each.
constexpr EncodingCase kCases[] = {{1, 1},     {5, 2},
                                   {256, 1},   {1000, 3},
                                   {8969, 2},  {8969, 2, Special::zeros_and_nan},
                                   {4096, 1},  {5001, 4, Special::equal_magnitudes},
                                   {65536, 4}, {1 << 18, 8}};

std::vector<float> numbers_of(const EncodingCase& c, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(c.size));
  for (float& value : values) value = normal(generator);
  if (c.special == Special::equal_magnitudes) {
    for (float& value : values) value = std::round(2 * value);
  }
  if (c.special == Special::zeros_and_nan) {
    for (std::size_t i = 300; i < 900; ++i) values[i] = 0;
    for (std::size_t i = 5000; i < 5600; ++i) values[i] *= 0x1p-130F;
    values[4500] = std::numeric_limits<float>::quiet_NaN();
    values[7000] = std::numeric_limits<float>::infinity();
  }
  return values;
}

template <class Element>
Bytes8 bytes_of(const std::vector<Element>& elements) {
  Bytes8 bytes(elements.size() * sizeof(Element));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

Bytes8 in_type(const std::vector<float>& values, ElementType type) {
  if (type == ElementType::fp32) return bytes_of(values);
  std::vector<std::uint16_t> halves;
  for (const float value : values) halves.push_back(bf16_from_float(value));
  return bytes_of(halves);
}

// A NaN has many forms, and GPUs make another one than processors do.
void expect_same_numbers(const Bytes8& found, const Bytes8& expected, ElementType type) {
  ASSERT_EQ(found.size(), expected.size());
  const auto number_at = [&](const Bytes8& bytes, std::size_t i) {
    std::uint32_t bits = 0;
    if (type == ElementType::fp32)
      std::memcpy(&bits, bytes.data() + 4 * i, 4);
    else
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, bytes.data() + 2 * i, 2);
    return std::bit_cast<float>(bits);
  };
  const std::size_t count = expected.size() / (type == ElementType::fp32 ? 4 : 2);
  int different = 0;
  for (std::size_t i = 0; i < count && different < 5; ++i) {
    const float a = number_at(found, i), b = number_at(expected, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) continue;
    ++different;
    ADD_FAILURE() << "element " << i << ": " << a << " instead of " << b;
  }
}

class CudaEncoding : public CudaTest {
 protected:
  // Memory of the device that begins `offset` elements behind an aligned address, with these contents.
  Vector on_device(const Bytes8& contents, ElementType type, std::int64_t offset = 0) {
    const std::int64_t element = size_of(type).value;
    std::byte* const memory = device_->allocate({std::ssize(contents) + offset * element}) + offset * element;
    if (!contents.empty()) device_->copy_in(contents, memory);
    return {{memory, type}, std::ssize(contents) / element};
  }
  static Vector on_host(Bytes8& contents, ElementType type) {
    return {{contents.data(), type}, std::ssize(contents) / size_of(type).value};
  }
  Bytes8 back(const Vector& x) {
    Bytes8 contents(static_cast<std::size_t>(x.bytes().value));
    if (!contents.empty()) device_->copy_out(x.data.address, contents);
    return contents;
  }

  struct Variant {
    ElementType type = ElementType::fp32;
    bool with_errors = true;
    std::int64_t offset = 0;
  };
  void compare_format(CompressionFormat format, const EncodingCase& c, const Variant& variant) {
    SCOPED_TRACE(testing::Message() << name_of(format) << ", " << c.size << " elements in " << c.shards << " shards, "
                                    << name_of(variant.type) << (variant.with_errors ? ", with errors" : "")
                                    << ", offset " << variant.offset);
    const std::int64_t elements = (c.size + c.shards - 1) / c.shards;
    const std::int64_t room = encoded_bytes(format, elements).value, summands = 2;
    Bytes8 values = in_type(numbers_of(c, 1), variant.type), errors;
    if (variant.with_errors) errors = bytes_of(numbers_of({c.size, c.shards}, 2));
    Bytes8 codes(static_cast<std::size_t>(summands * c.shards * room), std::byte{0x55});
    const Vector device_values = on_device(values, variant.type, variant.offset);
    const Vector device_errors = variant.with_errors ? on_device(errors, ElementType::fp32, variant.offset) : Vector{};
    const Vector device_codes = on_device(codes, ElementType::u8, variant.offset);
    const auto shards_in = [&](const Vector& bytes) { return EncodedShards{format, elements, c.shards, bytes}; };
    const EncodingDraw draw{99, 7};
    EncodedSquares expected, found;
    encode_on_host(on_host(values, variant.type), variant.with_errors ? on_host(errors, ElementType::fp32) : Vector{},
                   draw, shards_in(on_host(codes, ElementType::u8)), &expected);
    device_->kernels().encode(device_values, device_errors, draw, shards_in(device_codes), &found);
    device_->kernels().synchronize();
    // Behind the first tensor, and behind shards that are not full, nothing is written.
    EXPECT_EQ(back(device_codes), codes);
    if (variant.with_errors) expect_same_numbers(back(device_errors), errors, ElementType::fp32);
    if (std::isfinite(expected.gradient)) {
      EXPECT_NEAR(found.gradient, expected.gradient, 1e-4 * expected.gradient);
      EXPECT_TRUE(!std::isfinite(expected.error) ||
                  std::abs(found.error - expected.error) <= 1e-4 * expected.error + 1e-12)
          << found.error << " instead of " << expected.error;
    }
    compare_sums(format, c, variant, codes, room);
  }
  // The same tensor twice: the second as another rank would send it.
  void compare_sums(CompressionFormat format, const EncodingCase& c, const Variant& variant, Bytes8 codes,
                    std::int64_t room) {
    std::copy_n(codes.begin(), c.shards * room, codes.begin() + c.shards * room);
    const std::int64_t elements = (c.size + c.shards - 1) / c.shards;
    const Vector device_codes = on_device(codes, ElementType::u8, variant.offset);
    for (const Into into : {Into::overwrite, Into::add}) {
      Bytes8 sum = in_type(std::vector<float>(static_cast<std::size_t>(c.size), 3.25F), variant.type);
      const Vector device_sum = on_device(sum, variant.type, variant.offset);
      decode_sum_on_host({format, elements, c.shards, on_host(codes, ElementType::u8)}, 2, on_host(sum, variant.type),
                         into);
      device_->kernels().decode_sum({format, elements, c.shards, device_codes}, 2, device_sum, into);
      expect_same_numbers(back(device_sum), sum, variant.type);
    }
  }
};

class CudaFormat : public CudaEncoding, public testing::WithParamInterface<int> {};

TEST_P(CudaFormat, GivesTheBitsOfTheProcessor) {
  const auto format = static_cast<CompressionFormat>(GetParam());
  // These send a NaN as it is. Adding an error to it gives a GPU's NaN, whose bits are others than a processor's.
  using enum CompressionFormat;
  const bool sends_nan = format == bf16 || format == top_k || format == random_k;
  for (const EncodingCase& c : kCases) {
    if (!sends_nan || c.special != Special::zeros_and_nan) {
      compare_format(format, c, {});
      compare_format(format, c, {.offset = 1});
    }
    compare_format(format, c, {.with_errors = false});
    compare_format(format, c, {.type = ElementType::bf16, .with_errors = false, .offset = 1});
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaFormat, testing::Range(1, kCompressionFormats), [](const auto& tested) {
  std::string name(name_of(static_cast<CompressionFormat>(tested.param)));
  std::ranges::replace(name, '-', '_');
  return name;
});

// A recorded encoding that rounds at random draws, at every start, from the seed that it is given then.
TEST_F(CudaEncoding, ARecordingDrawsAnewAtEveryStart) {
  constexpr auto kFormat = CompressionFormat::int8_stochastic;
  const EncodingCase c{3000, 1};
  Bytes8 values = bytes_of(numbers_of(c, 1)), codes(static_cast<std::size_t>(encoded_bytes(kFormat, c.size).value));
  const Vector device_values = on_device(values, ElementType::fp32), device_codes = on_device(codes, ElementType::u8);
  const StreamId stream = device_->make_stream(StreamPriority::usual),
                 starts = device_->make_stream(StreamPriority::usual);
  device_->use(stream);
  EncodedSquares squares;
  const auto encode = [&](std::uint64_t seed) {
    device_->kernels().encode(device_values, {}, {seed}, {kFormat, c.size, 1, device_codes}, &squares);
  };
  encode(1);  // takes its scratch memory
  device_->kernels().synchronize();
  CallRecorder& recorder = *device_->recorder();
  recorder.begin(std::array{stream});
  encode(2);
  const RecordingId recording = recorder.end();
  for (const std::uint64_t seed : {3U, 4U}) {
    recorder.renew_host_data(recording);
    encode(seed);
    recorder.start(recording, starts);
    encode_on_host(on_host(values, ElementType::fp32), {}, {seed},
                   {kFormat, c.size, 1, on_host(codes, ElementType::u8)}, nullptr);
    EXPECT_EQ(back(device_codes), codes) << "seed " << seed;
  }
  recorder.forget(recording);
}

}  // namespace
}  // namespace weft
