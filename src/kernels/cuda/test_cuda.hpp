// The same calls on the CPU's kernels and on a GPU's, with the same inputs: the CPU, in f32, is the oracle.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "kernels/accelerator.hpp"

namespace weft {

inline float bf16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U);
}

// Tensors with numbers that depend on a seed alone. Matrices are slices of larger ones, whose other elements kernels
// must leave alone.
class TestMemory {
 public:
  // `type` is what tensors hold unless they are asked for in f32; in the CPU's memory (no device) f32 of the same
  // values.
  TestMemory(Accelerator* device, ElementType type, bool sliced) : device_(device), type_(type), sliced_(sliced) {}

  Matrix matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    return make(rows, columns, seed, type_, sliced_);
  }
  Matrix matrix32(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    return make(rows, columns, seed, ElementType::fp32, sliced_);
  }
  Vector vector(std::int64_t size, std::uint64_t seed) { return make(1, size, seed, type_, false).row(0); }
  Vector vector32(std::int64_t size, std::uint64_t seed) {
    return make(1, size, seed, ElementType::fp32, false).row(0);
  }
  // Its square, which is never negative.
  Vector squares32(std::int64_t size, std::uint64_t seed) {
    std::vector<float> values = numbers(size, seed, ElementType::fp32);
    for (float& value : values) value *= value;
    return place(values, ElementType::fp32).row(0);
  }
  Matrix given(const std::vector<float>& values, std::int64_t rows, std::int64_t columns, bool in_f32 = true) {
    Matrix all = place(values, in_f32 ? ElementType::fp32 : type_);
    return Matrix::dense(all.data, rows, columns);
  }
  KeptElements bytes(std::int64_t count) {
    return {reinterpret_cast<std::uint8_t*>(allocate(count)), static_cast<std::size_t>(count)};
  }

  std::vector<float> values(const Matrix& x) const {
    if (x.row_stride == x.columns * size_of(x.data.type)) return read({x.data, x.rows * x.columns});
    std::vector<float> all;
    for (std::int64_t r = 0; r < x.rows; ++r) {
      const std::vector<float> of_row = read(x.row(r));
      all.insert(all.end(), of_row.begin(), of_row.end());
    }
    return all;
  }
  void expect_surroundings_intact() const {
    for (const Whole& whole : wholes_) {
      const std::vector<float> all = values(whole.matrix);
      const std::int64_t columns = whole.matrix.columns;
      for (std::int64_t r = 0; r < whole.matrix.rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const bool inside = r >= 1 && r < whole.matrix.rows - 1 && c >= 3 && c + 2 < columns;
          if (!inside) {
            ASSERT_EQ(all[static_cast<std::size_t>(r * columns + c)], kGuard) << "row " << r << ", column " << c;
          }
        }
      }
    }
  }

 private:
  static constexpr float kGuard = 768;
  struct Whole {
    Matrix matrix;
  };

  ElementType stored(ElementType type) const { return device_ == nullptr ? ElementType::fp32 : type; }

  std::vector<float> numbers(std::int64_t count, std::uint64_t seed, ElementType type) const {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> all(static_cast<std::size_t>(count));
    for (float& value : all) value = type == ElementType::bf16 ? bf16_of(normal(generator)) : normal(generator);
    return all;
  }
  Matrix make(std::int64_t rows, std::int64_t columns, std::uint64_t seed, ElementType type, bool sliced) {
    const std::vector<float> inside = numbers(rows * columns, seed, type);
    if (!sliced || device_ == nullptr) return Matrix::dense(place(inside, type).data, rows, columns);
    std::vector<float> all(static_cast<std::size_t>((rows + 2) * (columns + 5)), kGuard);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        all[static_cast<std::size_t>((r + 1) * (columns + 5) + c + 3)] =
            inside[static_cast<std::size_t>(r * columns + c)];
    const Matrix whole = Matrix::dense(place(all, type).data, rows + 2, columns + 5);
    wholes_.push_back({whole});
    return whole.row_slice(1, rows + 1).column_slice(3, columns + 3);
  }
  Matrix place(const std::vector<float>& values, ElementType type) {
    const ElementType in_memory = stored(type);
    const auto count = std::ssize(values);
    std::byte* const memory = allocate(count * size_of(in_memory).value);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(in_memory).value));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[i]);
      const auto high = static_cast<std::uint16_t>(bits >> 16);
      if (in_memory == ElementType::bf16)
        std::memcpy(bytes.data() + 2 * i, &high, 2);
      else
        std::memcpy(bytes.data() + 4 * i, &bits, 4);
    }
    if (device_ != nullptr)
      device_->copy_in(bytes, memory);
    else
      std::ranges::copy(bytes, memory);
    return Matrix::dense({memory, in_memory}, 1, count);
  }
  std::byte* allocate(std::int64_t size) {
    if (device_ != nullptr) return device_->allocate({size});
    return host_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(size, 1))).data();
  }
  std::vector<float> read(const Vector& x) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(x.bytes().value));
    if (device_ != nullptr)
      device_->copy_out(x.data.address, bytes);
    else
      std::memcpy(bytes.data(), x.data.address, bytes.size());
    std::vector<float> all(static_cast<std::size_t>(x.size));
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::uint32_t bits = 0;
      if (x.data.type == ElementType::bf16)
        std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, bytes.data() + 2 * i, 2);
      else
        std::memcpy(&bits, bytes.data() + 4 * i, 4);
      all[i] = std::bit_cast<float>(bits);
    }
    return all;
  }

  Accelerator* device_;
  ElementType type_;
  bool sliced_;
  std::deque<std::vector<std::byte>> host_;
  std::vector<Whole> wholes_;
};

inline Matrix as_matrix(const Vector& x) {
  return Matrix::dense(x.data, 1, x.size);
}

// ‖a - b‖ / ‖b‖
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference) / (size > 0 ? std::sqrt(size) : 1);
}

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_available()) GTEST_SKIP() << kernels_in_words();
    try {
      device_ = make_cuda_accelerator();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Calls kernels and returns what they wrote.
  using Body = std::function<std::vector<Matrix>(TestMemory&, Kernels&)>;
  // Sums in another order differ by a few units of f32's last place (2^-24) times the root of their length. Results in
  // bf16 are rounded once, by 2^-8 at most; `roundings` says how often values are rounded on their way.
  void compare(const Body& body, double roundings = 1) {
    for (const ElementType type : {ElementType::fp32, ElementType::bf16}) {
      for (const bool sliced : {false, true}) {
        SCOPED_TRACE(testing::Message() << name_of(type) << (sliced ? ", sliced" : ", dense"));
        TestMemory expected(nullptr, type, sliced), actual(device_.get(), type, sliced);
        const std::unique_ptr<Kernels> oracle = make_kernels();
        const std::vector<Matrix> right = body(expected, *oracle), found = body(actual, device_->kernels());
        device_->kernels().synchronize();
        ASSERT_EQ(right.size(), found.size());
        for (std::size_t i = 0; i < right.size(); ++i) {
          const double allowed = type == ElementType::fp32 ? 1e-5 : roundings * 0x1p-8;
          EXPECT_LE(relative_error(actual.values(found[i]), expected.values(right[i])), allowed) << "result " << i;
        }
        actual.expect_surroundings_intact();
      }
    }
  }

  std::unique_ptr<Accelerator> device_;
};

}  // namespace weft
