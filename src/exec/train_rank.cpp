#include "exec/train_rank.hpp"

#include "base/error.hpp"
#include "exec/rank_exchange.hpp"

namespace weft {
namespace {

void set_initial_weights(const RankView& view, const ParameterStates& parameters, std::uint64_t seed) {
  for (const ParameterState& p : parameters.all()) {
    // ZeRO-3 keeps a shard; everybody else begins with the whole.
    const bool whole = parameters.holds_whole(p, p.weight);
    const ElementRange range = whole ? ElementRange{0, p.elements} : parameters.own(p);
    initial_weights(p.tensors, seed, range.begin,
                    std::span(view.data(p.weight, -1), static_cast<std::size_t>(range.size())));
  }
}

void keep_weights(const ParameterStates& parameters, TensorCollector& tensors) {
  for (const ParameterState& p : parameters.all()) {
    tensors.add(p, parameters.own(p), parameters.own_weights(p));
  }
}

std::int64_t instances_of(const TrainJob& job, ClassId rank_class) {
  return std::count_if(job.unfolded.instances().begin(), job.unfolded.instances().end(),
                       [&](const Instance& i) { return i.rank_class == rank_class.value; });
}

MeasuredRun gather_run(const TrainJob& job, Communicator& communicator, const RankRun& run) {
  constexpr std::int64_t kNumbers = 3;  // of a span
  const RankClasses classes =
      find_rank_classes(Cluster(job.plan.cluster), job.plan.layout, job.plan.model.experts.has_value());
  std::vector<std::int64_t> counts, own;
  for (std::int64_t rank = 0; rank < communicator.size(); ++rank) {
    const ClassId rank_class{classes.class_of[static_cast<std::size_t>(rank)]};
    counts.push_back(kNumbers * job.settings.steps * instances_of(job, rank_class));
  }
  for (const RankSpan& span : run.spans()) own.insert(own.end(), {span.ready, span.start, span.end});
  const std::vector<std::int64_t> offsets =
      job.one_clock ? std::vector<std::int64_t>(counts.size(), 0) : clock_offsets(communicator);
  MeasuredRun measured{job.settings.steps, job.warm_up, {}};
  const std::vector<std::vector<std::int64_t>> all = gather_numbers(communicator, own, counts);
  for (std::size_t r = 0; r < all.size(); ++r) {
    MeasuredRank rank{make_id<Rank>(r), {classes.class_of[r]}, {}};
    for (std::size_t i = 0; i < all[r].size(); i += kNumbers) {
      const auto at = [&](std::size_t k) { return all[r][i + k] + offsets[r]; };
      rank.spans.push_back({all[r][i] == 0 ? 0 : at(0), at(1), at(2)});
    }
    measured.ranks.push_back(std::move(rank));
  }
  return measured;
}

}  // namespace

void require_trainable(const Transformer& model, const Layout& layout) {
  if (model.kv_heads % layout.tp != 0) {
    fail("--tp {}: weft run does not copy key/value heads to several ranks; it must divide {}'s {}", layout.tp,
         model.name, model.kv_heads);
  }
  if (layout.precision != DType::fp32) fail("--precision {}: weft run trains in fp32", name_of(layout.precision));
  if (layout.grad_dtype != DType::fp32) fail("--grad-dtype {}: weft run reduces fp32", name_of(layout.grad_dtype));
  if (layout.dropout && model.positions == Positions::learned) {
    fail("model {}: weft run trains without dropout; give --no-dropout to weft plan", model.name);
  }
  if (model.experts) fail("model {}: weft run has no experts yet", model.name);
  if (model.latent) fail("model {}: weft run has no latent attention yet", model.name);
  if (model.qk_norm) fail("model {}: weft run has no norms on queries and keys yet", model.name);
}

TrainResult train_rank(const TrainJob& job, Communicator& communicator, const OnLoss& on_loss) {
  std::optional<Stay> place(std::in_place, communicator.whereabouts(), "preparation for step 1");
  const Rank rank = make_id<Rank>(static_cast<std::size_t>(communicator.rank()));
  const RankView view(job.plan, job.unfolded, job.original, rank);
  const ParameterStates parameters(view);
  const Layout& layout = job.plan.layout;
  const Batches batches(job.corpus,
                        {layout.global_batch, layout.micro_batch, layout.seq, layout.dp, job.plan.model.vocab},
                        job.settings.seed);
  RankTraining training;
  if (job.keep != nullptr) {
    training.on_first_gradient = [&](const ParameterState& p, const Vector& gradient) {
      job.keep->first_gradients.add(p, parameters.own(p), gradient);
    };
  }
  const ComputeBinder compute(view, parameters, job.settings, batches, training);
  const TransferBinder transfers(view, parameters);
  RankRun run(view, communicator, compute, transfers);
  set_initial_weights(view, parameters, job.settings.seed);
  if (job.keep != nullptr) keep_weights(parameters, job.keep->initial);

  TrainResult result;
  SharedSum shared_loss(communicator);
  const double tokens = static_cast<double>(layout.global_batch * layout.seq);
  const auto take_loss = [&] {
    result.losses.push_back(shared_loss.take() / tokens);
    const std::int64_t step = std::ssize(result.losses) - 1;
    if (on_loss) on_loss(step, result.losses.back(), run.glance(step));
  };
  meet(communicator);
  run.run(job.settings.steps, [&](std::int64_t step) {
    if (shared_loss.is_under_way()) take_loss();
    shared_loss.start(training.loss_sums[static_cast<std::size_t>(step)]);
  });
  place.reset();
  place.emplace(communicator.whereabouts(), fmt::format("what follows step {}", job.settings.steps));
  take_loss();
  if (job.keep != nullptr) keep_weights(parameters, job.keep->last);
  result.run = gather_run(job, communicator, run);
  meet(communicator);  // nobody's memory goes while others may still read it
  return result;
}

}  // namespace weft
