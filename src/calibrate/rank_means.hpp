// Numbers that all ranks have in the same order, put together.
#pragma once

#include <vector>

#include "exec/rank_exchange.hpp"

namespace weft {

std::vector<double> sums_of_ranks(Communicator& communicator, const std::vector<double>& own);
std::vector<double> mean_of_ranks(Communicator& communicator, const std::vector<double>& own);

}  // namespace weft
