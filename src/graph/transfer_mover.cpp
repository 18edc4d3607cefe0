#include "graph/transfer_mover.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

bool is_nvlink(const Cluster& cluster, LevelId level) {
  const Domain joins = cluster.spec().levels[level.index()].joins;
  return (joins == Domain::part || joins == Domain::node) && cluster.level_name(level) == "nvlink";
}

bool stays_on_nvlink(const Cluster& cluster, const RankClass& rank_class, const Communication& c) {
  const Execution& execution = cluster.spec().execution;
  if (execution.collectives != CollectiveMaker::library || execution.links != LinkTiming::nominal) return false;
  if (c.algorithm == Algorithm::carried || c.collective == Collective::send_recv) return false;
  const GroupView& view = rank_class.group(c.group).scoped(c.scope, c.levels).view;
  const auto joined = std::find(view.within.begin(), view.within.end(), view.size);
  if (view.size < 2 || joined == view.within.end()) return false;
  return is_nvlink(cluster, cluster.fabrics()[joined - view.within.begin()]);
}

bool has_copy_engine_form(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::all_to_all;
}

std::string mover_fault(const Cluster& cluster, const RankClass& rank_class, const Communication& c) {
  if (c.mover.is_library()) return "";
  if (cluster.spec().execution.collectives != CollectiveMaker::library || c.algorithm == Algorithm::carried) {
    return fmt::format("it names {}, but is carried out by a program and not by a library", in_words(c.mover));
  }
  if (!c.mover.copy_engine) return "";  // a limit that a library takes for any collective
  const bool exchanges = c.mover.thread_blocks > 0;
  if (exchanges && c.collective != Collective::all_gather && c.collective != Collective::reduce_scatter) {
    return fmt::format("copy engines with thread blocks that signal move all_gather and reduce_scatter, not {}",
                       name_of(c.collective));
  }
  if (!exchanges && !has_copy_engine_form(c.collective)) {
    return fmt::format("copy engines move all_gather and all_to_all, not {}: they cannot reduce",
                       name_of(c.collective));
  }
  if (!stays_on_nvlink(cluster, rank_class, c)) return "copy engines move only between the GPUs of a node over NVLink";
  return "";
}

}  // namespace weft
