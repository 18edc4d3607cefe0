#include "io/export/torchtitan_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {

std::optional<std::string_view> torchtitan_schedule(const Layout& layout) {
  if (layout.warm_up_depth > 0) return std::nullopt;
  switch (layout.schedule) {
    case PipelineSchedule::gpipe:
      return "GPipe";
    case PipelineSchedule::one_f_one_b:
      return "1F1B";
    case PipelineSchedule::interleaved:
      return "Interleaved1F1B";
    case PipelineSchedule::breadth_first:
      return "LoopedBFS";
    case PipelineSchedule::zbv:
      return "ZBVZeroBubble";
    case PipelineSchedule::dualpipev:
      return "DualPipeV";
    case PipelineSchedule::dualpipe:
    case PipelineSchedule::zb_h1:
    case PipelineSchedule::zb_h2:
    case PipelineSchedule::v_half:
    case PipelineSchedule::v_min:
    case PipelineSchedule::hanayo:
    case PipelineSchedule::searched:
    case PipelineSchedule::searched_waves:
    case PipelineSchedule::searched_loops:
      break;
  }
  return std::nullopt;
}

std::vector<std::string> torchtitan_modules(const Layout& layout, const Transformer& model, std::string_view head) {
  const std::vector<std::int64_t> layers = layers_per_chunk(layout, model);
  std::vector<std::string> chunks;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<std::string> names;
    if (i == 0) names.emplace_back("\"tok_embeddings\"");
    for (std::int64_t end = next + layers[i]; next < end; ++next) names.push_back(fmt::format("\"layers.{}\"", next));
    if (i + 1 == layers.size()) names.insert(names.end(), {"\"norm\"", fmt::format("\"{}\"", head)});
    chunks.push_back(fmt::format("[{}]", fmt::join(names, ", ")));
  }
  return chunks;
}

std::int64_t torchtitan_shards(const Layout& layout) {
  if (layout.zero == 0) return 1;
  return layout.shards() % layout.cp == 0 ? layout.shards() / layout.cp : layout.dp;
}

}  // namespace weft
