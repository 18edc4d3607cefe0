#include "graph/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "base/checked.hpp"
#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "graph/compression_rules.hpp"

namespace weft {
namespace {

std::vector<std::int64_t> even_layers(const Layout& layout, const Transformer& model) {
  const std::int64_t n = layout.model_chunks();
  std::vector<std::int64_t> layers(n, model.layers / n);
  const std::int64_t rest = model.layers % n;
  const std::int64_t first = (n - rest + 1) / 2;  // the chunks with one layer more lie in the middle
  for (std::int64_t i = first; i < first + rest; ++i) ++layers[i];
  return layers;
}

}  // namespace

std::string name_of(const GradientCompression& compress) {
  std::string name(name_of(compress.format));
  if (compress.format == CompressionFormat::power_sgd) name += fmt::format(":{}", compress.rank);
  return name + (compress.between_nodes ? "@node" : "");
}

std::string_view name_of(Recompute recompute) {
  static constexpr std::string_view kNames[] = {"none", "selective", "full", "local"};
  return enum_name(kNames, recompute);
}

std::string_view name_of(AttentionKernel kernel) {
  return kernel == AttentionKernel::flash ? "flash" : "unfused";
}

std::string_view name_of(ExpertExchange exchange) {
  static constexpr std::string_view kNames[] = {"padded", "uneven", "gathered"};
  return enum_name(kNames, exchange);
}

std::int64_t Layout::extent(Axis axis) const {
  constexpr std::pair<Axis, std::int64_t Layout::*> kDegrees[] = {{Axis::tp, &Layout::tp}, {Axis::cp, &Layout::cp},
                                                                  {Axis::dp, &Layout::dp}, {Axis::pp, &Layout::pp},
                                                                  {Axis::ep, &Layout::ep}, {Axis::etp, &Layout::etp}};
  for (const auto& [named, degree] : kDegrees) {
    if (named == axis) return this->*degree;
  }
  WEFT_CHECK(axis == Axis::edp);
  return edp();
}

ElementRange Layout::slice(std::int64_t index) const {
  const auto end = slice_tokens.begin() + index;
  const std::int64_t first = std::accumulate(slice_tokens.begin(), end, std::int64_t{0});
  return {first, first + *end};
}

std::string reduce_every_in_words(const Layout& layout) {
  if (layout.reduce_every == 0) return {};
  return layout.reduce_every == Layout::kWholeStep ? "step" : fmt::format("{}", layout.reduce_every);
}

std::vector<std::int64_t> layers_per_chunk(const Layout& layout, const Transformer& model) {
  std::vector<std::int64_t> layers = layout.stage_layers.empty() ? even_layers(layout, model) : layout.stage_layers;
  layers.insert(layers.end(), layers.begin(), layers.begin() + (layout.chunks() - layout.model_chunks()));
  return layers;
}

std::vector<bool> recomputed_layers(const Layout& layout, const Transformer& model) {
  std::vector<bool> recomputed;
  const bool any = recomputes_layers(layout.recompute);
  const std::vector<std::int64_t> per_chunk = layers_per_chunk(layout, model);
  for (std::int64_t chunk = 0; chunk < layout.model_chunks(); ++chunk) {
    const std::vector<std::int64_t>& wished = layout.recompute_layers;
    const std::int64_t count = !any ? 0 : wished.empty() ? per_chunk[chunk] : wished[wished.size() == 1 ? 0 : chunk];
    for (std::int64_t layer = 0; layer < per_chunk[chunk]; ++layer) recomputed.push_back(layer < count);
  }
  return recomputed;
}

std::string recompute_in_words(const Layout& layout) {
  std::string words(name_of(layout.recompute));
  if (layout.recompute_layers.empty()) return words;
  words += fmt::format(" of the first {} layers", fmt::join(layout.recompute_layers, ","));
  return words + (layout.recompute_layers.size() == 1 && layout.chunks() > 1 ? " of each chunk" : "");
}

Mesh dense_mesh(const Layout& layout) {
  std::vector<Mesh::Extent> order;
  for (const Axis axis : layout.mesh_order) order.push_back({axis, layout.extent(axis)});
  return Mesh(order);
}

Mesh expert_mesh(const Layout& layout) {
  std::vector<Mesh::Extent> order{{Axis::etp, layout.etp}, {Axis::ep, layout.ep}, {Axis::edp, layout.edp()}};
  if (layout.pp == 1) return Mesh(order);  // wherever pp stands, it moves nothing
  std::int64_t inside_pp = 1;              // ranks between neighbouring pipeline stages in the dense mesh
  const Mesh dense = dense_mesh(layout);
  for (const Mesh::Extent& extent : dense.order()) {
    if (extent.axis == Axis::pp) break;
    inside_pp *= extent.size;
  }
  std::int64_t product = 1;
  for (std::size_t i = 0; i <= order.size(); ++i) {
    if (product == inside_pp) {
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(i), {Axis::pp, layout.pp});
      return Mesh(order);
    }
    if (i < order.size()) product *= order[i].size;
  }
  fail(
      "--mesh-order: pipeline stages lie {} ranks apart, which no split of the experts' mesh (etp {}, ep {}, edp {}) "
      "can follow; put pp outermost",
      inside_pp, layout.etp, layout.ep, layout.edp());
}

std::int64_t local_vocab(const Transformer& model, const Layout& layout) {
  const std::int64_t step = kVocabularyPadding * layout.tp;
  return (model.vocab + step - 1) / step * kVocabularyPadding;
}

}  // namespace weft
