// Text as a gzip file: what viewers and our own readers open as it is, in a fifteenth of the bytes of a trace.
#pragma once

#include <functional>
#include <ostream>

namespace weft {

// Calls `write` with a stream whose text goes to `out` compressed, a piece at a time. The same text gives the same
// bytes: no time and no name are stored. Throws Error where `out` fails.
void write_gzip(std::ostream& out, const std::function<void(std::ostream&)>& write);

}  // namespace weft
