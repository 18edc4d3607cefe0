#include "exec/train_settings.hpp"

namespace weft {

OptimizerSettings TrainSettings::of_optimizer(std::int64_t kfac_interval) const {
  if (optimizer == Optimizer::sgd) return sgd;
  if (optimizer == Optimizer::kfac) return KfacWithAdam{kfac, adam, kfac_interval};
  return adam;
}

}  // namespace weft
