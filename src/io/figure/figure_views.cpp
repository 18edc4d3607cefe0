#include "io/figure/figure_views.hpp"

#include <array>

namespace weft {

std::span<const FigureView> figure_views() {
  static constexpr std::array<FigureView, 12> kViews = {{
      {"headline", "the step of every policy, split into its terms", false, draw_headline},
      {"memory", "the memory of every stage by what it is for", false, draw_memory},
      {"timeline", "what every rank computes and transfers, and when", true, draw_timeline},
      {"pipeline", "stages over time, a box for each pass", true, draw_pipeline},
      {"path", "the critical path as a ribbon", true, draw_path},
      {"exposure", "exposed time by kind, transfer and stage", true, draw_exposure},
      {"memory-time", "the memory of every stage over time", true, draw_memory_over_time},
      {"links", "what the transfers of every group carry over time", true, draw_links},
      {"sweep", "the fastest step over the two keys that matter most", false, draw_sweep},
      {"front", "the steps of a sweep against their memory", false, draw_front},
      {"collectives", "the bandwidth of a collective bench over sizes", false, draw_collectives},
      {"losses", "the losses of a run over its steps, and what compression holds back", false, draw_losses},
  }};
  return kViews;
}

}  // namespace weft
