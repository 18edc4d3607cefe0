#include "app/run/run_options.hpp"

#include <algorithm>
#include <thread>

#include "app/files.hpp"
#include "app/inputs.hpp"
#include "app/plan/policy_list.hpp"
#include "app/world/world_flags.hpp"
#include "base/error.hpp"
#include "exec/train_rank.hpp"
#include "io/plan_json.hpp"
#include "io/profile_json.hpp"
#include "plan/verify/verify_plan.hpp"
#include "study/run/switch_substitutes.hpp"

namespace weft {
namespace {

constexpr const char* kTraining = "Training";
constexpr std::int64_t kMaxProcesses = 512;
constexpr std::int64_t kMostTrials = 100;

LearningRateSchedule read_schedule(const Flags& flags, std::int64_t steps, double peak) {
  LearningRateSchedule schedule;
  schedule.style = static_cast<DecayStyle>(flags.one_of("lr-schedule", {"constant", "linear", "cosine"}).value_or(0));
  schedule.warmup = flags.integer("lr-warmup", 0, kMaxNumber).value_or(0);
  if (schedule.style == DecayStyle::constant) {
    for (const char* flag : {"lr-min", "lr-decay-steps"}) {
      if (flags.given(flag)) fail("--{}: is of --lr-schedule linear or cosine", flag);
    }
    return schedule;
  }
  schedule.minimum = flags.number("lr-min", 0, 1e38).value_or(0);
  if (schedule.minimum > peak) fail("--lr-min {}: is above --lr {}", schedule.minimum, peak);
  schedule.decay_steps = flags.integer("lr-decay-steps", 1, kMaxNumber).value_or(steps);
  if (schedule.warmup >= schedule.decay_steps) {
    fail("--lr-warmup {}: leaves no step to decay in; --{} is {}", schedule.warmup,
         flags.given("lr-decay-steps") ? "lr-decay-steps" : "steps", schedule.decay_steps);
  }
  return schedule;
}

// What K-FAC trains with unless flags say otherwise: the best of a few that were tried on a seed of their own
// (docs/kfac.md). Other parameters may learn faster than with AdamW alone, because linear layers do not follow their
// rate.
constexpr double kRateBesideKfac = 0.003, kKfacRate = 0.0005, kKfacDamping = 0.1;

void read_kfac(const Flags& flags, TrainSettings& settings) {
  for (const char* flag : {"kfac-lr", "kfac-decay", "kfac-damping"}) {
    if (flags.given(flag) && settings.optimizer != Optimizer::kfac) fail("--{}: is of --optimizer kfac", flag);
  }
  KfacSettings& kfac = settings.kfac;
  kfac.learning_rate = flags.number("kfac-lr", 0, 1e38).value_or(kKfacRate);
  kfac.momentum = flags.number("momentum", 0, 1).value_or(kfac.momentum);
  kfac.decay = flags.number("kfac-decay", 0, 1).value_or(kfac.decay);
  kfac.damping = flags.number("kfac-damping", 0, 1e9).value_or(kKfacDamping);
}

TrainSettings read_settings(const Flags& flags) {
  TrainSettings settings;
  settings.steps = flags.integer("steps", 1, kMaxNumber).value_or(settings.steps);
  settings.seed = static_cast<std::uint64_t>(flags.integer("seed", 0, INT64_MAX).value_or(1));
  settings.optimizer = static_cast<Optimizer>(flags.one_of("optimizer", {"adam", "sgd", "kfac"}).value_or(0));
  const double usual = settings.optimizer == Optimizer::kfac ? kRateBesideKfac : settings.adam.learning_rate;
  const double rate = flags.number("lr", 0, 1e38).value_or(usual);
  const double decay = flags.number("weight-decay", 0, 1e9).value_or(0);
  settings.adam.learning_rate = settings.sgd.learning_rate = rate;
  settings.adam.weight_decay = settings.sgd.weight_decay = decay;
  settings.sgd.momentum = flags.number("momentum", 0, 1).value_or(0);
  settings.schedule = read_schedule(flags, settings.steps, rate);
  if (flags.given("momentum") && settings.optimizer == Optimizer::adam) {
    fail("--momentum: is of --optimizer sgd and kfac");
  }
  read_kfac(flags, settings);
  return settings;
}

// A plan file says model, cluster and layout itself.
void read_plans(const Flags& flags, RunOptions& options) {
  Flags of_a_plan("run", "", "");
  declare_input_flags(of_a_plan);
  of_a_plan.value("policy", "", "");
  for (const std::string& flag : of_a_plan.declared_names()) {
    if (flags.given(flag) && flag != "profile") fail("--{}: the plan file says it already", flag);
  }
  std::vector<std::string> remarks;
  for (const std::string& file : flags.texts()) {
    CheckedPlan checked = check_plan(read_plan_json(read_text_file(file), file));
    if (checked.violation) fail("{}: is not safe to run: {}", file, checked.violation->message);
    Plan without_switches = checked.whole->plan();
    if (const auto sentences = substitute_switch_programs(without_switches); !sentences.empty()) {
      for (const std::string& sentence : sentences) remarks.push_back(fmt::format("{}: {}", file, sentence));
      checked = check_plan(std::move(without_switches));
      if (checked.violation) fail("{}: is not safe to run: {}", file, checked.violation->message);
    }
    const auto whole = std::make_shared<const WholePlan>(std::move(*checked.whole));
    const Plan& plan = whole->plan();
    if (!options.plans.empty()) {
      const Plan& first = options.plans.front()->plan();
      if (first.model != plan.model || first.layout != plan.layout || first.cluster.name != plan.cluster.name) {
        fail("{}: is for another model, cluster or layout than {}", file, flags.texts().front());
      }
    }
    options.policies.push_back(plan.policy);
    options.plans.push_back(whole);
  }
  const Plan& plan = options.plans.front()->plan();
  const bool with_kfac = plan.layout.kfac_interval > 0;
  if (with_kfac != (flags.text("optimizer") == "kfac")) {
    fail("{}: is a plan {} K-FAC; give {}--optimizer kfac", flags.texts().front(), with_kfac ? "with" : "without",
         with_kfac ? "" : "another than ");
  }
  options.inputs = {plan.model, plan.cluster, plan.layout, {}};
  options.inputs.remarks = std::move(remarks);
}

// NCCL is always there, and carries out all collectives unless the user wishes otherwise.
void check_native_on_gpus(const Flags& flags, RunOptions& options) {
  if (!flags.given("native") || options.native == NativeWish::always) return;
  const std::string& wish = *flags.text("native");
  if (!options.plans.empty()) fail("--native {}: the plan file says it already", wish);
  Execution& execution = options.inputs.cluster.execution;
  if (execution == kPacedGpuRanks) {
    fail("--native {}: collectives over emulated links of a GPU are paced as a whole; leave link= out of --cluster",
         wish);
  }
  execution.collectives = CollectiveMaker::programs;
}

// Threads and sockets have no library that could carry it out.
void check_native(const Flags& flags, const Launch& launch, RunOptions& options) {
  options.native = static_cast<NativeWish>(flags.one_of("native", {"auto", "never", "always"}).value_or(0));
  if (options.inputs.cluster.execution.runtime == Runtime::cuda) return check_native_on_gpus(flags, options);
  if (launch.kind == LaunchKind::mpi) return;
  if (flags.given("native")) fail("--native {}: a choice under mpirun and on GPUs only", *flags.text("native"));
  for (std::size_t i = 0; i < options.plans.size(); ++i) {
    for (const Operation& op : options.plans[i]->plan().graph.operations) {
      if (!op.communication || op.communication->algorithm != Algorithm::native) continue;
      fail("{}: '{}' is native, the MPI library's own {}: {} have none; run it under mpirun", flags.texts()[i],
           describe(op), name_of(op.communication->collective),
           launch.kind == LaunchKind::tcp ? "TCP sockets" : "threads");
    }
  }
}

void read_graphs(const Flags& flags, RunOptions& options) {
  const bool on_gpus = options.inputs.cluster.execution.runtime == Runtime::cuda;
  if (flags.given("graphs") && !on_gpus) fail("--graphs: is of --device cuda");
  if (on_gpus && flags.given("extra"))
    fail("--extra: is for processors; plans for GPUs are made, simulated and proven");
  options.graphs = static_cast<GraphWish>(flags.one_of("graphs", {"auto", "on", "off"}).value_or(0));
  // A recorded step does what it did when it was recorded, and curvature has its turn in some steps only.
  const std::int64_t interval = options.inputs.layout.kfac_interval;
  if (!on_gpus || interval <= 1) return;
  if (options.graphs == GraphWish::always) {
    fail("--graphs on: with --kfac-interval {} steps do different work; must be auto or off", interval);
  }
  options.graphs = GraphWish::never;
}

// Whether the user says what the links between GPUs are; otherwise they are measured.
bool states_links(const std::string& cluster) {
  const auto has = [&](const char* key) { return cluster.find(key) != std::string::npos; };
  return !cluster.starts_with("gpu:") || has("nic=") || has("link=");
}

// Whether a file says the model, as launches of Megatron and MindSpeed do.
bool names_model(const Flags& flags) {
  return flags.given("model") || flags.given("megatron-args") || flags.given("mindspeed-args");
}

void read_flags_of_plan(Flags flags, const Launch& launch, RunOptions& options) {
  if (flags.is_set("in-network")) {
    fail(
        "--in-network: no transport here makes sums in switches; weft plan takes it, and weft run PLAN says which "
        "programs it takes instead");
  }
  if (!names_model(flags) && !flags.given("vocab")) flags.set("vocab", "256");
  options.links_given = flags.given("cluster");
  const bool on_gpus = flags.one_of("device", {"cpu", "cuda"}).value_or(0) == 1;
  if (!options.links_given && on_gpus) {
    flags.set("cluster", fmt::format("gpu:{}", launch.kind == LaunchKind::local ? 1 : launch.ranks));
  } else if (!options.links_given) {
    if (launch.kind == LaunchKind::local) {
      fail("--cluster: is missing; give local:2,nic=200Mb/s (ranks and links), or --processes 2");
    }
    flags.set("cluster", fmt::format("local:{}", launch.ranks));
  }
  options.inputs = read_inputs(flags);
  if (on_gpus && options.inputs.cluster.execution.runtime != Runtime::cuda) {
    fail("--device cuda: --cluster {} is not of this machine's GPUs; give gpu:N", options.inputs.cluster.name);
  }
  if (options.inputs.cluster.execution.runtime == Runtime::cuda) {
    options.links_given = states_links(*flags.text("cluster"));
  }
  options.memory_given = flags.given("memory") || options.inputs.cluster.device.memory != device_profile("cpu").memory;
  // A shape has only the positions that it trains, because each of them is a gradient to be reduced.
  if (!names_model(flags)) options.inputs.model.max_seq = options.inputs.layout.seq;
  options.only_best = !flags.given("policy");
  options.policies = read_policies(flags);
}

Launch launch_of(const Flags& flags, const Launch& launch) {
  const auto processes = processes_to_start(flags, launch);
  if (!processes) return launch;
  Launch own = launch;
  own.kind = LaunchKind::tcp;
  own.ranks = *processes;
  return own;
}

void check_world(const Launch& launch, const RunOptions& options) {
  const ClusterSpec& spec = options.inputs.cluster;
  if (spec.execution.runtime == Runtime::none) {
    fail(
        "--cluster {}: weft run emulates clusters on this machine: give local:N, a JSON file with emulated links, or "
        "gpu:N for this machine's GPUs",
        spec.name);
  }
  const bool paced = spec.execution == kPacedGpuRanks;
  if (paced && launch.kind != LaunchKind::local) {
    fail("--cluster {}: ranks with an emulated link are threads of one process: start it alone, without --processes",
         spec.name);
  }
  if (spec.execution.runtime == Runtime::cuda && !paced && launch.kind == LaunchKind::local &&
      Cluster(spec).device_count() > 1) {
    fail("--cluster {}: ranks on GPUs are processes: give --processes {}, or start one per rank (docs/gpu.md)",
         spec.name, Cluster(spec).device_count());
  }
  const std::int64_t devices = Cluster(spec).device_count();
  if (launch.kind != LaunchKind::local && launch.ranks != devices) {
    fail("the plan is for {} ranks, not for {} processes", devices, launch.ranks);
  }
}

// Returns the number asked for, or the cores divided by the ranks. Processes may be spread over machines, but nothing
// says over how many.
int read_threads(const Flags& flags, std::int64_t ranks) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  return static_cast<int>(flags.integer("threads", 1, 1024).value_or(std::max<std::int64_t>(1, cores / ranks)));
}

void read_profile_of_machine(const Flags& flags, std::int64_t ranks, RunOptions& options) {
  const auto file = flags.text("profile");
  if (!file) return;
  options.profile = read_profile(read_text_file(*file), *file, default_profile());
  options.profile_name = *file;
  if (!options.profile->machine) return;
  const std::string difference = machine_difference(*options.profile->machine, facts_of(options, ranks));
  if (!difference.empty()) fail("--profile {}: was measured elsewhere: {}", *file, difference);
}

// Refuses a corpus that is too short.
void check_corpus(const RunOptions& options, const std::shared_ptr<const Corpus>& corpus) {
  const Layout& layout = options.inputs.layout;
  const BatchShape shape{layout.global_batch, layout.micro_batch, layout.seq, layout.dp, options.inputs.model.vocab};
  const Batches refuses_what_is_too_short(corpus, shape, options.settings.seed);
}

// Without a file of its own it takes the end of the data, which is then not trained on.
void read_validation(const Flags& flags, RunOptions& options) {
  const auto every = flags.integer("eval-every", 1, kMaxNumber);
  if (!every) {
    for (const char* flag : {"eval-batches", "eval-data", "eval-share"}) {
      if (flags.given(flag)) fail("--{}: needs --eval-every N", flag);
    }
    return;
  }
  ValidationOptions& validation = options.validation.emplace();
  validation.job.every = *every;
  validation.job.batches = flags.integer("eval-batches", 1, kMaxNumber).value_or(10);
  validation.data = flags.text("eval-data");
  if (validation.data) {
    if (flags.given("eval-share")) fail("--eval-share: is given with --eval-data");
    validation.job.corpus = Corpus::open(*validation.data);
  } else {
    validation.share = flags.number("eval-share", 1e-6, 0.999999).value_or(0.1);
    const std::size_t bytes = options.corpus->bytes().size();
    const auto held_out = static_cast<std::size_t>(validation.share * static_cast<double>(bytes));
    validation.job.corpus = Corpus::part_of(options.corpus, bytes - held_out, bytes);
    options.corpus = Corpus::part_of(options.corpus, 0, bytes - held_out);
  }
  try {
    check_corpus(options, validation.job.corpus);
  } catch (const Error& error) {
    fail("--eval-{}: {}", validation.data ? "data" : "share", error.what());
  }
}

void read_data(const Flags& flags, RunOptions& options) {
  options.data = flags.text("data");
  options.corpus = options.data ? Corpus::open(*options.data) : Corpus::generate(options.settings.seed);
  read_validation(flags, options);
  check_corpus(options, options.corpus);
}

}  // namespace

