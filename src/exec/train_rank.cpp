#include "exec/train_rank.hpp"

#include "base/error.hpp"
#include "exec/checkpoint/load_curvature.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/host_cost_exchange.hpp"
#include "exec/rank_exchange.hpp"
#include "kernels/experts.hpp"
#include "plan/late.hpp"

namespace weft {
namespace {

void keep_weights(const RankView& view, const ParameterStates& parameters, TensorCollector& tensors) {
  for (const ParameterState& p : parameters.all()) {
    tensors.add(p, parameters.own(p), view.memory().read(parameters.own_master(p)));
  }
}

MeasuredRun gather_run(const TrainJob& job, Communicator& communicator, const PlanRun& run) {
  constexpr std::int64_t kNumbers = 3;  // of a span
  const Plan& plan = job.whole.plan();
  const RankClasses classes =
      find_rank_classes(Cluster(plan.cluster), plan.layout, model_groups(plan.model, plan.layout));
  std::vector<std::int64_t> counts, own;
  for (std::int64_t rank = 0; rank < communicator.size(); ++rank) {
    const ClassId rank_class{classes.class_of[rank]};
    counts.push_back(kNumbers * run.measured_steps() *
                     static_cast<std::int64_t>(job.whole.unfolded().instances_of(rank_class).size()));
  }
  for (const RankSpan& span : run.spans()) own.insert(own.end(), {span.ready, span.start, span.end});
  const std::vector<std::int64_t> offsets =
      job.one_clock ? std::vector<std::int64_t>(counts.size(), 0) : clock_offsets(communicator);
  const std::int64_t steps = run.measured_steps(), before = run.first_measured_step() - job.first_step;
  const std::int64_t warm_up = std::max<std::int64_t>(job.warm_up - before, before > 0 ? 1 : 0);
  MeasuredRun measured{steps, std::min(warm_up, steps - 1), {}, before};
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

std::unique_ptr<CheckpointSaver> make_saver(const TrainJob& job, const RankView& view,
                                            const ParameterStates& parameters, const Communicator& communicator) {
  if (job.checkpoint == nullptr) return nullptr;
  const std::size_t items = saved_items(parameters);
  ShardWriter shard(view.memory(), owned_pieces(parameters, kinds_of(job.settings)), items, communicator.rank(),
                    job.checkpoint->run_id);
  auto saver = std::make_unique<CheckpointSaver>(*job.checkpoint, std::move(shard), static_cast<std::int64_t>(items),
                                                 communicator);
  saver->set_last_step(job.settings.steps - 1);
  return saver;
}

// What ranks tell each other at the end of a step and read at the end of the next: losses, what came of their saves,
// whether they shall stop. All of them read the same at the same step.
class StepEnds {
 public:
  StepEnds(const TrainJob& job, Communicator& communicator, PlanRun& run, CheckpointSaver* saver, const OnLoss& on_loss,
           TrainResult& result)
      : job_(job),
        communicator_(communicator),
        run_(run),
        saver_(saver),
        on_loss_(on_loss),
        result_(result),
        sum_(communicator),
        tokens_(static_cast<double>(job.whole.plan().layout.global_batch * job.whole.plan().layout.seq)),
        last_(job.settings.steps - 1) {}

  void ended(std::int64_t step, double loss_sum) {
    step_ = step;
    if (sum_.is_under_way()) take();
    show_losses(step);
    if (saver_ != nullptr) saver_->step_ended(step);
    start(loss_sum, true);
    if (saver_ != nullptr && saver_->is_due(step + 1) && saver_->is_open_before(step)) wait_for_save_before(step);
  }

  // Between two stretches of steps: nothing of this stays under way.
  void pause() {
    if (sum_.is_under_way()) take();
    show_losses(step_ + 1);
  }

  // The last step that shall run, as far as is known.
  std::int64_t last() const { return last_; }

  // When the last step is over: all that is still under way.
  void end() {
    pause();
    if (saver_ == nullptr) return;
    while (saver_->is_open()) exchange();
    result_.saves = saver_->summary();
  }

 private:
  void start(double loss_sum, bool of_a_step) {
    of_a_step_ = of_a_step;
    sum_.start(loss_sum, saver_ != nullptr ? saver_->own_word() : SharedSum::Counts{});
  }

  void take() {
    const double sum = sum_.take();
    if (of_a_step_) result_.losses.push_back(sum / tokens_);
    if (of_a_step_) require_convergence();
    if (saver_ == nullptr) return;
    try {
      saver_->decide(sum_.counts());
    } catch (const RunFailed& failure) {
      communicator_.fail(failure.what());
      throw;
    }
    if (!CheckpointSaver::says_stop(sum_.counts()) || step_ + 1 >= last_) return;
    last_ = step_ + 1;
    result_.stopped = true;
    saver_->set_last_step(last_);
    if (run_.end() > last_ + 1) run_.end_after(last_);
  }

  // Compressed gradients may lead away from where training would go. All ranks see it at the same step.
  void require_convergence() {
    const GradientCompression& compress = job_.whole.plan().layout.compress;
    const std::vector<double>& losses = result_.losses;
    if (!compress.is_on() || !has_diverged(losses)) return;
    const std::string words = fmt::format(
        "step {}: the loss, {:.4g}, has been above {} times that of the first step, {:.4g}, for {} steps: training "
        "with "
        "gradients as {} diverges; give --compress a finer format, or a smaller --lr",
        job_.first_step + std::ssize(losses), losses.back(), kGrowthOfDivergence, losses.front(), kStepsOfDivergence,
        name_of(compress));
    communicator_.fail(words);
    throw RunFailed(words);
  }

  void exchange() {
    saver_->wait_a_moment();
    start(0, false);
    take();
  }

  // The copies would be overwritten otherwise.
  void wait_for_save_before(std::int64_t step) {
    take();
    if (saver_->is_open_before(step)) saver_->count_wait();
    while (saver_->is_open_before(step)) exchange();
  }

  // A step's time is known when the next one has begun.
  void show_losses(std::int64_t end) {
    for (; on_loss_ && shown_ < std::ssize(result_.losses) && job_.first_step + shown_ < end; ++shown_) {
      const std::int64_t step = job_.first_step + shown_;
      on_loss_(step, result_.losses[shown_], run_.glance(step));
    }
  }

  const TrainJob& job_;
  Communicator& communicator_;
  PlanRun& run_;
  CheckpointSaver* saver_;
  const OnLoss& on_loss_;
  TrainResult& result_;
  SharedSum sum_;
  double tokens_;
  std::int64_t last_, step_ = 0, shown_ = 0;
  bool of_a_step_ = false;  // the sum under way holds a loss
};

// Runs the steps in stretches with validation between them.
class Stretches {
 public:
  Stretches(const TrainJob& job, Communicator& communicator, PlanRun& run, RankTraining& training,
            const OnValidation& on_validation, TrainResult& result)
      : job_(job),
        run_(run),
        training_(training),
        on_validation_(on_validation),
        result_(result),
        sum_(communicator),
        ends_behind_(has_late(job.whole.plan()) || job.whole.plan().layout.kfac_interval > 0) {}

  void run(StepEnds& ends) {
    const auto on_step = [&](std::int64_t step) { ends.ended(step, training_.loss_sums[step]); };
    std::int64_t at = job_.first_step;
    if (at > 0 && is_due(at)) validate(at);  // who was stopped there left it to us
    while (at <= ends.last()) {
      run_.run(at, std::min(ends.last() + 1, next_due(at)), on_step);
      at = run_.end();
      const bool over = at > ends.last();
      if (over && job_.validation == nullptr) continue;
      ends.pause();
      if (over ? !result_.stopped : is_due(at)) validate(at);
    }
  }

 private:
  bool is_due(std::int64_t steps) const { return job_.validation != nullptr && steps % job_.validation->every == 0; }

  // What late operations and inversions leave of a step must be done before the step is saved, and before another step
  // that is saved too begins: so a stretch ends there.
  std::int64_t next_due(std::int64_t after) const {
    const auto next = [&](std::int64_t every) { return (after / every + 1) * every; };
    std::int64_t due = job_.settings.steps;
    if (job_.validation != nullptr) due = next(job_.validation->every);
    const bool saves = job_.checkpoint != nullptr && job_.checkpoint->every > 0;
    return saves && ends_behind_ ? std::min(due, next(job_.checkpoint->every)) : due;
  }

  void validate(std::int64_t steps) {
    const Layout& layout = job_.whole.plan().layout;
    training_.validation_loss_sum = 0;
    run_.validate(job_.validation->batches);
    sum_.start(training_.validation_loss_sum);
    const auto tokens = static_cast<double>(job_.validation->batches * layout.global_batch * layout.seq);
    result_.validation.push_back({steps, sum_.take() / tokens});
    if (on_validation_) on_validation_(result_.validation.back());
  }

  const TrainJob& job_;
  PlanRun& run_;
  RankTraining& training_;
  const OnValidation& on_validation_;
  TrainResult& result_;
  SharedSum sum_;
  const bool ends_behind_;  // some work of a step may run while the next one computes
};

std::deque<bool> resume_curvature(const TrainJob& job, const RankView& view, const ParameterStates& parameters,
                                  const Processor& processor) {
  if (processor.device != nullptr) processor.device->use(processor.device->make_stream(StreamPriority::usual));
  return load_curvature(*job.resume, view, parameters, job.settings.kfac, processor.kernels);
}

void require_trainable_experts(const Transformer& model, const Layout& layout) {
  if (model.experts->capacity_factor == 0) {
    fail("model {}: its plan has no slots for experts (--capacity-factor 0); plans made for local clusters have them",
         model.name);
  }
  if (model.experts->shared_gate) fail("model {}: weft run has no gate on shared experts yet", model.name);
  if (model.experts->gate_bias) fail("model {}: weft run has no correction of the router's scores yet", model.name);
  if (model.experts->router_group_topk < model.experts->router_groups) {
    fail(
        "--router-group-topk {} of --router-groups {}: the gate of weft run chooses among all experts; groups of them "
        "are planned for only",
        model.experts->router_group_topk, model.experts->router_groups);
  }
  if (const std::int64_t slots = routed_slots(model, layout).slots(); slots > kMaxSlots) {
    fail("--capacity-factor {:g}: makes {} slots for the tokens of a rank; weft run has {}",
         model.experts->capacity_factor, slots, kMaxSlots);
  }
  if (layout.tp == 1 || layout.sequence_parallel) return;
  // Experts sum what tensor-parallel ranks make of the same tokens.
  for (std::int32_t rank = 0; rank < layout.devices(); ++rank) {
    const auto members = [&](GroupKind kind) {
      return group_members(layout, model_groups(model, layout), kind, {rank});
    };
    if (members(GroupKind::tp) == members(GroupKind::etp)) continue;
    fail("--mesh-order: weft run needs the tensor-parallel ranks of experts to be those of the other layers");
  }
}

}  // namespace

void require_trainable(const Transformer& model, const Layout& layout, Runtime runtime) {
  const bool on_gpus = runtime == Runtime::cuda;
  const auto is_trained_in = [&](ElementType type) {
    return type == ElementType::fp32 || (on_gpus && type == ElementType::bf16);
  };
  const char* const allowed = on_gpus ? "fp32 or bf16" : "fp32";
  if (!is_trained_in(layout.precision))
    fail("--precision {}: weft run trains in {}; give --precision fp32", name_of(layout.precision), allowed);
  if (!is_trained_in(layout.grad_dtype))
    fail("--grad-dtype {}: weft run reduces {}; give --grad-dtype fp32", name_of(layout.grad_dtype), allowed);
  if (on_gpus && layout.expert_exchange == ExpertExchange::uneven) {
    fail(
        "--expert-exchange uneven: only the GPU knows how many rows go to which expert, and a host that asked would "
        "wait "
        "in every layer; give padded, which runs whatever the loads are");
  }
  if (model.experts) require_trainable_experts(model, layout);
}

TrainResult train_rank(const TrainJob& job, Communicator& communicator, const Processor& processor,
                       const OnLoss& on_loss, const OnValidation& on_validation) {
  std::optional<Stay> place(std::in_place, communicator.whereabouts(),
                            fmt::format("preparation for step {}", job.first_step + 1));
  const Rank rank = make_id<Rank>(communicator.rank());
  const RankView view(job.whole, rank, processor.device);
  const ParameterStates parameters(view);
  const Layout& layout = view.plan().layout;
  const BatchShape shape{layout.global_batch, layout.micro_batch, layout.seq, layout.dp, view.plan().model.vocab};
  const Batches batches(job.corpus, shape, job.settings.seed);
  std::optional<Batches> validation_batches;
  if (job.validation != nullptr) validation_batches.emplace(job.validation->corpus, shape, job.settings.seed);
  RankTraining training;
  if (job.keep != nullptr) {
    training.on_first_gradient = [&](const ParameterState& p, const Vector& gradient) {
      job.keep->first_gradients.add(p, parameters.own(p), view.memory().read(gradient));
    };
  }
  const std::unique_ptr<CheckpointSaver> saver = make_saver(job, view, parameters, communicator);
  if (saver) {
    training.on_updated = [&](std::int64_t step, const ParameterState& p) {
      saver->updated(step, static_cast<std::size_t>(&p - parameters.all().data()));
    };
    training.curvature.on_averaged = [&](std::int64_t step, std::size_t factor) {
      saver->updated(step, parameters.all().size() + factor);
    };
  }
  training.curvature.first_step = job.first_step;
  const ComputeBinder compute(view, parameters, job.settings, batches, training,
                              validation_batches ? &*validation_batches : nullptr);
  const TransferBinder transfers(view, parameters);
  const auto is_saved = [&](std::int64_t step) { return saver != nullptr && saver->is_due(step); };
  const std::unique_ptr<PlanRun> own_run =
      make_plan_run(view, communicator, processor, compute, transfers, {is_saved, job.graphs});
  PlanRun& run = *own_run;
  run.rehearse(job.validation != nullptr);
  if (job.resume != nullptr) {
    parameters.set_initial_bases(job.settings.seed);
    load_state(*job.resume, view, parameters, kinds_of(job.settings));
    if (!parameters.factors().empty()) training.curvature.known = resume_curvature(job, view, parameters, processor);
  } else {
    parameters.set_initial_weights(job.settings.seed, job.is_trial ? kFewDistinct : kAllDistinct);
  }
  if (job.keep != nullptr) keep_weights(view, parameters, job.keep->initial);

  TrainResult result;
  StepEnds step_ends(job, communicator, run, saver.get(), on_loss, result);
  Stretches stretches(job, communicator, run, training, on_validation, result);
  meet(communicator);
  stretches.run(step_ends);
  place.reset();
  place.emplace(communicator.whereabouts(), fmt::format("what follows step {}", run.end()));
  step_ends.end();
  result.compression_errors = training.compression_errors.relative(job.first_step, std::ssize(result.losses));
  if (job.keep != nullptr) keep_weights(view, parameters, job.keep->last);
  if (const auto own = run.host_report()) result.host = with_slowest_host(communicator, *own);
  result.run = gather_run(job, communicator, run);
  meet(communicator);  // nobody's memory goes while others may still read it
  return result;
}

}  // namespace weft
