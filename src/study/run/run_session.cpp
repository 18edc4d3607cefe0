#include "study/run/run_session.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/links/bench_ranks.hpp"
#include "calibrate/links/stream_probe.hpp"
#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/run_id.hpp"
#include "exec/checkpoint/run_identity.hpp"
#include "exec/rank_exchange.hpp"
#include "exec/record.hpp"
#include "planner/partition/row_choice.hpp"
#include "planner/policy/policy.hpp"
#include "study/progress.hpp"
#include "study/run/agreed_plans.hpp"
#include "study/run/rank_processor.hpp"
#include "study/run/resume_point.hpp"

namespace weft {

struct RunSession::Prepared {
  WholePlan serial;
  std::vector<WholePlan> cuts;
};

namespace {

// What ranks on GPUs cost each other; most of what predictions miss lies here.
std::string interference_in_words(const Calibration& found) {
  std::string words = "measured beside compute:";
  for (const TransferBeside& each : found.beside) {
    const std::string blocks = each.thread_blocks > 0 ? std::to_string(each.thread_blocks) : "the library's number of";
    words += fmt::format(" a transfer with {} thread blocks ({:.2f} ms alone) takes {:.0f} % longer, compute {:.0f} %;",
                         blocks, each.alone * 1e3, 100 * each.transfer_slowdown, 100 * each.compute_slowdown);
  }
  return fmt::format(
      "{} taken: {}; each further transfer costs compute {:.0f} %, one that waits {:.0f} %; several at once move "
      "{:.2f} "
      "times the bytes of one",
      words, found.library.thread_blocks, 100 * found.further_slowdown, 100 * found.waiting_slowdown,
      found.library.at_once);
}

}  // namespace

RunSession::RunSession(RunOptions options, RanksAs ranks_as, RunListener& listener)
    : options_(std::move(options)), ranks_as_(ranks_as), listener_(listener) {
  if (options_.profile) profile_ = *options_.profile;
}

void RunSession::run_rank(Communicator& communicator, const std::string& way) {
  const Stay in_planning(communicator.whereabouts(), "planning");
  if (options_.checkpoint) find_start(communicator);
  if (finished()) return;
  prepare_rank(communicator);
  if (too_large() != nullptr) return;
  if (reports(communicator)) {
    study_.world = processes() ? "processes" : "threads";
    study_.ranks = communicator.size();
    study_.links = links_in_words(way);
  }
  for (const std::size_t i : to_run_) train(communicator, i);
  if (!reports(communicator)) return;
  const auto faster = [](const PolicyRun& a, const PolicyRun& b) { return a.measured.step_s < b.measured.step_s; };
  study_.best =
      static_cast<std::size_t>(std::min_element(study_.runs.begin(), study_.runs.end(), faster) - study_.runs.begin());
}

const PolicyStudy& RunSession::prepare_rank(Communicator& communicator) {
  if (!options_.links_given && processes() && !on_gpus()) measure_links(communicator);
  if (!options_.profile) measure_machine(communicator);
  try_steps(communicator);
  std::call_once(planned_, [&] { plan(communicator); });
  if (processes()) compare_plans(communicator);
  return best_prediction();
}

// Each process has made its plans by itself, from what all of them measured together.
void RunSession::compare_plans(Communicator& communicator) const {
  std::vector<const Plan*> plans;
  for (const std::size_t i : to_run_) plans.push_back(&study_.plan.policies[i].plan());
  require_agreement(agreed_plans(plans), [&](const std::string& mine) { return texts_of_all(communicator, mine); });
}

const PolicyStudy& RunSession::best_prediction() const {
  return study_.plan.policies[study_.plan.best];
}

const PolicyStudy* RunSession::too_large() const {
  if (!options_.memory_given) return nullptr;
  for (const std::size_t i : to_run_) {
    if (!study_.plan.policies[i].fits) return &study_.plan.policies[i];
  }
  return nullptr;
}

// Rank 0 takes the folder and finds the checkpoint that is whole, for all ranks. It tells them its step, the checksum
// of its manifest and the id of this run, or what is wrong.
void RunSession::find_start(Communicator& communicator) {
  const std::string said = text_of_rank_0(communicator, reports(communicator) ? start_in_words() : "");
  if (said.front() == '!') throw Error(said.substr(1));
  std::call_once(started_, [&] {
    const std::vector<std::string> words = split(said, ' ');
    first_step_ = parse_integer(words[0], "step");
    run_id_ = words[2];
    if (first_step_ == 0 || finished()) return;
    const std::filesystem::path folder = options_.checkpoint->folder / checkpoint_name(first_step_);
    CheckpointManifest manifest = read_manifest(folder);
    if (std::to_string(checksum_of(manifest)) != words[1]) {
      fail("--resume: {} is another checkpoint on rank {} than on rank 0: all ranks must see the same folder",
           folder.string(), communicator.rank());
    }
    resume_ = std::make_unique<CheckpointReader>(folder, std::move(manifest));
  });
}

void RunSession::take_folder() {
  const std::filesystem::path& folder = options_.checkpoint->folder;
  make_checkpoint_folder(folder);
  folder_lock_ = std::make_unique<FolderLock>(folder);
  if (folder_lock_->is_enforced()) return remove_partials(folder);
  listener_.remark(
      fmt::format("{}: this file system has no locks: make sure that no other run saves there", folder.string()));
}

std::string RunSession::start_in_words() {
  const CheckpointOptions& checkpoint = *options_.checkpoint;
  const auto start_at = [](std::int64_t step, const CheckpointManifest& manifest) {
    return fmt::format("{} {} {}", step, checksum_of(manifest), draw_run_id());
  };
  try {
    take_folder();
    if (!checkpoint.resume) return start_at(0, {});
    const ResumePoint point = find_resume_point(options_);
    for (const std::string& words : point.broken) listener_.remark(words);
    if (point.step == 0) {
      listener_.remark(
          fmt::format("{} has no checkpoint yet: training starts at the first step", checkpoint.folder.string()));
    } else if (point.step < options_.settings.steps) {
      const std::string place = (checkpoint.folder / checkpoint_name(point.step)).string();
      listener_.remark(fmt::format("goes on after step {} of {}", point.step, place));
      if (point.manifest.run_id.empty()) {
        listener_.remark(fmt::format(
            "{} is of version 1, without the id of a run: that its shards are of one run is not checked", place));
      }
      for (const std::string& words : identity_changes(point.manifest.run, checkpoint.identity))
        listener_.remark(words);
    }
    return start_at(point.step, point.manifest);
  } catch (const Error& error) {
    return fmt::format("!{}", error.what());
  }
}

CheckpointJob RunSession::checkpoint_job(const std::string& policy) const {
  const CheckpointOptions& checkpoint = *options_.checkpoint;
  CheckpointJob job{checkpoint.folder,
                    checkpoint.every,
                    checkpoint.keep,
                    checkpoint.stop_on_error,
                    with_policy(checkpoint.identity, policy),
                    checkpoint.stop_asked,
                    {}};
  job.say = [this](const std::string& words) { listener_.remark(words); };
  job.run_id = run_id_;
  if (folder_lock_) job.keep_folder = [this] { folder_lock_->keep(); };
  return job;
}

// Nobody should take an emulated network for a real one.
std::string RunSession::links_in_words(const std::string& way) const {
  if (is_paced()) return fmt::format("emulated: copies on one GPU, paced as {}", options_.inputs.cluster.name);
  if (on_gpus()) {
    if (study_.ranks == 1) return "none: one rank";
    return options_.links_given ? "NCCL, predicted as --cluster says" : "NCCL, measured before the run";
  }
  if (!processes()) return fmt::format("emulated: {}", options_.inputs.cluster.name);
  return fmt::format("real ({}), {}", way,
                     options_.links_given ? "predicted as --cluster says" : "measured before the run");
}

// Processes have real links. Rank 0 measures them and tells the others.
void RunSession::measure_links(Communicator& communicator) {
  if (communicator.size() < 2) return;
  const Stay here(communicator.whereabouts(), "the measurement of links");
  BenchRanks ranks(communicator, true, false);
  const MeasuredLink link = measure_link(communicator, ranks);
  const std::string said =
      text_of_rank_0(communicator, fmt::format("{:.0f} {} {}", link.goodput, link.latency.value, link.burst.value));
  const std::vector<std::string> numbers = split(said, ' ');
  options_.inputs.cluster.execution.links = LinkTiming::measured;
  auto& nic = options_.inputs.cluster.levels.front();
  nic.bandwidth = {static_cast<double>(parse_integer(numbers[0], "goodput"))};
  nic.latency = {parse_integer(numbers[1], "latency")};
  nic.burst = {parse_integer(numbers[2], "burst")};
}

// Returns the serial step with its layers cut into every number of parts that the policies to run may choose.
std::vector<WholePlan> RunSession::plans_in_parts(const PlanRequest& request, const SharedGraph& graph) const {
  std::vector<WholePlan> plans;
  const bool any = std::any_of(options_.policies.begin(), options_.policies.end(),
                               [](const std::string& policy) { return facts_of(policy).cuts_layers; });
  const bool experts = request.layout.ep > 1;
  if ((request.layout.tp == 1 && !experts) || !any) return plans;
  for (const std::int32_t parts : possible_rows(graph)) {
    if (parts == 1) continue;
    Overlap overlap = decide_overlap(request, graph, "serial");
    overlap.partition.forward_rows = overlap.partition.backward_rows = parts;
    overlap.beside.expert_parallel = experts;
    plans.push_back(make_whole_plan(request, graph, "serial", overlap));
    if (!experts) continue;
    overlap.partition.forward_rows = overlap.partition.backward_rows = 1;
    overlap.partition.layers = merge_cuts(expert_cuts(graph, parts, true), expert_cuts(graph, parts, false));
    plans.push_back(make_whole_plan(request, graph, "serial", overlap));
  }
  return plans;
}

// The collectives of a process stay for all that it runs: they take long to connect, and what was measured holds for
// the connections that are there.
RankProcessor RunSession::make_processor(Communicator& communicator) {
  if (!processes()) return {options_, communicator, paced_world_};
  RankProcessor own(options_, communicator, paced_world_, collectives_);
  collectives_ = own.collectives();
  return own;
}

void RunSession::measure_machine(Communicator& communicator) {
  const bool waits_in_streams = on_gpus() && !is_paced() && communicator.size() > 1;
  const Stay here(communicator.whereabouts(), [waits_in_streams]() -> RankPlace {
    return {"the measurement of this machine", "", waits_in_streams};
  });
  std::call_once(planned_for_calibration_, [&] {
    const Inputs& in = options_.inputs;
    const SharedGraph graph = build_step_graph(in.model, Cluster(in.cluster), in.layout);
    const PlanRequest request{in.model, in.cluster, in.layout, default_profile(), in.options};
    calibration_ = std::make_shared<const Prepared>(
        Prepared{make_whole_plan(request, graph, "serial"), plans_in_parts(request, graph)});
  });
  CalibrationJob job{calibration_->serial, {}, options_.corpus, options_.calibration_budget};
  for (const WholePlan& cut : calibration_->cuts) job.cuts.push_back(&cut);
  std::optional<TaskProgress> progress;
  if (reports(communicator)) {
    listener_.measuring(Nanos{options_.calibration_budget.count()});
    const auto tell = [this](auto... how_far) { listener_.progress(how_far...); };
    progress.emplace(tell, "calibrating", 100);
    job.on_progress = [&](double share) { progress->reach(share); };
  }
  const RankProcessor own = make_processor(communicator);
  const Calibration calibration = calibrate_rank(job, communicator, own.get());
  if (reports(communicator) && on_gpus() && communicator.size() > 1) {
    listener_.remark(interference_in_words(calibration));
  }
  std::call_once(profiled_, [&] {
    Profile profile = default_profile();
    const std::string& name = options_.inputs.cluster.device.name;
    DeviceProfile device = profile.device(name);
    apply(calibration, device);
    profile.devices[name] = device;
    profile.machine = facts_of(options_, communicator.size());
    profile.expert_load = calibration.expert_load;
    profile.library = calibration.library;
    options_.profile_name = "measured before the run";
    profile_ = profile;
  });
}

void RunSession::calibrate_only(Communicator& communicator) {
  if (!options_.links_given && processes() && !on_gpus()) measure_links(communicator);
  measure_machine(communicator);
  learn_from_steps(communicator);
}

// A profile may come from a run that had a library.
void RunSession::apply_native_wish(bool has_library) {
  LibraryProfile& library = profile_.library;
  if (!has_library || options_.native == NativeWish::never) library = {};
  library.always = options_.native == NativeWish::always;
  if (library.always && library.measured.empty() && options_.plans.empty()) {
    fail("--native always: profile {} has no times of the library's collectives; make one under mpirun",
         options_.profile_name);
  }
}

// What was measured of the library's collectives says what the links between GPUs are, unless the user says so. Of
// paced collectives it says what they take beside their links.
void RunSession::use_links_of_library() {
  if (is_paced()) return;
  if (options_.links_given) profile_.library = {};
  const std::optional<LibraryLink> link = link_of(profile_.library);
  if (!link) return;
  options_.inputs.cluster.execution.links = LinkTiming::measured;
  LevelSpec& nic = options_.inputs.cluster.levels.front();
  nic.bandwidth = link->bandwidth;
  nic.latency = link->latency;
}

// What plans are made from, as the user wishes it and as far as it is known now.
void RunSession::settle_profile(const Communicator& communicator) {
  if (on_gpus()) {
    use_links_of_library();
    if (options_.native == NativeWish::never) profile_.library.measured.clear();
  } else {
    apply_native_wish(communicator.has_library());
  }
}

void RunSession::plan(const Communicator& communicator) {
  settle_profile(communicator);
  study_.plan =
      options_.plans.empty() ? study_policies() : study_given_plans(options_.inputs, options_.plans, profile_);
  study_.tried = tried_steps();
  study_.profile = options_.profile_name;
  study_.threads = options_.threads;
  for (std::size_t i = 0; i < study_.plan.policies.size(); ++i) {
    if (!options_.only_best || i == study_.plan.best) to_run_.push_back(i);
    kept_.push_back(std::make_unique<KeptTensors>());
  }
}

void RunSession::train(Communicator& communicator, std::size_t policy) {
  const PolicyStudy& predicted = study_.plan.policies[policy];
  TrainJob job{*predicted.whole, options_.settings, options_.corpus, options_.warm_up, !processes(), nullptr};
  const bool first = reports(communicator);
  OnLoss on_loss;
  if (first) {
    listener_.begin(predicted.policy, options_.settings.steps);
    on_loss = [this](std::int64_t step, double loss, const StepGlance& glance) { listener_.step(step, loss, glance); };
  }
  OnValidation on_validation;
  if (first) on_validation = [this](const ValidationLoss& loss) { listener_.validated(loss.steps, loss.loss); };
  if (options_.validation) job.validation = &options_.validation->job;
  if (options_.record) job.keep = kept_[policy].get();
  job.graphs = options_.graphs;
  std::optional<CheckpointJob> checkpoint;
  if (options_.checkpoint) {
    checkpoint = checkpoint_job(predicted.policy);
    job.checkpoint = &*checkpoint;
    job.resume = resume_.get();
    job.first_step = first_step_;
  }
  const RankProcessor own = make_processor(communicator);
  TrainResult result = train_rank(job, communicator, own.get(), on_loss, on_validation);
  if (!first) return;
  if (options_.record) write(predicted, *kept_[policy], result);
  study_.runs.push_back(study_run(study_.plan, predicted, result.run, result.losses));
  study_.runs.back().validation = result.validation;
  study_.runs.back().host = result.host;
  study_.runs.back().compression_errors = result.compression_errors;
  study_.runs.back().learning_rates = learning_rates(std::ssize(result.losses));
  if (!checkpoint) return;
  if (result.stopped) {
    listener_.remark(fmt::format("stopped by a signal after step {} of {}; --resume goes on from there",
                                 first_step_ + std::ssize(result.losses), options_.settings.steps));
  }
  study_.checkpoints = study_saves(result, study_.runs.back().step_times_s, checkpoint->folder.string(), first_step_);
}

// Returns the rates of the steps of this run.
std::vector<double> RunSession::learning_rates(std::int64_t steps) const {
  std::vector<double> rates;
  for (std::int64_t i = 0; i < steps; ++i) rates.push_back(learning_rate_at(options_.settings, first_step_ + i));
  return rates;
}

// Writes everything that an oracle needs to train the same (docs/oracle.md).
void RunSession::write(const PolicyStudy& predicted, KeptTensors& kept, const TrainResult& result) const {
  const Inputs& in = options_.inputs;
  RunRecord record;
  record.model = in.model;
  record.layout = in.layout;
  record.policy = predicted.policy;
  record.optimizer = options_.settings.of_optimizer(in.layout.kfac_interval);
  record.seed = options_.settings.seed;
  record.schedule = options_.settings.schedule;
  record.learning_rates = learning_rates(std::ssize(result.losses));
  record.losses = result.losses;
  record.initial = kept.initial.take();
  record.gradients = kept.first_gradients.take();
  record.final_weights = kept.last.take();
  const BatchShape shape{in.layout.global_batch, in.layout.micro_batch, in.layout.seq, in.layout.dp, in.model.vocab};
  record.batches =
      sequences_of_steps(Batches(options_.corpus, shape, options_.settings.seed), shape, std::ssize(result.losses));
  if (options_.validation) {
    const ValidationJob& validation = options_.validation->job;
    record.validation = result.validation;
    record.validation_batches =
        sequences_of_steps(Batches(validation.corpus, shape, options_.settings.seed), shape, validation.batches);
  }
  std::filesystem::path folder = *options_.record;
  if (to_run_.size() > 1) folder /= predicted.policy;
  write_record(folder, record);
}

}  // namespace weft
