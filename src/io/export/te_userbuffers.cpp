// The file of Megatron-LM's --tp-comm-overlap-cfg, which Transformer Engine reads (docs/export.md): how each product of
// a layer overlaps with its transfer.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "graph/own_rows.hpp"
#include "graph/userbuffers.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

// How a product's transfer runs in the plan.
struct ProductOverlap {
  std::int64_t parts = 1;  // of the transfer
  bool beside_compute = false;
  Mover mover;
};

std::map<LinearPass, ProductOverlap> overlaps_of(const Plan& plan) {
  std::map<LinearPass, ProductOverlap> overlaps;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    const std::optional<LinearPass> product = linear_pass(op);
    if (!product || op.phase == Phase::recompute) continue;
    ProductOverlap& overlap = overlaps[*product];
    for (const Origin& origin : op.origins) overlap.parts = std::max(overlap.parts, origin.of);
    overlap.beside_compute |= !plan.issues[id].blocking;
    if (!op.communication->mover.is_library()) overlap.mover = op.communication->mover;
  }
  return overlaps;
}

// Gathers are exchanged around the ring in as many parts as ranks, reductions are pipelined in parts or exchanged too,
// and whole transfers run in bulk beside a product that does not need them.
UserbufferMethod method_of(LinearPass product, const ProductOverlap& overlap) {
  if (overlap.mover.copy_engine) return UserbufferMethod::ring_exchange;
  return default_userbuffers().of(product).method;
}

void write_product(ExportSheet& sheet, LinearPass product, const ProductOverlap& overlap) {
  const UserbufferMethod method = method_of(product, overlap);
  const bool exchanges = method == UserbufferMethod::ring_exchange;
  sheet.line(fmt::format("{}:", name_of(product)));
  sheet.line(fmt::format("  method: {}", name_of(method)));
  if (method == UserbufferMethod::pipeline) sheet.line(fmt::format("  num_splits: {}", overlap.parts));
  const std::int32_t of_plan = exchanges ? 0 : sheet.plan().thread_blocks;
  const std::int32_t blocks = overlap.mover.thread_blocks > 0 ? overlap.mover.thread_blocks : of_plan;
  if (blocks > 0) sheet.line(fmt::format("  num_sm: {}", blocks));
  const std::int64_t exchanged = ring_exchange_pieces(sheet.layout().tp);
  const bool gathers = default_userbuffers().of(product).method == UserbufferMethod::ring_exchange;
  if (gathers && overlap.parts != exchanged) {
    sheet.leaves_out(Feature::tensor_parallel_parts,
                     fmt::format("ring_exchange of tp = {} is planned in {} parts beside the own rows, the plan has {} "
                                 "of {}",
                                 sheet.layout().tp, exchanged, overlap.parts, name_of(product)));
  }
}

}  // namespace

void write_te_userbuffers(ExportSheet& sheet) {
  if (!sheet.facts().tensor_parallel_parts) {
    fail("--to te-userbuffers: the plan cuts no transfer of tensor parallelism; plan with --tp-comm-overlap");
  }
  sheet.carries({Feature::tensor_parallel_parts, Feature::thread_blocks, Feature::movers});
  for (const auto& [product, overlap] : overlaps_of(sheet.plan())) {
    if (overlap.beside_compute) {
      write_product(sheet, product, overlap);
    } else {
      sheet.warn(fmt::format("the plan waits for the transfer of {}; Transformer Engine overlaps it all the same",
                             name_of(product)));
    }
  }
  sheet.warn("--tp-comm-overlap-cfg takes this file, with --tp-comm-overlap and --sequence-parallel");
}

}  // namespace weft
