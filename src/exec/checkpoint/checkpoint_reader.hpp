// Takes any elements of any tensor out of a checkpoint, whoever wrote them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "exec/checkpoint/manifest.hpp"
#include "exec/checkpoint/synced_file.hpp"
#include "exec/parameter_state.hpp"

namespace weft {

class CheckpointReader {
 public:
  // The folder of one checkpoint, which read_checkpoint() has found to be whole.
  CheckpointReader(std::filesystem::path folder, CheckpointManifest manifest);

  // Elements `range` of a rank's parameter; padding is zero. Throws Error naming a tensor that is not there whole.
  void read(const std::vector<HeldTensor>& tensors, TensorKind kind, ElementRange range, std::span<float> out) const;

  // The sum of all compression errors of these elements; zero where there are none.
  void add_up_errors(const std::vector<HeldTensor>& tensors, ElementRange range, std::span<float> sums) const;

  // The part of a factor of K-FAC's curvature that a rank has, row by row. Blocks that no rank had are zero.
  void read_factor(const CurvatureFactor& factor, std::span<float> out) const;

  // The basis that a run with the same part of the tensor and the same rank left; empty where there is none.
  std::span<const float> basis_of(const HeldTensor& tensor, std::int64_t elements) const;

 private:
  struct Source {
    const StoredPiece* piece;
    std::span<const float> data;
  };
  template <class Part>
  void add_up(const std::string& tensor, TensorKind kind, const Part& to) const;

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::pair<std::string, TensorKind>, std::vector<Source>> sources_;
};

// Weights, moments, compression errors and bases of a rank, as it needs them to begin a step: where initial weights
// would be.
void load_state(const CheckpointReader& checkpoint, const RankView& view, const ParameterStates& parameters,
                const std::vector<TensorKind>& kinds);

}  // namespace weft
