#include "graph/compression_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr CompressionFormat kWithoutFeedback[] = {CompressionFormat::bf16,     CompressionFormat::fp16,
                                                  CompressionFormat::int8,     CompressionFormat::int8_stochastic,
                                                  CompressionFormat::fp8_e4m3, CompressionFormat::fp8_e5m2,
                                                  CompressionFormat::int4,     CompressionFormat::int4_stochastic};

std::string formats_without_feedback() {
  std::string names;
  for (const CompressionFormat format : kWithoutFeedback) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(format));
  }
  return names;
}

void require_size(std::int64_t least) {
  constexpr std::int64_t kMostElements = 1'000'000'000;
  if (least < 1 || least > kMostElements) fail("--compress-min {}: must be 1 to {}", least, kMostElements);
}

void validate_weight_compression(const Layout& l, const Transformer& model) {
  if (!l.encodes_weights()) return;
  const std::string_view format = name_of(l.compress_weights);
  require_size(l.compress.min_elements);
  if (l.zero == 0) fail("--compress weights={}: needs --zero 1, 2 or 3, which gather weights", format);
  if (l.fp8_param_gather) fail("--compress weights={}: is not for --fp8-param-gather, which rounds them too", format);
  if (l.shards() == 1) fail("--compress weights={}: one rank has all shards and gathers no weights", format);
  if (!works_without_feedback(l.compress_weights)) {
    fail("--compress weights={}: takes away too much; must be {}", format, formats_without_feedback());
  }
  if (model.experts) {
    fail("--compress weights={}: is for models without experts, and {} has {}", format, model.name,
         model.experts->count);
  }
}

}  // namespace

bool works_without_feedback(CompressionFormat format) {
  return std::find(std::begin(kWithoutFeedback), std::end(kWithoutFeedback), format) != std::end(kWithoutFeedback);
}

void validate_compression(const Layout& l, const Transformer& model) {
  validate_weight_compression(l, model);
  if (!l.compress.is_on()) return;
  const std::string format = name_of(l.compress);
  require_size(l.compress.min_elements);
  if (l.dp * l.cp == 1) fail("--compress gradients={}: --dp 1 exchanges no gradients", format);
  if (l.zero > 1 && !works_without_feedback(l.compress.format)) {
    fail(
        "--compress gradients={}: takes away too much without error feedback, which --zero {} does not keep; must be "
        "{}",
        format, l.zero, formats_without_feedback());
  }
  if (l.zero > 1 && model.experts) {
    fail("--compress gradients={}: at --zero {} is for models without experts, and {} has {}", format, l.zero,
         model.name, model.experts->count);
  }
  if (l.compress.format == CompressionFormat::power_sgd) {
    constexpr std::int64_t kMostColumns = 1024;  // orthonormal columns take the square of their number
    if (l.compress.rank < 1 || l.compress.rank > kMostColumns) {
      fail("--compress gradients={}: the rank must be 1 to {}", format, kMostColumns);
    }
    if (l.compress.between_nodes) {
      fail("--compress gradients={}: factors are summed over all ranks at once; leave out @node", format);
    }
  }
  if (l.zero_shards > 0 && l.zero < 2) fail("--compress gradients={}: with --zero-shards needs --zero 2 or 3", format);
  if (l.zero < 2 && l.grad_dtype != ElementType::fp32) {
    fail("--compress gradients={}: encodes gradients in fp32, not --grad-dtype {}", format, name_of(l.grad_dtype));
  }
}

}  // namespace weft
