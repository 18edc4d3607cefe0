#include "exec/parameter_state.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "compress/compressor.hpp"
#include "exec/initial_weights.hpp"
#include "graph/factor_sizes.hpp"
#include "graph/pipeline_run.hpp"
#include "plan/memory/lifetimes.hpp"

namespace weft {
namespace {

// Returns the value that once-a-step reductions work on: it goes from what the update reads back to what backward
// wrote.
ValueId before_reductions(const StepGraph& graph, const std::vector<std::vector<OpId>>& writers, ValueId value) {
  for (;;) {
    const Operation& writer = graph.op(writers[value.index()].front());
    if (writer.per_micro_batch) return value;
    if (writer.is_transfer()) {
      value = read_of(writer, Operand::payload);
    } else {
      value = read_of(writer, writer.key.kind == OpKind::decode ? Operand::encoded : Operand::gradient);
    }
  }
}

// Whole weights, of which the update writes `updated`: the same value, or what its shards are gathered into.
ValueId gathered_from(const StepGraph& graph, const Operation& update, ValueId updated) {
  for (const Operation& op : graph.operations) {
    if (op.role == Role::param_decode && op.phase == Phase::optimizer && op.rank_class == update.rank_class &&
        op.layer == update.layer && op.subject == update.subject) {
      return write_of(op, Operand::weight);
    }
  }
  if (const ValueId weight = find_read(update, Operand::weight); weight.valid()) return weight;
  for (const Operation& op : graph.operations) {
    if (op.role != Role::param_gather || op.rank_class != update.rank_class || op.phase != Phase::optimizer) continue;
    if (read_of(op, Operand::payload) == updated) return write_of(op, Operand::payload);
  }
  return updated;
}

void find_codes_and_errors(const StepGraph& graph, ClassId rank_class, ParameterState& p) {
  for (const Operation& op : graph.operations) {
    if (op.rank_class != rank_class || op.layer != p.layer || op.subject != p.role || op.per_micro_batch) continue;
    if (op.role == Role::param_encode) p.encoded = write_of(op, Operand::encoded);
    if (const ValueId basis = find_read(op, Operand::basis); basis.valid()) p.basis = basis;
    if (op.role != Role::grad_encode) continue;
    (encodes_sum(op) ? p.sum_error : p.gradient_error) = read_of(op, Operand::compression_error);
  }
}

}  // namespace

bool encodes_sum(const Operation& op) {
  return op.role == Role::grad_encode && op.key.kind == OpKind::encode && op.part == 1;
}

Role parameter_role(const Transformer& model, const Layout& layout, Role role) {
  return role == Role::head && model.tied_embeddings && layout.ends_meet() ? Role::embedding : role;
}

std::string ParameterState::name() const {
  return layer >= 0 ? fmt::format("layer {} {}", layer, name_of(role)) : std::string(name_of(role));
}

ParameterStates::ParameterStates(const RankView& view) : view_(view), storage_(find_storage(view.plan())) {
  require_trainable_tensors(view.plan().model);
  const StepGraph& graph = view.original();
  const std::vector<std::vector<OpId>> writers = writers_of(graph);
  for (const Operation& op : graph.operations) {
    if (op.role != Role::update || op.rank_class != view.rank_class()) continue;
    ParameterState p;
    p.layer = op.layer;
    p.role = op.subject;
    p.group = sharding_group(view.plan().layout, op.subject);
    p.is_copy = shape_of(view.plan().layout).is_copy(graph.classes[op.rank_class].stage, op.chunk);
    p.tensors = held_tensors(view.plan().model, view.plan().layout, op.layer, op.subject, view.holder());
    for (const HeldTensor& tensor : p.tensors) p.elements += tensor.elements();
    p.reduced = read_of(op, Operand::gradient);
    p.state = read_of(op, Operand::optimizer_state);
    p.weight = gathered_from(graph, op, write_of(op, Operand::weight));
    p.gradient = before_reductions(graph, writers, p.reduced);
    find_codes_and_errors(graph, view.rank_class(), p);
    if (p.encoded.valid() && view.plan().layout.zero < 3) p.unrounded = write_of(op, Operand::weight);
    for (const auto& [part, whole] : {std::pair{write_of(op, Operand::weight), p.weight}, {p.reduced, p.gradient}}) {
      if (part == p.unrounded || address(view.plan(), part, kOncePerStep) == address(view.plan(), whole, kOncePerStep))
        continue;
      fail("the plan places '{}' apart from '{}'; weft run works in place", graph.value(part).name,
           graph.value(whole).name);
    }
    by_role_[{p.layer, p.role}] = parameters_.size();
    parameters_.push_back(std::move(p));
  }
  factors_ = find_factors(view, parameters_);
}

std::size_t ParameterStates::factor_of(const Operation& operation) const {
  const std::size_t parameter = by_role_.at({operation.layer, operation.subject});
  const auto found = std::ranges::find_if(
      factors_, [&](const CurvatureFactor& f) { return f.parameter == parameter && f.part == operation.part; });
  WEFT_CHECK(found != factors_.end());
  return static_cast<std::size_t>(found - factors_.begin());
}

const ParameterState& ParameterStates::of(std::int32_t layer, Role role) const {
  const Role own = parameter_role(view_.plan().model, view_.plan().layout, role);
  const auto found = by_role_.find({layer, own});
  WEFT_CHECK(found != by_role_.end());
  return parameters_[found->second];
}

bool ParameterStates::sharded(const ParameterState& p) const {
  return view_.plan().layout.zero >= 1 && view_.group_size(p.group) > 1;
}

ElementRange ParameterStates::own(const ParameterState& p) const {
  return sharded(p) ? view_.own_shard(p.elements, p.group) : ElementRange{0, p.elements};
}

std::optional<GroupKind> ParameterStates::same_elements(const ParameterState& p) const {
  if (p.group == GroupKind::shard) return GroupKind::replica;
  return sharded(p) ? std::nullopt : std::optional(p.group);
}

ElementRange ParameterStates::saved(const ParameterState& p) const {
  const ElementRange held = own(p);
  if (p.is_copy) return {held.begin, held.begin};
  const std::optional<GroupKind> group = same_elements(p);
  if (!group) return held;
  const ElementRange share = view_.own_shard(held.size(), *group);
  return {held.begin + share.begin, held.begin + share.end};
}

bool ParameterStates::answers_for(const ParameterState& p, GroupKind among) const {
  if (p.is_copy) return false;
  const std::optional<GroupKind> group = same_elements(p);
  if (!group) return true;
  const std::vector<std::int64_t>&same = view_.members(*group), &asked = view_.members(among);
  const auto is_asked = [&](std::int64_t rank) { return std::find(asked.begin(), asked.end(), rank) != asked.end(); };
  return *std::find_if(same.begin(), same.end(), is_asked) == view_.rank().value;
}

// A shard that lies in the memory of the whole (plan/memory/lifetimes.hpp) counts as the whole.
bool ParameterStates::holds_whole(const ParameterState& p, ValueId value) const {
  if (!sharded(p)) return true;
  for (const ValueId kept : {p.weight, p.gradient}) {
    if (storage_[value.index()] == storage_[kept.index()]) value = kept;
  }
  return view_.plan().graph.value(value).elements() >= p.elements;
}

Vector ParameterStates::shard_in(const ParameterState& p, ValueId value, MicroBatch micro_batch, std::int64_t position,
                                 GroupKind group) const {
  const ElementRange range = view_.shard(p.elements, group, position);
  const ElementPointer base = view_.data(value, micro_batch);
  return {holds_whole(p, value) ? base + range.begin : base, range.size()};
}

Vector ParameterStates::own_weights(const ParameterState& p) const {
  if (!sharded(p)) return {view_.data(p.weight), p.elements};
  return shard_in(p, p.unrounded.valid() ? p.unrounded : p.weight, kOncePerStep, view_.position_in(p.group));
}

Vector ParameterStates::held_weights(const ParameterState& p) const {
  return {view_.data(p.weight), holds_whole(p, p.weight) ? p.elements : own(p).size()};
}

Vector ParameterStates::own_gradient(const ParameterState& p) const {
  if (!sharded(p)) return {view_.data(p.gradient), p.elements};
  return shard_in(p, p.gradient, kOncePerStep, view_.position_in(p.group));
}

Vector ParameterStates::own_moment(const ParameterState& p, int which) const {
  const std::int64_t room = view_.plan().graph.value(p.state).elements();
  return {view_.data(p.state) + which * room, own(p).size()};
}

Vector ParameterStates::own_master(const ParameterState& p) const {
  constexpr int kMaster = 2;  // behind the two moments
  return view_.data(p.weight).type == ElementType::fp32 ? own_weights(p) : own_moment(p, kMaster);
}

// Shards j, N + j, 2 N + j, ... belong to member j of every node with N members.
std::vector<ElementRange> ParameterStates::node_shards(const ParameterState& p) const {
  const std::int64_t inner = view_.inner_size(p.group), n = view_.group_size(p.group);
  std::vector<ElementRange> shards;
  for (std::int64_t position = view_.position_in(p.group) % inner; position < n; position += inner) {
    shards.push_back(view_.shard(p.elements, p.group, position));
  }
  return shards;
}

std::uint64_t ParameterStates::seed_of_basis(const ParameterState& p, std::uint64_t seed) const {
  const auto parameter = static_cast<std::uint64_t>(p.layer + 1) * kParameterRoles + static_cast<std::uint64_t>(p.role);
  return mix_bits(mix_bits(seed) ^ mix_bits(parameter));
}

std::vector<HeldBasis> ParameterStates::bases_of(const ParameterState& p) const {
  std::vector<HeldBasis> bases;
  if (!p.basis.valid()) return bases;
  for (const LowRankMatrix& matrix : factor_sizes(p.tensors, view_.plan().layout.compress.rank).matrices) {
    const auto tensor = std::ranges::find(p.tensors, matrix.offset, &HeldTensor::offset);
    bases.push_back({&*tensor, {view_.data(p.basis) + matrix.right, matrix.rank * matrix.columns}});
  }
  return bases;
}

void ParameterStates::set_initial_bases(std::uint64_t seed) const {
  for (const ParameterState& p : parameters_) {
    if (!p.basis.valid()) continue;
    const FactorSizes sizes = factor_sizes(p.tensors, view_.plan().layout.compress.rank);
    std::vector<float> basis(static_cast<std::size_t>(sizes.right), 0.0F);
    std::uint64_t number = seed_of_basis(p, seed);
    for (const LowRankMatrix& matrix : sizes.matrices) {
      make_orthonormal({basis.data() + matrix.right, static_cast<std::size_t>(matrix.rank * matrix.columns)},
                       matrix.rank, number++);
    }
    view_.memory().write(basis, {view_.data(p.basis), sizes.right});
  }
}

std::vector<HeldErrors> ParameterStates::errors_of(const ParameterState& p) const {
  std::vector<HeldErrors> all;
  if (p.gradient_error.valid() && view_.original().value(p.gradient_error).elements() >= p.elements) {
    all.push_back({{0, p.elements}, {view_.data(p.gradient_error), p.elements}});
  } else if (p.gradient_error.valid()) {
    const std::vector<ElementRange> shards = node_shards(p);
    const std::int64_t room = view_.original().value(p.gradient_error).elements() / std::ssize(shards);
    ElementPointer at = view_.data(p.gradient_error);
    for (const ElementRange& shard : shards) {
      all.push_back({shard, {at, shard.size()}});
      at = at + room;
    }
  }
  if (p.sum_error.valid()) {
    const ElementRange shard = view_.own_shard(p.elements, p.group);
    all.push_back({shard, {view_.data(p.sum_error), shard.size()}, true});
  }
  return all;
}

void ParameterStates::set_weights(const ParameterState& p,
                                  const std::function<std::span<const float>(ElementRange)>& elements_of) const {
  const Vector weights = held_weights(p);
  const std::int64_t begin = holds_whole(p, p.weight) ? 0 : own(p).begin;
  view_.memory().write(elements_of({begin, begin + weights.size}), weights);
  if (weights.data.type != ElementType::fp32) view_.memory().write(elements_of(own(p)), own_master(p));
  if (p.unrounded.valid()) {
    if (weights.data.type == ElementType::fp32) view_.memory().write(elements_of(own(p)), own_weights(p));
    round_weights(p);
  } else if (p.encoded.valid()) {
    encode_weights(p);
  }
}

void ParameterStates::round_weights(const ParameterState& p) const {
  const Compressor& compressor = compressor_of(view_.plan().layout.compress_weights);
  const Vector whole = held_weights(p);
  std::vector<float> weights = view_.memory().read(whole);
  for (std::int64_t position = 0; position < view_.group_size(p.group); ++position) {
    const ElementRange range = view_.shard(p.elements, p.group, position);
    const std::span<float> shard = std::span(weights).subspan(range.begin, range.size());
    std::vector<std::byte> codes(
        static_cast<std::size_t>(encoded_bytes(view_.plan().layout.compress_weights, range.size()).value));
    encode(compressor, shard, {}, codes);
    decode(compressor, codes, shard);
  }
  view_.memory().write(weights, whole);
}

void ParameterStates::encode_weights(const ParameterState& p) const {
  const CompressionFormat format = view_.plan().layout.compress_weights;
  const std::vector<float> weights = view_.memory().read(own_weights(p));
  std::vector<std::byte> codes(static_cast<std::size_t>(encoded_bytes(format, std::ssize(weights)).value));
  encode(compressor_of(format), weights, {}, codes);
  view_.memory().write_bytes(codes, view_.data(p.encoded).address);
}

void ParameterStates::set_initial_weights(std::uint64_t seed, std::size_t distinct) const {
  set_initial_bases(seed);
  std::vector<float> numbers;
  for (const ParameterState& p : parameters_) {
    set_weights(p, [&](ElementRange range) {
      numbers.resize(range.size());
      initial_weights(p.tensors, seed, range.begin, numbers, distinct);
      return std::span<const float>(numbers);
    });
  }
}

}  // namespace weft
