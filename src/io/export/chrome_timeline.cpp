// The predicted timeline of a plan as a Chrome trace (docs/export.md).
#include <sstream>

#include "cost/cost_model.hpp"
#include "io/export/export_writers.hpp"
#include "io/trace/chrome_trace.hpp"
#include "sim/simulate_plan.hpp"

namespace weft {

void write_chrome_timeline(ExportSheet& sheet) {
  const Cluster cluster(sheet.plan().cluster);
  const Timeline timeline = simulate_plan(sheet.whole(), CostModel(sheet.plan().graph, cluster, sheet.profile()));
  TraceOptions options;
  options.first_iteration = timeline.steady_first;
  options.last_iteration = timeline.steady_first + timeline.periods - 1;
  options.metadata = {{"title", sheet.model().name + " on " + sheet.plan().cluster.name},
                      {"policy", sheet.plan().policy}};
  std::ostringstream out;
  write_chrome_trace(out, timeline, account(timeline), options);
  sheet.file("", out.str());
  sheet.carries({Feature::queues, Feature::operation_order, Feature::waits, Feature::transfer_parts,
                 Feature::transfer_legs, Feature::tensor_parallel_parts, Feature::expert_parts, Feature::woven_passes,
                 Feature::gradient_buckets, Feature::reductions_beside_compute, Feature::gathers_beside_compute,
                 Feature::messages_beside_compute, Feature::prefetch, Feature::schedule});
}

}  // namespace weft
