// How fast gradients are encoded and decoded, against copying the same floats, in turns in one run and on one thread.
//
//   build/release/bench/compress_speed               every format
//   build/release/bench/compress_speed int8 64       one format, tensors of 64 MiB
//   build/cuda/bench/compress_speed cuda [int8 [512]]     on a GPU, against a copy in its memory
//
// A speed of 1 means that as many floats are encoded in a second as memcpy copies. Every format is first checked: what
// error feedback keeps and what is decoded add up to the values. Exit code 1 where int8 is below the goal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "compress/compressor.hpp"
#include "compress_speed_device.hpp"

namespace weft {
namespace {

constexpr double kGoal = 0.7;
constexpr int kRounds = 15;

// Seconds of this thread on a processor, so that other programs' turns do not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& work) {
  const double begin = now();
  work();
  return now() - begin;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Sums of three uniform numbers, which are close to normal; a linear congruential generator is quick and repeats.
std::vector<float> gradients_like(std::size_t size) {
  std::vector<float> values(size);
  std::uint32_t state = 1;
  const auto next = [&] { return static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-24F - 0.5F; };
  for (float& value : values) {
    value = next();
    value += next();
    value += next();
  }
  return values;
}

class SpeedOfFormat {
 public:
  SpeedOfFormat(CompressionFormat format, std::span<const float> values)
      : compressor_(compressor_of(format)),
        values_(values),
        errors_(values.size(), 0.0F),
        decoded_(values.size()),
        copied_(values.size()),
        encoded_(static_cast<std::size_t>(encoded_bytes(format, std::ssize(values)).value)) {}

  // What was sent and what is kept are the values.
  bool is_right() {
    std::ranges::fill(errors_, 0.0F);
    encode_with_feedback(compressor_, values_, errors_, {.seed = 1}, encoded_);
    decode(compressor_, encoded_, decoded_);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!(std::abs(values_[i] - decoded_[i] - errors_[i]) <= 1e-5F)) return false;
    }
    return true;
  }

  struct Speeds {
    double copy_gb_s = 0;
    double encode = 0, encode_with_feedback = 0, decode = 0, reduce = 0;  // shares of the copy's
  };
  Speeds measure() {
    std::vector<double> copy, encoding, feedback, decoding, reducing;
    for (int round = 0; round < kRounds; ++round) {
      copy.push_back(seconds_of([&] { std::memcpy(copied_.data(), values_.data(), values_.size_bytes()); }));
      encoding.push_back(seconds_of([&] { encode(compressor_, values_, {.seed = 1}, encoded_); }));
      feedback.push_back(
          seconds_of([&] { encode_with_feedback(compressor_, values_, errors_, {.seed = 1}, encoded_); }));
      decoding.push_back(seconds_of([&] { decode(compressor_, encoded_, decoded_); }));
      reducing.push_back(seconds_of([&] { reduce(compressor_, encoded_, decoded_); }));
    }
    const auto share = [&](const std::vector<double>& times) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < times.size(); ++i) ratios.push_back(copy[i] / times[i]);
      return median(ratios);
    };
    return {static_cast<double>(values_.size_bytes()) / median(copy) / 1e9, share(encoding), share(feedback),
            share(decoding), share(reducing)};
  }

 private:
  const Compressor& compressor_;
  std::span<const float> values_;
  std::vector<float> errors_, decoded_, copied_;
  std::vector<std::byte> encoded_;
};

int run(std::vector<std::string> arguments) {
  const bool on_device = !arguments.empty() && arguments[0] == "cuda";
  if (on_device) arguments.erase(arguments.begin());
  CompressionFormat only = CompressionFormat::none;  // all of them
  if (!arguments.empty()) {
    only = parse_compression_format(arguments[0]).value_or(CompressionFormat::none);
    if (only == CompressionFormat::none) {
      fail("'{}': the first argument is one of {}", arguments[0], compression_format_names());
    }
  }
  std::size_t mebibytes = on_device ? 512 : 64;
  if (arguments.size() > 1) {
    mebibytes = std::strtoul(arguments[1].c_str(), nullptr, 10);
    if (mebibytes < 1 || mebibytes > 4096) fail("'{}': the second argument is 1 to 4096 MiB", arguments[1]);
  }
  const bool of_int8 = only == CompressionFormat::none || only == CompressionFormat::int8;
  const auto say_goal = [&](bool reached) {
    if (of_int8) {
      fmt::print("goal: int8 is encoded and decoded at {} of the copy's speed: {}\n", kGoal,
                 reached ? "reached" : "missed");
    }
    return reached ? 0 : 1;
  };
  if (on_device) return say_goal(measure_device(only, mebibytes, kGoal));
  const std::vector<float> values = gradients_like(mebibytes * 1024 * 1024 / sizeof(float));
  fmt::print("{:16} {:>10} {:>8} {:>14} {:>8} {:>8}\n", "format", "copy GB/s", "encode", "with feedback", "decode",
             "reduce");
  bool reached = true;
  for (int i = 1; i < kCompressionFormats; ++i) {
    const auto format = static_cast<CompressionFormat>(i);
    if (only != CompressionFormat::none && format != only) continue;
    SpeedOfFormat of_format(format, values);
    if (!of_format.is_right()) fail("{}: what was decoded and what is kept do not add up", name_of(format));
    const SpeedOfFormat::Speeds speeds = of_format.measure();
    fmt::print("{:16} {:10.2f} {:8.2f} {:14.2f} {:8.2f} {:8.2f}\n", name_of(format), speeds.copy_gb_s, speeds.encode,
               speeds.encode_with_feedback, speeds.decode, speeds.reduce);
    if (format == CompressionFormat::int8) reached = speeds.encode >= kGoal && speeds.decode >= kGoal;
  }
  return say_goal(reached);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  try {
    return weft::run({argv + 1, argv + argc});
  } catch (const weft::Error& error) {
    fmt::print(stderr, "compress_speed: {}\n", error.what());
    return 2;
  }
}
