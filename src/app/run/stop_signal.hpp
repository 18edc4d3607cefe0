// SIGTERM and SIGUSR1 ask to save and end. They are blocked, and the training loop checks whether one has come.
#pragma once

namespace weft {

// Affects this thread and all that it starts, so it must be called before there are others. Executed programs inherit
// it.
void hold_stop_signals();
bool stop_signal_came();

}  // namespace weft
