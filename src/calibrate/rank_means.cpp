#include "calibrate/rank_means.hpp"

namespace weft {
namespace {

constexpr double kMicro = 1e6;  // sums are of numbers with a few digits behind the point

}  // namespace

std::vector<double> sums_of_ranks(Communicator& communicator, const std::vector<double>& own) {
  std::vector<double> sums;
  SharedSum sum(communicator);
  for (const double value : own) {
    sum.start(value * kMicro);
    sums.push_back(sum.take() / kMicro);
  }
  return sums;
}

std::vector<double> mean_of_ranks(Communicator& communicator, const std::vector<double>& own) {
  std::vector<double> means = sums_of_ranks(communicator, own);
  for (double& mean : means) mean /= static_cast<double>(communicator.size());
  return means;
}

}  // namespace weft
