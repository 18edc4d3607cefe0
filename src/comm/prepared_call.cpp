#include "comm/prepared_call.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxQueues = 1024;

template <std::size_t size>
void copy_text(std::array<char, size>& to, const std::string& from) {
  std::copy_n(from.begin(), std::min(from.size(), size - 1), to.begin());
}

// FNV-1a over everything on which members must agree and that the note does not spell out.
std::uint64_t hash_of(const PreparedCall& call) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto mix = [&](std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte)
      hash = (hash ^ ((static_cast<std::uint64_t>(value) >> (8 * byte)) & 0xff)) * 1099511628211ULL;
  };
  mix(call.spec.pieces);
  mix(call.program != nullptr && call.program->in_place ? 1 : 0);
  for (const std::int64_t size : call.sizes) mix(size);
  for (const std::int64_t member : call.members) mix(member);
  if (call.uneven) {
    for (const std::int64_t number : {call.uneven->blocks, call.uneven->units, call.uneven->unit_bytes}) mix(number);
    mix(call.uneven->known ? 1 : 0);
    mix(call.uneven->in_run);
  }
  return hash;
}

}  // namespace

std::int64_t member_of(const PreparedCall& call, std::int64_t rank) {
  if (call.queue < 0 || call.queue >= kMaxQueues)
    fail("{}: queue {} is not in 0..{}", call.label, call.queue, kMaxQueues - 1);
  if (call.segments < 1) fail("{}: buffers of {} segments; 1 or more are allowed", call.label, call.segments);
  if (call.uneven)
    WEFT_CHECK(call.spec.kind == Collective::all_to_all && call.program == nullptr && call.segments == 2);
  if (call.accumulate) {
    WEFT_CHECK(call.spec.kind == Collective::reduce_scatter && call.op == ReduceOp::sum);
    WEFT_CHECK(call.program == nullptr || !call.program->in_place);
  }
  const auto self = std::find(call.members.begin(), call.members.end(), rank);
  if (self == call.members.end()) fail("{}: rank {} is no member of it", call.label, rank);
  return self - call.members.begin();
}

std::string program_in_words(const PreparedCall& call) {
  if (call.uneven) return "uneven";
  return call.program != nullptr ? call.program->name : "native";
}

CallNote note_of(const PreparedCall& call) {
  CallNote note;
  note.elements = std::accumulate(call.sizes.begin(), call.sizes.end(), std::int64_t{0});
  note.shape = hash_of(call);
  note.identity = call.identity >= 0 ? static_cast<std::uint64_t>(call.identity) : hash_text(call.label);
  note.kind = static_cast<std::int32_t>(call.spec.kind);
  note.op = static_cast<std::int32_t>(call.op);
  note.type = static_cast<std::int32_t>(call.type);
  note.root = static_cast<std::int32_t>(call.spec.root);
  copy_text(note.algorithm, program_in_words(call));
  copy_text(note.label, call.label);
  return note;
}

ByteRange own_part_of_input(const PreparedCall& call, std::int64_t member) {
  const std::int64_t slots = call.spec.pieces / call.spec.ranks;
  const auto own = call.sizes.begin() + member * slots;
  const std::int64_t element = size_of(call.type).value;
  return {BufferKind::input, std::accumulate(call.sizes.begin(), own, std::int64_t{0}) * element,
          std::accumulate(own, own + slots, std::int64_t{0}) * element};
}

}  // namespace weft
