// How the values of a class are sharded, and the collectives that change it.
#include "graph/build/class_builder.hpp"
#include "graph/parameter_tensors.hpp"

namespace weft {

void ClassBuilder::split(Sharding& sharding, std::int32_t dim, Axis axis, Share share) const {
  if (layout_.extent(axis) > 1) sharding.add_split({dim, axis, share});
}

Sharding ClassBuilder::token_sharding() const {
  Sharding sharding;
  split(sharding, 0, Axis::cp, Share::mirrored);
  return sharding;
}

Sharding ClassBuilder::stream_sharding() const {
  Sharding sharding = token_sharding();
  if (layout_.sequence_parallel) split(sharding, 0, Axis::tp, Share::sequences);
  return sharding;
}

Sharding ClassBuilder::head_sharding() const {
  Sharding sharding = token_sharding();
  split(sharding, 1, Axis::tp);
  return sharding;
}

Sharding ClassBuilder::slot_sharding() const {
  Sharding sharding;
  if (layout_.experts_gather_tokens()) split(sharding, 0, Axis::etp);
  return sharding;
}

Sharding ClassBuilder::zero_sharding(GroupKind group, bool sharded) const {
  Sharding sharding;
  // A shard group is a part of axes, which a split cannot say.
  if (!sharded || group == GroupKind::shard) return sharding;
  if (group == GroupKind::edp) {
    split(sharding, 0, Axis::edp);
  } else {
    split(sharding, 0, Axis::dp);
    split(sharding, 0, Axis::cp);
  }
  return sharding;
}

ClassBuilder::Spread ClassBuilder::spread_of(Role role) {
  const auto [found, is_new] = spreads_.try_emplace(role);
  if (is_new) {
    const std::vector<ParameterTensor> tensors = parameter_tensors(model_, layer_, role, layout_.tp);
    for (const Split& split : tensors.front().splits) {
      if (layout_.extent(split.axis) == 1) continue;
      if (split.dim == 0) found->second.rows = split.axis;
      if (split.dim == 1) found->second.columns = split.axis;
    }
  }
  return found->second;
}

// A rank's rows of the weight make its columns of the output; a rank's columns make summands of the whole output.
Sharding ClassBuilder::output_sharding(Role role, ValueId x) {
  Sharding sharding = of_rows(graph_.value(x).sharding);
  const Spread spread = spread_of(role);
  if (spread.rows) sharding.add_split({1, *spread.rows});
  if (spread.columns) sharding.add_partial(*spread.columns);
  return sharding;
}

ValueId ClassBuilder::reshard(Role role, Phase phase, ValueId in, Axis axis, std::optional<Share> rows,
                              std::string name) {
  if (layout_.extent(axis) == 1) return in;
  const Sharding& now = graph_.value(in).sharding;
  const GroupKind group = group_of(axis);
  if (now.is_partial(axis)) {
    const Collective kind = rows ? Collective::reduce_scatter : Collective::all_reduce;
    return collective(role, phase, kind, group, in, std::move(name), rows.value_or(Share::blocks));
  }
  if (now.rows_over(axis) == rows) return in;
  WEFT_CHECK(!rows);  // nobody cuts what is whole
  return collective(role, phase, Collective::all_gather, group, in, std::move(name));
}

ValueId ClassBuilder::whole_over_tp(Role role, Phase phase, ValueId in, std::string name) {
  return reshard(role, phase, in, Axis::tp, std::nullopt, std::move(name));
}

ValueId ClassBuilder::to_stream(Role role, Phase phase, ValueId in, std::string name) {
  return reshard(role, phase, in, Axis::tp, stream_sharding().rows_over(Axis::tp), std::move(name));
}

}  // namespace weft