void declare_run_flags(Flags& flags) {
  declare_input_flags(flags);
  flags.positionals("plan", "plan files to run, instead of the flags of a plan");
  flags.value("policy", "A,B,...", "policies to run one after the other (default: the one predicted to be best)");
  flags.value("steps", "N", "training steps (default: 10)", kTraining);
  flags.value("warm-up", "N", "first steps that do not count (default: 2)", kTraining);
  flags.value("data", "FILE", "text to train on, bytes as tokens (default: generated text)", kTraining);
  flags.value("seed", "N", "of weights and data order (default: 1)", kTraining);
  flags.value("optimizer", "adam|sgd|kfac",
              "AdamW, SGD, or K-FAC for linear layers with AdamW for the rest (default: adam)", kTraining);
  flags.value("lr", "X", "learning rate (default: 0.001; with kfac, of all but linear layers, 0.003)", kTraining);
  flags.value("lr-warmup", "N", "steps in which the learning rate rises from 0 (default: 0)", kTraining);
  flags.value("lr-schedule", "constant|linear|cosine", "what it does then (default: constant)", kTraining);
  flags.value("lr-min", "X", "what linear and cosine fall to (default: 0)", kTraining);
  flags.value("lr-decay-steps", "N", "step, warm-up included, at which they are there (default: --steps)", kTraining);
  flags.value("weight-decay", "X", "default: 0", kTraining);
  flags.value("momentum", "X", "of sgd (default: 0) and of kfac (default: 0.9)", kTraining);
  flags.value("kfac-lr", "X", "of linear layers, whose directions have a root mean square of 1 (default: 0.0005)",
              kTraining);
  flags.value("kfac-decay", "X", "what stays of the averaged curvature at every refresh (default: 0.95)", kTraining);
  flags.value("kfac-damping", "X", "added to the curvature's diagonal, as a multiple of its mean (default: 0.1)",
              kTraining);
  flags.value("eval-every", "N", "loss on held-out data after every N steps and the last (default: never)", kTraining);
  flags.value("eval-batches", "N", "global batches of it, always the same (default: 10)", kTraining);
  flags.value("eval-data", "FILE", "held-out text (default: the end of --data)", kTraining);
  flags.value("eval-share", "X", "share of --data that is its held-out end (default: 0.1)", kTraining);
  flags.value("record", "DIR", "keep weights, batches, gradients and losses for a check (docs/oracle.md)", kTraining);
  flags.value("losses-of", "FILE",
              "what --json of an earlier run printed: the report says how far losses are from its (without --compress, "
              "say)",
              kTraining);
  flags.value("processes", "N",
              "ranks as processes on this machine, joined by TCP, over real links (default: threads)");
  flags.value("device", "cpu|cuda",
              "what computes: this machine's processors or its NVIDIA GPUs (default: as --cluster says)");
  flags.value("threads", "N", "threads inside a kernel (default: cores over ranks)");
  flags.value("calibrate-seconds", "X", "for measuring this machine where no --profile is given (default: 20)");
  flags.value("trials", "N",
              "plans that run for a few steps before training, at most; policy weft takes the fastest of them, 0: none "
              "(default: 8 on GPUs whose transfers are measured, 4 on processors where the run has 840 steps or more)");
  declare_world_flags(flags);
  flags.value(
      "native", "auto|never|always",
      "whether plans use the library's own collectives, MPI's under mpirun or NCCL's on GPUs: where they were measured "
      "to be faster than ours are predicted to be (default under mpirun), or not, or wherever they can (on GPUs)");
  flags.value(
      "graphs", "auto|on|off",
      "on GPUs, whether a step is recorded once and then started as a CUDA graph: where the device waits for the "
      "host otherwise (default), or always, or never");
  flags.value(
      "out", "DIR",
      "write plan.json, timeline.json and trace.json of every policy there, and report.html (a page to look at)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of the report");
}

