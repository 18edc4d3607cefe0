// The part of StreamRun that records steps, starts recordings, and decides whether that pays.
#include "base/error.hpp"
#include "exec/host_cost_exchange.hpp"
#include "exec/rank_exchange.hpp"
#include "exec/stream_run.hpp"

namespace weft {

std::string StreamRun::why_no_recording() const {
  if (collectives_ != nullptr && !collectives_->can_be_recorded()) return "these collectives cannot be recorded";
  if (device_.recorder() == nullptr) return "this device records no calls";
  return "";
}

// Called after every step of training, on all ranks alike.
void StreamRun::choose_graphs(std::int64_t ended) {
  ++steps_trained_;
  note_cost(ended);
  if (graph_state_ == GraphState::decided) return;
  if (options_.graphs == GraphWish::always) {
    if (steps_trained_ + 1 < kStepsBeforeGraphs) return;  // the step after this one is under way already
    uses_graphs_ = true;
    report_.why = "--graphs on";
    graph_state_ = GraphState::decided;
    return;
  }
  const bool measures = graph_state_ == GraphState::measuring;
  const HostCosts& costs = measures ? costs_of_calls_ : costs_of_graphs_;
  if (costs.count() < kStepsToCompare) return;
  const std::vector<HostCost> ranks = costs_of_all(communicator_, costs.median());
  if (measures) {
    uses_graphs_ = is_host_bound(ranks);
    report_.why = uses_graphs_ ? "the device waits for the host" : "the device does not wait for the host";
    graph_state_ = uses_graphs_ ? GraphState::comparing : GraphState::decided;
    return;
  }
  uses_graphs_ = has_shorter_steps(ranks, costs_of_all(communicator_, costs_of_calls_.median()));
  if (!uses_graphs_) report_.why = "steps that were started as graphs took no less time";
  graph_state_ = GraphState::decided;
}

// The first step after a pause, or after a change from calls to recordings, takes longer than others.
void StreamRun::note_cost(std::int64_t ended) {
  const std::int64_t now = steady_nanos();
  const StepUnderWay& step = steps_under_way_[static_cast<std::size_t>(ended % kStepsUnderWay)];
  const bool follows_its_like = last_ended_at_ > 0 && last_was_recorded_ == step.is_recorded;
  if (follows_its_like && steps_trained_ > kStepsBeforeGraphs) {
    HostCost cost = step.cost;
    cost.step = Nanos{now - last_ended_at_};
    (step.is_recorded ? costs_of_graphs_ : costs_of_calls_).add(cost);
  }
  last_ended_at_ = now;
  last_was_recorded_ = step.is_recorded;
}

// Nothing is under way. All ranks record at the same step; where one cannot, none uses recordings.
void StreamRun::make_recordings(std::int64_t next) {
  const std::string own = record_steps(next);
  std::string words;
  const std::vector<std::string> all = texts_of_all(communicator_, own);
  for (std::size_t rank = 0; rank < all.size() && words.empty(); ++rank) {
    if (!all[rank].empty()) words = fmt::format("rank {} cannot record a step: {}", rank, all[rank]);
  }
  if (words.empty()) {
    report_.first_graph_step = now_.first + next;
    return;
  }
  forget_recordings();
  if (options_.graphs == GraphWish::always) throw RunFailed(fmt::format("--graphs on: {}", words));
  uses_graphs_ = false;
  report_.why = words;
  graph_state_ = GraphState::decided;
}

// Returns what went wrong; empty: nothing.
std::string StreamRun::record_steps(std::int64_t next) {
  const std::vector<std::vector<std::int64_t>> known = known_;
  std::string words;
  try {
    recorded_steps_.resize(kStepsUnderWay);
    for (std::int64_t turn = 0; turn < kStepsUnderWay; ++turn) record_step(turn, next);
  } catch (const RunFailed& failure) {
    device_.recorder()->abandon();
    words = failure.what();
  }
  recorded_now_ = nullptr;
  known_ = known;
  return words;
}

// As any step in the middle of a training: of the one before it, nothing is over.
void StreamRun::record_step(std::int64_t turn, std::int64_t next) {
  const std::int64_t step = kStepsUnderWay + turn;
  assume_only_order(step);
  RecordedStep& recorded = recorded_steps_[static_cast<std::size_t>(turn)];
  recorded.stream = device_.make_stream(StreamPriority::usual);
  recorded.ended = device_.make_event();
  recorded.results.resize(operations_.size());
  recorded_now_ = &recorded;
  number_recorded_ = number_of(next);
  device_.recorder()->begin(streams_);
  for (const std::size_t index : enqueue_order_) {
    const StreamOperation& op = operations_[index];
    // A stream's steps follow each other, which a recording does not know by itself.
    if (op.place == 0) wait_for(step, index, {static_cast<std::int32_t>(last_of_stream_[op.stream]), 1, true});
    enqueue_one(step, index);
    recorded.results[index] = under_way(step, index).results;
  }
  recorded.recording = device_.recorder()->end();
  recorded_now_ = nullptr;
}

// What is known when a recording begins, and of every operation of the step before it: the order of its stream, and
// that the steps before that are over.
void StreamRun::assume_only_order(std::int64_t step) {
  std::vector<std::int64_t> over;
  for (const std::int64_t length : stream_length_) over.push_back((step - 1) * length);
  known_.assign(streams_.size(), over);
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    std::vector<std::int64_t>& known = under_way(step - 1, i).known;
    known = over;
    known[operations_[i].stream] = count_after(operations_[i], step - 1);
  }
}

void StreamRun::call_kernels(std::int64_t step, std::size_t index) {
  const BoundOperation& compute = operations_[index].compute;
  if (recorded_now_ == nullptr) return compute.enqueue(device_.kernels(), number_of(step));
  for (std::size_t piece = 0; piece < compute.pieces(); ++piece) {
    const std::size_t before = device_.recorder()->host_data_given();
    compute.enqueue_piece(piece, device_.kernels(), number_recorded_);
    if (device_.recorder()->host_data_given() > before) recorded_now_->renewed.push_back({index, piece});
  }
}

void StreamRun::start_recorded(std::int64_t step) {
  const RecordedStep& recorded = recorded_steps_[static_cast<std::size_t>(step % kStepsUnderWay)];
  try {
    device_.recorder()->renew_host_data(recorded.recording);
    for (const RecordedStep::Renewed& each : recorded.renewed) {
      operations_[each.operation].compute.enqueue_piece(each.piece, device_.kernels(), number_of(step));
    }
    device_.recorder()->start(recorded.recording, recorded.stream);
    device_.record(recorded.ended, recorded.stream);
  } catch (const RunFailed& failure) {
    fail_of_device(failure.what());
  }
  for (std::size_t i = 0; i < operations_.size(); ++i) under_way(step, i).results = recorded.results[i];
}

void StreamRun::forget_recordings() {
  for (const RecordedStep& recorded : recorded_steps_) {
    if (recorded.recording.valid()) device_.recorder()->forget(recorded.recording);
  }
  recorded_steps_.clear();
}

std::optional<HostReport> StreamRun::host_report() const {
  HostReport report = report_;
  report.by_calls = costs_of_calls_.median();
  report.by_graphs = costs_of_graphs_.median();
  report.ends_with_graphs = uses_graphs_;
  if (report.why.empty()) report.why = "the run was too short to measure";
  return report;
}

}  // namespace weft
