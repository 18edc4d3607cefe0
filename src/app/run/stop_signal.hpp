// SIGTERM and SIGUSR1 as a wish to save and end. They are held back, and whoever trains looks whether one has come.
#pragma once

namespace weft {

// For this thread and all that it starts, so before there are others. Programs that it executes inherit it, too.
void hold_stop_signals();
bool stop_signal_came();

}  // namespace weft
