#include "exec/initial_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace weft {
namespace {

// Element i of a tensor whose numbers start from `key`. Twelve uniform 16-bit numbers have a sum of mean 6 * 65535 and
// variance 12 * (65536^2 - 1) / 12: over 65536 it deviates by 1 - 2^-33.
float normal_element(std::uint64_t key, std::int64_t i, double deviation) {
  std::int64_t sum = 0;
  for (std::uint64_t k = 0; k < 3; ++k) {
    const std::uint64_t bits = mix_bits(key + 3 * static_cast<std::uint64_t>(i) + k);
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
  }
  return static_cast<float>(static_cast<double>(sum - std::int64_t{6} * 65535) * (deviation / 65536));
}

}  // namespace

void require_trainable_tensors(const Transformer& model) {
  const auto refuse = [&](std::string_view what) {
    fail("model '{}': {}: weft run cannot train it yet", model.name, what);
  };
  if (model.experts && model.experts->shared_gate) refuse("a gate on shared experts");
  if (model.experts && model.experts->gate_bias) refuse("a correction of the router's scores");
  const std::int64_t rotated = model.latent ? model.latent->rope_head_dim : model.head_dim;
  if (model.positions == Positions::rotary && rotated % 2 != 0) {
    fail("model '{}': {}: value {} is odd; rotary positions pair the halves of a head", model.name,
         model.latent ? "latent.rope_head_dim" : "head_dim", rotated);
  }
}

void initial_elements(const ParameterTensor& tensor, std::uint64_t seed, std::int64_t first, std::span<float> out,
                      std::size_t distinct) {
  if (tensor.start != ParameterTensor::Start::normal) {
    std::ranges::fill(out, tensor.start == ParameterTensor::Start::ones ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t key = mix_bits(mix_bits(seed) ^ hash_text(tensor.name));
  for (std::size_t k = 0; k < out.size(); ++k) {
    out[k] =
        k < distinct ? normal_element(key, first + static_cast<std::int64_t>(k), tensor.deviation) : out[k - distinct];
  }
}

void initial_weights(const std::vector<HeldTensor>& tensors, std::uint64_t seed, std::int64_t begin,
                     std::span<float> out, std::size_t distinct) {
  std::ranges::fill(out, 0.0F);
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  for (const HeldTensor& tensor : tensors) {
    const ElementRange own = overlap({begin, end}, {tensor.offset, tensor.offset + tensor.elements()});
    for_each_range(tensor, {own.begin - tensor.offset, own.end - tensor.offset}, [&](const HeldRange& held_range) {
      initial_elements(tensor.whole, seed, held_range.in_whole,
                       out.subspan(tensor.offset + held_range.in_part - begin, held_range.count), distinct);
    });
  }
}

}  // namespace weft
