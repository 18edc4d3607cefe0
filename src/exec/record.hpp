// What a run leaves for an oracle to check it by (docs/oracle.md): what it trained from, on what, and what came out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "exec/safetensors.hpp"
#include "exec/train_settings.hpp"
#include "graph/layout.hpp"
#include "kernels/kernels.hpp"
#include "model/transformer.hpp"

namespace weft {

struct RunRecord {
  Transformer model;
  Layout layout;       // clip_grad among it
  std::string policy;  // for whoever reads the record; it decides no number
  OptimizerSettings optimizer;
  std::uint64_t seed = 0;
  LearningRateSchedule schedule;
  std::vector<double> learning_rates;      // of every step
  std::vector<double> losses;              // of every step: the mean over the global batch
  std::vector<NamedTensor> initial;        // weights before the first step
  std::vector<NamedTensor> gradients;      // of the first step, of the mean loss, before clipping
  std::vector<NamedTensor> final_weights;  // after the last step
  std::vector<std::int64_t> batches;       // tokens, steps x global_batch x (seq + 1): sequences_of_steps
  std::vector<ValidationLoss> validation;
  std::vector<std::int64_t> validation_batches;  // of each, likewise; empty: there was none
};

// Writes the folder, made where it is missing; run.json last, so that a folder with one is whole. Throws Error naming
// the file that cannot be written.
void write_record(const std::filesystem::path& folder, const RunRecord& record);

}  // namespace weft
