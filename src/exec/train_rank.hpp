// One rank trains: weights are made, steps run as the plan says, measurements come back.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "exec/checkpoint/checkpoint_reader.hpp"
#include "exec/checkpoint/checkpoint_saver.hpp"
#include "exec/graph_choice.hpp"
#include "exec/measured_timeline.hpp"
#include "exec/processor.hpp"
#include "exec/tensor_collector.hpp"

namespace weft {

// Tensors that a run is asked to keep, for a check by others. Ranks must be threads of one process.
struct KeptTensors {
  TensorCollector initial, first_gradients, last;
};

// The loss on other data, without dropout: after every `every` steps and after the last. Always of the same batches, so
// that its values compare.
struct ValidationJob {
  std::int64_t every = 0;  // steps
  std::int64_t batches = 1;
  std::shared_ptr<const Corpus> corpus;
};

struct TrainJob {
  const WholePlan& whole;
  TrainSettings settings;
  std::shared_ptr<const Corpus> corpus;
  std::int64_t warm_up = 0;  // steps that do not count
  bool one_clock = true;     // ranks share a steady clock
  KeptTensors* keep = nullptr;
  std::int64_t first_step = 0;               // that many have been trained before
  const CheckpointReader* resume = nullptr;  // the state then; null: initial weights
  const CheckpointJob* checkpoint = nullptr;
  const ValidationJob* validation = nullptr;
  GraphWish graphs = GraphWish::automatic;  // on devices
  bool is_trial = false;  // only its times matter: its weights may repeat, because those of a large model take seconds
};

struct TrainResult {
  std::vector<double> losses;  // of the steps that were run, the mean over the global batch
  std::vector<ValidationLoss> validation;
  // Of the same steps, where gradients are compressed: the norm of what this rank holds back of its gradients, over
  // their norm.
  std::vector<double> compression_errors;
  MeasuredRun run;       // on rank 0; elsewhere without ranks
  bool stopped = false;  // before the last step, because somebody asked for it
  SaveSummary saves;
  std::optional<HostReport> host = {};  // on devices
};

// Refuses what cannot be trained yet, naming it. Throws Error.
void require_trainable(const Transformer& model, const Layout& layout, Runtime runtime);

// Called on this rank's worker, one step late.
using OnLoss = std::function<void(std::int64_t step, double loss, const StepGlance& glance)>;
using OnValidation = std::function<void(const ValidationLoss&)>;
TrainResult train_rank(const TrainJob& job, Communicator& communicator, const Processor& processor,
                       const OnLoss& on_loss = {}, const OnValidation& on_validation = {});

}  // namespace weft
