// What a proof of knowing a secret is made of: random bytes and a hash that only holders of the key can compute. The
// one place that calls the cryptographic library (OpenSSL's libcrypto).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::tcp {

// From the system's generator, written as twice as many hexadecimal digits. Throws Error where the library has none.
std::string random_hex(std::size_t bytes);

// HMAC-SHA-256 (RFC 2104), as 64 hexadecimal digits. Throws Error.
std::string keyed_hash(std::string_view key, std::string_view text);

// Takes the same time wherever two texts of one length differ, so that nobody can guess a hash digit by digit.
bool is_same_hash(std::string_view one, std::string_view other);

}  // namespace weft::tcp
