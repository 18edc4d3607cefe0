// What collectives that run in a device's streams take: alone by size, and beside computation.
#pragma once

#include "calibrate/calibrate.hpp"
#include "calibrate/passes.hpp"

namespace weft {

// All ranks call it, after the operations are known. Prepares and connects the collectives of `processor`. Sets the
// result's library, both of its slowdowns and, where the plan has programs of our own, their overheads. `largest`: of
// the transfers.
void measure_streams(Communicator& communicator, const Processor& processor, Bytes largest, CalibrationPasses& passes,
                     Calibration& result);

}  // namespace weft
