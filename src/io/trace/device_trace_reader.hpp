// Reads traces of PyTorch (Kineto) and the Chrome traces and timelines that weft writes, plain or gzip by content. The
// text passes through a small buffer, so memory is that of the result.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/json/byte_source.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

// Returns one trace per rank of the file: one for PyTorch's, one per process for ours. Throws Error naming the file and
// the place where it is truncated, not JSON, or not a trace; oddities go to `warnings`.
std::vector<DeviceTrace> read_device_traces(const std::string& file_name, ByteSource::Progress progress = nullptr);

// The same of bytes in memory.
std::vector<DeviceTrace> device_traces_of_bytes(std::string_view bytes, const std::string& name);

}  // namespace weft
