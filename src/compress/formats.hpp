// The compressors of this folder, one function for each format, for the table in compressor.cpp.
#pragma once

#include "compress/compressor.hpp"

namespace weft {

const Compressor& bf16_compressor();
const Compressor& fp16_compressor();
const Compressor& int8_compressor();
const Compressor& int8_stochastic_compressor();
const Compressor& int4_compressor();
const Compressor& int4_stochastic_compressor();
const Compressor& fp8_e4m3_compressor();
const Compressor& fp8_e5m2_compressor();
const Compressor& onebit_compressor();
const Compressor& ternary_compressor();
const Compressor& top_k_compressor();
const Compressor& random_k_compressor();

}  // namespace weft
