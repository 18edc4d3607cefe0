#include "exec/held_tensor.hpp"

namespace weft {
namespace {

// How a role's matrix is spread over tensor-parallel ranks (Shoeybi et al. 2019). A bias goes with the rows of its
// weight; where columns are split, every rank holds it.
class Holding {
 public:
  Holding(const Transformer& model, const Layout& layout, std::int64_t tp_rank)
      : model_(model), layout_(layout), rank_(tp_rank) {}

  HeldTensor part_of(const ParameterTensor& whole, Role role) const {
    HeldTensor held;
    held.whole = whole;
    const std::int64_t rows = whole.shape.front();
    held.columns = {0, held.width()};
    const bool vector = whole.shape.size() == 1;
    switch (role) {
      case Role::embedding:
      case Role::head:
        hold_vocabulary(held);
        break;
      case Role::qkv:
        hold_heads(held);
        break;
      case Role::ffn_in:
        for (std::int64_t begin = 0; begin < rows; begin += model_.ffn) held.rows.push_back(share(model_.ffn, begin));
        break;
      case Role::attention_out:
      case Role::ffn_out:
        held.rows = {{0, rows}};
        if (vector) {
          held.copy = rank_ > 0;
        } else {
          held.columns = share(held.width(), 0);
        }
        break;
      default:
        held.rows = {{0, rows}};
        held.copy = rank_ > 0;
    }
    return held;
  }

 private:
  // This rank's of `size` rows or columns from `begin` on.
  ElementRange share(std::int64_t size, std::int64_t begin) const {
    const std::int64_t own = size / layout_.tp;
    return {begin + rank_ * own, begin + (rank_ + 1) * own};
  }

  void hold_vocabulary(HeldTensor& held) const {
    const std::int64_t own = local_vocab(model_, layout_);
    const std::int64_t begin = std::min(model_.vocab, rank_ * own), end = std::min(model_.vocab, begin + own);
    held.rows = {{begin, end}};
    held.padding = own - (end - begin);
  }

  void hold_heads(HeldTensor& held) const {
    const std::int64_t queries = model_.heads * model_.head_dim, keys = model_.kv_heads * model_.head_dim;
    held.rows = {share(queries, 0), share(keys, queries), share(keys, queries + keys)};
  }

  const Transformer& model_;
  const Layout& layout_;
  std::int64_t rank_;
};

}  // namespace

std::int64_t HeldTensor::row_count() const {
  std::int64_t count = padding;
  for (const ElementRange& range : rows) count += range.size();
  return count;
}

std::vector<HeldTensor> held_tensors(const Transformer& model, const Layout& layout, std::int32_t layer, Role role,
                                     std::int64_t tp_rank) {
  const Holding holding(model, layout, tp_rank);
  std::vector<HeldTensor> tensors;
  std::int64_t offset = 0;
  for (const ParameterTensor& whole : parameter_tensors(model, layer, role)) {
    tensors.push_back(holding.part_of(whole, role));
    tensors.back().offset = offset;
    // The last stage's copy of a tied embedding.
    if (role == Role::head && model.tied_embeddings) tensors.back().copy = true;
    offset += tensors.back().elements();
  }
  return tensors;
}

void initial_weights(const std::vector<HeldTensor>& tensors, std::uint64_t seed, std::int64_t begin,
                     std::span<float> out) {
  std::ranges::fill(out, 0.0F);
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  for (const HeldTensor& tensor : tensors) {
    const ElementRange own = overlap({begin, end}, {tensor.offset, tensor.offset + tensor.elements()});
    for_each_run(tensor, {own.begin - tensor.offset, own.end - tensor.offset}, [&](const HeldRun& run) {
      initial_elements(tensor.whole, seed, run.in_whole,
                       out.subspan(static_cast<std::size_t>(tensor.offset + run.in_part - begin),
                                   static_cast<std::size_t>(run.count)));
    });
  }
}

}  // namespace weft