RunOptions read_run_options(const Flags& flags, const Launch& given) {
  RunOptions options;
  const Launch launch = launch_of(flags, given);  // or will be launched
  if (!flags.texts().empty()) {
    read_plans(flags, options);
  } else {
    read_flags_of_plan(flags, launch, options);
  }
  check_world(launch, options);
  check_native(flags, launch, options);
  read_graphs(flags, options);
  require_trainable(options.inputs.model, options.inputs.layout, options.inputs.cluster.execution.runtime);
  options.settings = read_settings(flags);
  options.warm_up =
      flags.integer("warm-up", 0, kMaxNumber).value_or(std::min<std::int64_t>(2, options.settings.steps / 3));
  if (options.warm_up >= options.settings.steps) {
    fail("--warm-up {}: of {} steps none would count", options.warm_up, options.settings.steps);
  }
  const std::int64_t ranks = Cluster(options.inputs.cluster).device_count();
  options.threads = read_threads(flags, ranks);
  options.gpu = static_cast<int>(launch.gpu);
  options.trials = flags.integer("trials", 0, kMostTrials);
  read_data(flags, options);
  read_profile_of_machine(flags, ranks, options);
  options.calibration_budget = std::chrono::nanoseconds(
      static_cast<std::int64_t>(flags.number("calibrate-seconds", 0.01, 3600).value_or(20) * 1e9));
  options.record = flags.text("record");
  if (options.record && launch.kind != LaunchKind::local) fail("--record: needs ranks that are threads");
  return options;
}

std::optional<std::int64_t> processes_to_start(const Flags& flags, const Launch& launch) {
  if (launch.kind != LaunchKind::local) return std::nullopt;
  return flags.integer("processes", 1, kMaxProcesses);
}

}  // namespace weft
