// CRC-32 as zlib, gzip and PNG have it (reflected polynomial 0xEDB88320), so that anybody can check a file with theirs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Of bytes that follow others whose sum is `before`: crc32(b, n, crc32(a, m)) is that of a and b together.
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0);

}  // namespace weft
