#include "exec/held_tensor.hpp"

namespace weft {
namespace {

// How a role's matrix is spread over tensor-parallel ranks, an expert's over its own (Shoeybi et al. 2019). A bias goes
// with the rows of its weight; where columns are split, every rank holds it.
class Holding {
 public:
  // Of `ranks` that a matrix is spread over, the `rank`-th.
  Holding(const Transformer& model, const Layout& layout, std::int64_t ranks, std::int64_t rank)
      : model_(model), layout_(layout), ranks_(ranks), rank_(rank) {}

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
      case Role::kv:
        hold_heads(held, role);
        break;
      case Role::query_up:
      case Role::kv_up:  // whole heads
        held.rows = {share(rows, 0)};
        break;
      case Role::ffn_in:
      case Role::expert_in:
      case Role::shared_in:
        hold_inner(held, role);
        break;
      case Role::attention_out:
      case Role::ffn_out:
      case Role::expert_out:
      case Role::shared_out:
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
    const std::int64_t own = size / ranks_;
    return {begin + rank_ * own, begin + (rank_ + 1) * own};
  }

  void hold_vocabulary(HeldTensor& held) const {
    const std::int64_t own = local_vocab(model_, layout_);
    const std::int64_t begin = std::min(model_.vocab, rank_ * own), end = std::min(model_.vocab, begin + own);
    held.rows = {{begin, end}};
    held.padding = own - (end - begin);
  }

  // Gates, then values.
  void hold_inner(HeldTensor& held, Role role) const {
    const std::int64_t size = role == Role::ffn_in      ? model_.ffn
                              : role == Role::expert_in ? model_.experts->ffn
                                                        : model_.experts->shared_ffn;
    for (std::int64_t begin = 0; begin < held.whole.shape.front(); begin += size) {
      held.rows.push_back(share(size, begin));
    }
  }

  // Where there are more ranks than key/value heads, these are a parameter of their own, of which ranks that follow
  // each other hold the same head.
  void hold_heads(HeldTensor& held, Role role) const {
    const std::int64_t queries = model_.heads * model_.head_dim, keys = model_.kv_heads * model_.head_dim;
    if (ranks_ <= model_.kv_heads) {
      held.rows = {share(queries, 0), share(keys, queries), share(keys, queries + keys)};
    } else if (role == Role::qkv) {
      held.rows = {share(queries, 0)};
    } else {
      const std::int64_t copies = ranks_ / model_.kv_heads, begin = queries + rank_ / copies * model_.head_dim;
      held.rows = {{begin, begin + model_.head_dim}, {begin + keys, begin + keys + model_.head_dim}};
      held.copy = rank_ % copies != 0;
    }
  }

  const Transformer& model_;
  const Layout& layout_;
  std::int64_t ranks_, rank_;
};

bool is_of_experts(Role role) {
  return role == Role::expert_in || role == Role::expert_out;
}

}  // namespace

std::int64_t HeldTensor::row_count() const {
  std::int64_t count = padding;
  for (const ElementRange& range : rows) count += range.size();
  return count;
}

std::vector<HeldTensor> held_tensors(const Transformer& model, const Layout& layout, std::int32_t layer, Role role,
                                     const TensorHolder& holder) {
  std::vector<ParameterTensor> all = parameter_tensors(model, layer, role);
  if (is_of_experts(role)) {
    const std::ptrdiff_t share = std::ssize(all) / layout.ep;
    all = {all.begin() + holder.ep * share, all.begin() + (holder.ep + 1) * share};
  }
  const Holding holding = is_of_experts(role) ? Holding(model, layout, layout.etp, holder.etp)
                                              : Holding(model, layout, layout.tp, holder.tp);
  std::vector<HeldTensor> tensors;
  std::int64_t offset = 0;
  for (const ParameterTensor& whole : all) {
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
