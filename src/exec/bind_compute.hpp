// Binds an operation of the graph to the kernel that carries it out on a rank's memory.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "exec/bind_kfac.hpp"
#include "exec/bound_operation.hpp"
#include "exec/compression_errors.hpp"
#include "exec/data/batches.hpp"
#include "exec/dropout_places.hpp"
#include "exec/parameter_state.hpp"
#include "exec/train_settings.hpp"

namespace weft {

// Operations of a rank leave this beside the plan's values. The thread that computes writes it.
struct RankTraining {
  // These are of the positions that this rank holds, by micro-batch.
  std::vector<std::vector<std::int64_t>> tokens, targets;
  std::vector<std::int64_t> loaded;  // by micro-batch: the step they are of
  // Kernels write to the elements of these.
  std::deque<double> losses;                  // by bound loss: the sum of -log p over its tokens, in the last step
  std::deque<bool> gradient_is_finite;        // by parameter: of the last update
  CompressionErrors compression_errors = {};  // of encoded gradients
  CurvatureState curvature = {};              // of K-FAC
  std::vector<double> loss_sums;              // by step: the losses of this rank's micro-batches
  double validation_loss_sum = 0;             // the same of all batches of validation since somebody set it to 0
  // It is told of the gradients that the first step's updates read, where somebody asks.
  std::function<void(const ParameterState&, const Vector& gradient)> on_first_gradient = {};
  // It is told of every update when it has been made: the rank's own weights and moments of the parameter are of this
  // step until its next update.
  std::function<void(std::int64_t step, const ParameterState&)> on_updated = {};
};

class ComputeBinder {
 public:
  // All arguments must outlive what it binds.
  ComputeBinder(const RankView& view, const ParameterStates& parameters, const TrainSettings& settings,
                const Batches& batches, RankTraining& training, const Batches* validation = nullptr);

  // Returns the kernel of one operation of the plan at a micro-batch. Everything is looked up here; calling
  // the result only computes. Throws Error where there is no kernel for it yet.
  BoundOperation bind(OpId operation, MicroBatch micro_batch) const;

 private:
  BoundOperation bind_whole(const Operation& op, MicroBatch micro_batch, bool first_write) const;
  // Binds the row ranges that a part of `op` works on, one after the other.
  std::vector<BoundOperation> bind_part(const Operation& op, const Origin& part, MicroBatch micro_batch) const;
  // `rows` are those of a cut operation; empty means all.
  BoundOperation bind_forward(const Operation& op, MicroBatch micro_batch, ElementRange rows) const;
  BoundOperation bind_input_grad(const Operation& op, MicroBatch micro_batch, ElementRange rows) const;
  BoundOperation bind_weight_grad(const Operation& op, MicroBatch micro_batch, Into into) const;
  BoundOperation bind_once(const Operation& op) const;
  BoundOperation bind_update(const Operation& op) const;
  BoundOperation bind_directed_update(const ParameterState& p, UpdatedParameter updated, Vector direction) const;
  struct DropoutPlace {
    DropoutSite site;
    double rate;
  };
  DropoutPlace dropout_of(const Operation& op) const;
  BoundOperation bind_dropout(const Operation& op, MicroBatch micro_batch, ElementRange rows) const;
  BoundOperation bind_embedding(const Operation& op, MicroBatch micro_batch) const;
  BoundOperation bind_loss(const Operation& op, MicroBatch micro_batch, ElementRange rows) const;
  BoundOperation bind_loss_part(const Operation& op, MicroBatch micro_batch) const;
  BoundOperation bind_loss_grad(const Operation& op, MicroBatch micro_batch, ElementRange rows) const;
  std::vector<LossPart> loss_parts(const Operation& op, const Vector& value) const;
  std::span<const std::int64_t> held_by(const Operation& op, std::span<const std::int64_t> of_rank) const;
  std::span<const std::int64_t> targets_of(const Operation& op, MicroBatch micro_batch, ElementRange rows) const;
  LearnedPositions learned_positions(const Operation& op, const Matrix& table) const {
    return {table, held_by(op, positions_)};
  }
  void load_batch(std::int64_t step, MicroBatch micro_batch) const;
  std::string first_not_finite(Kernels& kernels, MicroBatch micro_batch) const;

  const RankView& view_;
  const ParameterStates& parameters_;
  const TrainSettings& settings_;
  const Batches& batches_;
  const Batches* validation_;
  RankTraining& training_;
  VocabularyPart vocabulary_;            // this rank's columns of the head, rows of the embedding
  std::vector<std::int64_t> positions_;  // that this rank holds of every sequence
  mutable std::vector<std::int64_t> batch_tokens_, batch_targets_;  // of whole sequences
};

}  // namespace weft
