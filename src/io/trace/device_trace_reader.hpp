// Reads traces: PyTorch's (Kineto), the Chrome traces and the timelines that weft writes; plain or gzip, by their
// content. Memory is that of the result: the text passes through a small buffer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/json/byte_source.hpp"
#include "timeline/trace/device_trace.hpp"

namespace weft {

// One trace per rank that the file holds: one of PyTorch, as many as there are processes in ours. Throws Error naming
// the file and the place where it is truncated, no JSON, or no trace; what is merely odd is said in `warnings`.
std::vector<DeviceTrace> read_device_traces(const std::string& file_name, ByteSource::Progress progress = nullptr);

// The same of bytes in memory.
std::vector<DeviceTrace> device_traces_of_bytes(std::string_view bytes, const std::string& name);

}  // namespace weft
