// Executes one rank's part of a plan on a device: queues are streams, dependencies events.
//
// The host only enqueues. While the device works on a step, the host enqueues the next one, and then waits for the end
// of the first to read what it left: losses, whether gradients are finite, the times of its events.
//
// Where the host is the limit, steps are recorded and started as a whole (CUDA graphs; exec/stream_recording.cpp).
// There are two recordings, for steps that take turns: each waits for the events of the other, operation by operation,
// so a step begins before the one before it has ended, as its dependencies allow. A recording of both steps together
// would lose that at every second step, and one recording could not run beside itself.
#pragma once

#include <array>
#include <atomic>
#include <optional>

#include "comm/stream_collectives.hpp"
#include "exec/bind_compute.hpp"
#include "exec/bind_transfer.hpp"
#include "exec/graph_choice.hpp"
#include "exec/plan_run.hpp"
#include "exec/standstill.hpp"
#include "kernels/accelerator.hpp"

namespace weft {

// Whether something on the host reads the rank's memory as a step left it: then the next step is enqueued only after
// that.
using ReadsMemoryAfter = std::function<bool(std::int64_t step)>;

struct StreamRunOptions {
  ReadsMemoryAfter reads_memory_after = {};
  GraphWish graphs = GraphWish::automatic;
};

class StreamRun final : public PlanRun {
 public:
  // Prepares every collective: all ranks must do so in the same order. All must outlive it. `collectives`: null where
  // the plan has no transfers. Throws Error where graphs are wished for and cannot be made.
  StreamRun(const RankView& view, Communicator& communicator, Accelerator& device, StreamCollectives* collectives,
            const ComputeBinder& compute, const TransferBinder& transfers, StreamRunOptions options = {});
  ~StreamRun() override { forget_recordings(); }
  StreamRun(const StreamRun&) = delete;
  StreamRun& operator=(const StreamRun&) = delete;

  void end_after(std::int64_t last) override;
  std::optional<HostReport> host_report() const override;

 private:
  struct StreamOperation {
    std::size_t stream = 0;
    std::int64_t place = 0;  // among the operations of its stream
    std::vector<Dependency> waits, validation_waits;
    bool is_transfer = false;
    bool validates = false;        // it is of the forward part
    bool has_begin_event = false;  // otherwise it begins when the one before it in its stream ends
    BoundOperation compute;
    BoundTransfer places;
    std::size_t prepared = 0;  // of the collectives
  };
  // Of an operation in a step that has been enqueued and has not ended. A step and the one after it are under way.
  struct UnderWay {
    EventId begun, ended;
    ResultRange results;
    std::vector<std::int64_t> known;  // by stream: how many of its operations have ended when this one has
  };

  // Of a step in whole.
  struct StepUnderWay {
    bool is_recorded = false;  // otherwise it was enqueued call by call
    HostCost cost;
  };
  // What steps of one turn are started from.
  struct RecordedStep {
    RecordingId recording;
    StreamId stream;  // that it is started in
    EventId ended;
    struct Renewed {
      std::size_t operation, piece;
    };
    std::vector<Renewed> renewed;      // pieces of operations that take host data, in the order of their calls
    std::vector<ResultRange> results;  // by operation
  };
  enum class GraphState : std::uint8_t { measuring, comparing, decided };

  void run_stretch(const OnStep& on_step) override;
  bool may_enqueue() const;
  bool needs_rehearsal() const override;
  void rehearse_stretch() override;
  void set_forward_part(std::size_t index, bool validates, std::vector<Dependency> waits) override;
  void prepare(const TransferBinder& transfers);
  void find_enqueue_order();
  bool does_nothing(const StreamOperation& op) const {
    return (validating_ && !op.validates) || (rehearsing_ && op.is_transfer);
  }
  UnderWay& under_way(std::int64_t step, std::size_t index) {
    return under_way_[static_cast<std::size_t>(step % kStepsUnderWay) * operations_.size() + index];
  }
  // How many operations of its stream have been enqueued when this one has.
  std::int64_t count_after(const StreamOperation& op, std::int64_t step) const {
    return step * stream_length_[op.stream] + op.place + 1;
  }
  void begin_stretch();
  void enqueue(std::int64_t step);
  void enqueue_calls(std::int64_t step);
  bool has_caught_up(std::int64_t step);
  void call_kernels(std::int64_t step, std::size_t index);
  void wait_for_room(std::int64_t step, std::size_t n);
  void enqueue_one(std::int64_t step, std::size_t index);
  void enqueue_calls(std::int64_t step, std::size_t index);
  void wait_for(std::int64_t step, std::size_t index, const Dependency& dependency);
  void finish(std::int64_t step);
  void wait_for_ends(std::int64_t step);
  void wait_until_over(EventId event);
  void require_progress(Standstill& standstill);
  std::string words_of_what_is_under_way();
  bool is_over(EventId event);
  void hear_of_a_loss();  // after device or collectives have failed: throws RunFailed where a rank was lost
  [[noreturn]] void fail_of_device(const std::string& why);
  void keep_spans(std::int64_t step);
  void read_results(std::int64_t step);
  [[noreturn]] void fail_at(std::int64_t step, std::size_t index, const std::string& why);

  // exec/stream_recording.cpp
  std::string why_no_recording() const;
  bool starts_recordings() const { return uses_graphs_ && !validating_; }
  void choose_graphs(std::int64_t ended);
  void note_cost(std::int64_t ended);
  std::string record_steps(std::int64_t next);
  void record_step(std::int64_t turn, std::int64_t next);
  void assume_only_order(std::int64_t step);
  void make_recordings(std::int64_t next);
  void start_recorded(std::int64_t step);
  void forget_recordings();

  static constexpr std::int64_t kStepsUnderWay = 2;

  Communicator& communicator_;
  Accelerator& device_;
  StreamCollectives* collectives_;
  StreamRunOptions options_;
  std::vector<StreamId> streams_;  // by queue of the rank's class
  std::vector<std::int64_t> stream_length_;
  std::vector<StreamOperation> operations_;
  std::vector<std::size_t> enqueue_order_;
  std::vector<std::size_t> last_of_stream_;  // by stream: its last operation
  std::vector<UnderWay> under_way_;
  std::array<StepUnderWay, kStepsUnderWay> steps_under_way_;
  std::vector<std::vector<std::int64_t>> known_;  // [stream][other]: how many of the other's have ended before its next
  std::vector<std::int64_t> last_end_;            // by stream: when the last operation that was looked at ended
  bool rehearsing_ = false;
  RecordedStep* recorded_now_ = nullptr;  // while its calls are recorded
  std::int64_t number_recorded_ = 0;      // the step whose calls these are
  std::vector<RecordedStep> recorded_steps_;
  GraphState graph_state_ = GraphState::measuring;
  bool uses_graphs_ = false;
  std::int64_t steps_trained_ = 0, last_ended_at_ = 0;  // of this stretch: when its last step ended; 0: none has
  bool last_was_recorded_ = false;
  HostCosts costs_of_calls_, costs_of_graphs_;
  HostReport report_;
  std::int64_t enqueued_ = 0;               // steps
  std::atomic<std::int64_t> finished_ = 0;  // any thread may need it, for messages
};

}  // namespace weft
