// The file of Megatron-LM's --tp-comm-overlap-cfg, which Transformer Engine reads (docs/export.md): how each product of
// a layer overlaps with its transfer.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "graph/own_rows.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

// How a product's transfer runs in the plan.
struct ProductOverlap {
  std::int64_t parts = 1;  // of the transfer
  bool beside_compute = false;
};

// Transformer Engine's name of the product that a transfer of tensor parallelism runs with; empty: none. Gathers of
// backward that weight gradients read run beside the gradient of the input, and reductions of that gradient beside the
// weight gradient.
std::string product_of(const Operation& op) {
  const bool attention = op.role == Role::attention_gather || op.role == Role::attention_reduce;
  const bool entry = op.role == Role::attention_gather || op.role == Role::ffn_gather;
  const bool exit = op.role == Role::attention_reduce || op.role == Role::ffn_reduce;
  if (!entry && !exit) return "";
  const std::string linear = entry ? (attention ? "qkv" : "fc1") : (attention ? "proj" : "fc2");
  switch (op.phase) {
    case Phase::forward:
      return linear + "_fprop";
    case Phase::input_grad:
      return linear + (entry ? "_wgrad" : "_dgrad");
    case Phase::weight_grad:
      return entry ? linear + "_dgrad" : "";
    default:
      return "";
  }
}

std::map<std::string, ProductOverlap> overlaps_of(const Plan& plan) {
  std::map<std::string, ProductOverlap> overlaps;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    if (!op.is_transfer() || op.communication->group != GroupKind::tp || !op.per_micro_batch) continue;
    const std::string product = product_of(op);
    if (product.empty()) continue;
    ProductOverlap& overlap = overlaps[product];
    for (const Origin& origin : op.origins) overlap.parts = std::max(overlap.parts, origin.of);
    overlap.beside_compute |= !plan.issues[id].blocking;
  }
  return overlaps;
}

// Transformer Engine's methods: gathers are exchanged around the ring in as many parts as ranks, reductions are
// pipelined in parts, and whole transfers run in bulk beside a product that does not need them.
std::string_view method_of(const std::string& product) {
  if (product == "proj_fprop" || product == "fc2_fprop") return "pipeline";
  const bool bulk =
      product == "qkv_dgrad" || product == "qkv_wgrad" || product == "fc1_dgrad" || product == "fc1_wgrad";
  return bulk ? "bulk" : "ring_exchange";
}

void write_product(ExportSheet& sheet, const std::string& product, const ProductOverlap& overlap) {
  const std::string_view method = method_of(product);
  sheet.line(product + ":");
  sheet.line(fmt::format("  method: {}", method));
  if (method == "pipeline") sheet.line(fmt::format("  num_splits: {}", overlap.parts));
  const std::int32_t blocks = sheet.plan().thread_blocks;
  if (blocks > 0 && method != "ring_exchange") sheet.line(fmt::format("  num_sm: {}", blocks));
  const std::int64_t exchanged = ring_exchange_pieces(sheet.layout().tp);
  if (method == "ring_exchange" && overlap.parts != exchanged) {
    sheet.leaves_out(Feature::tensor_parallel_parts,
                     fmt::format("ring_exchange of tp = {} is planned in {} parts beside the own rows, the plan has {} "
                                 "of {}",
                                 sheet.layout().tp, exchanged, overlap.parts, product));
  }
}

}  // namespace

void write_te_userbuffers(ExportSheet& sheet) {
  if (!sheet.facts().tensor_parallel_parts) {
    fail("--to te-userbuffers: the plan cuts no transfer of tensor parallelism; plan with --tp-comm-overlap");
  }
  sheet.carries({Feature::tensor_parallel_parts, Feature::thread_blocks});
  for (const auto& [product, overlap] : overlaps_of(sheet.plan())) {
    if (overlap.beside_compute) {
      write_product(sheet, product, overlap);
    } else {
      sheet.warn(
          fmt::format("the plan waits for the transfer of {}; Transformer Engine overlaps it all the same", product));
    }
  }
  sheet.warn("--tp-comm-overlap-cfg takes this file, with --tp-comm-overlap and --sequence-parallel");
}

}  // namespace weft
