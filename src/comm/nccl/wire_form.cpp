#include "comm/nccl/wire_form.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace weft {
namespace {

// A group of more calls takes the host and the library longer than copying its pieces together.
constexpr std::int64_t kMostCalls = 64;
constexpr std::int64_t kScratchAlignment = 256;

using Segments = std::span<const Segment>;

bool same_memory(Segments a, Segments b) {
  return !a.empty() && std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Segment& x, const Segment& y) {
    return x.data == y.data && x.bytes == y.bytes;
  });
}

bool is_shared_out(const PreparedCall& call) {
  return call.spec.kind == Collective::all_gather || call.spec.kind == Collective::reduce_scatter;
}

// Where the members' shares of the whole buffer begin, in elements, and where the last ends. One share: all of it.
std::vector<std::int64_t> share_borders(const PreparedCall& call) {
  const std::int64_t shares = is_shared_out(call) ? call.spec.ranks : 1, slots = call.spec.pieces / shares;
  std::vector<std::int64_t> borders = {0};
  for (auto piece = call.sizes.begin(); std::ssize(borders) <= shares; piece += slots) {
    borders.push_back(std::accumulate(piece, piece + slots, borders.back()));
  }
  return borders;
}

// all_to_all: what one member sends to another.
std::int64_t block_elements(const PreparedCall& call, std::int64_t src, std::int64_t dst) {
  const std::int64_t slots = call.spec.pieces / call.spec.ranks;
  const auto first = call.sizes.begin() + src * call.spec.pieces + dst * slots;
  return std::accumulate(first, first + slots, std::int64_t{0});
}

SegmentMap map_of(Segments segments) {
  SegmentMap map;
  map.reserve(std::ssize(segments));
  map.bind(segments);
  return map;
}

// Adds where parts of the range that lie in one place end, in elements from its begin.
void add_cuts(const SegmentMap& map, std::int64_t begin, std::int64_t elements, std::int64_t width,
              std::set<std::int64_t>& cuts) {
  std::vector<Segment> places;
  map.append(begin * width, elements * width, places);
  std::int64_t at = 0;
  for (const Segment& place : places) cuts.insert(at += place.bytes / width);
}

WireForm pieces_between(const std::set<std::int64_t>& cuts) {
  WireForm form;
  std::int64_t begin = 0;
  for (const std::int64_t end : cuts) {
    if (end > begin) form.push_back({.owner = 0, .elements = end - begin, .begins = {begin}});
    begin = end;
  }
  return form;
}

struct Part {
  std::int64_t begin = 0, elements = 0;  // in the whole buffer
};

// Parts of the shares that lie at equal distances in memory, as shards of a tensor do, go in one call; others, each by
// itself, from or to its owner.
WireForm form_of_shares(const PreparedCall& call, Segments whole) {
  const SegmentMap map = map_of(whole);
  const std::vector<std::int64_t> borders = share_borders(call);
  const std::int64_t width = size_of(call.type).value, shares = std::ssize(borders) - 1;
  std::vector<std::map<const std::byte*, Part>> parts(static_cast<std::size_t>(shares));
  std::vector<Segment> places, of_first;
  for (std::int64_t share = 0; share < shares; ++share) {
    places.clear();
    map.append(borders[share] * width, (borders[share + 1] - borders[share]) * width, places);
    std::int64_t begin = borders[share];
    for (const Segment& place : places) {
      parts[share][place.data] = {begin, place.bytes / width};
      begin += place.bytes / width;
    }
    if (share == 0) of_first = places;
  }
  WireForm form;
  for (const Segment& first : of_first) {
    WirePiece row{.owner = WirePiece::kEveryMember, .elements = first.bytes / width, .begins = {}};
    for (std::int64_t share = 0; share < shares; ++share) {
      const auto found = parts[share].find(first.data + share * first.bytes);
      if (found == parts[share].end() || found->second.elements != row.elements) break;
      row.begins.push_back(found->second.begin);
    }
    if (std::ssize(row.begins) < shares) continue;
    for (std::int64_t share = 0; share < shares; ++share) parts[share].erase(first.data + share * first.bytes);
    form.push_back(std::move(row));
  }
  // By their place in the buffer, which is alike on all members, not by their address.
  std::map<std::int64_t, WirePiece> others;
  for (std::int64_t share = 0; share < shares; ++share) {
    for (const auto& [address, part] : parts[share]) others[part.begin] = {share, part.elements, {part.begin}};
  }
  for (const auto& [begin, piece] : others) form.push_back(piece);
  return form;
}

// Where every block is cut alike on both sides, pieces of it; otherwise none, and blocks go as they are.
WireForm form_of_blocks(const PreparedCall& call, std::int64_t member, Segments input, Segments output) {
  const std::int64_t width = size_of(call.type).value;
  std::set<std::set<std::int64_t>> all_cuts;
  for (const bool incoming : {false, true}) {
    const SegmentMap map = map_of(incoming ? output : input);
    std::int64_t begin = 0;
    for (std::int64_t other = 0; other < call.spec.ranks; ++other) {
      const std::int64_t elements =
          incoming ? block_elements(call, other, member) : block_elements(call, member, other);
      std::set<std::int64_t> cuts;
      add_cuts(map, begin, elements, width, cuts);
      all_cuts.insert(std::move(cuts));
      begin += elements;
    }
  }
  return all_cuts.size() == 1 ? pieces_between(*all_cuts.begin()) : WireForm{};
}

class Binder {
 public:
  Binder(const PreparedCall& call, std::int64_t member, Segments input, Segments output, std::byte* scratch)
      : call_(call),
        member_(member),
        in_place_(same_memory(input, output)),
        width_(size_of(call.type).value),
        borders_(share_borders(call)),
        input_(map_of(in_place_ ? output : input)),
        output_(map_of(output)),
        // Where it asks how much is needed, addresses are only counted with.
        scratch_(scratch != nullptr ? scratch : reinterpret_cast<std::byte*>(kScratchAlignment)) {}

  WireCalls bind(const WireForm& form, std::span<const int> peers) {
    if (call_.spec.kind == Collective::all_to_all) {
      exchange_blocks(form, peers);
      return std::move(result_);
    }
    for (const WirePiece& piece : form) {
      if (piece.elements == 0) continue;
      if (call_.spec.kind == Collective::all_reduce) all_reduce(piece);
      if (call_.spec.kind == Collective::all_gather) all_gather(piece, peers);
      if (call_.spec.kind == Collective::reduce_scatter) reduce_scatter(piece, peers);
      if (call_.spec.kind == Collective::send_recv) message(piece, peers);
    }
    return std::move(result_);
  }

 private:
  enum Use : std::uint8_t { reads = 1, writes = 2, aside = 4 };  // aside: a copy in any case

  // One place for the ranges of a buffer, one after the other: theirs, or scratch memory.
  std::byte* place(const SegmentMap& map, std::span<const std::int64_t> begins, std::int64_t elements, int use) {
    places_.clear();
    for (const std::int64_t begin : begins) map.append(begin * width_, elements * width_, places_);
    if (places_.empty()) return nullptr;
    if (places_.size() == 1 && (use & aside) == 0) return places_.front().data;
    std::byte* const all = scratch_ + result_.scratch;
    std::byte* at = all;
    for (const Segment& segment : places_) {
      if ((use & reads) != 0) result_.before.push_back({at, segment.data, segment.bytes});
      if ((use & writes) != 0) result_.after.push_back({segment.data, at, segment.bytes});
      at += segment.bytes;
    }
    result_.scratch += (at - all + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    return all;
  }

  std::byte* place(const SegmentMap& map, std::int64_t begin, std::int64_t elements, int use) {
    return place(map, std::span(&begin, 1), elements, use);
  }

  // This member's part of a piece in the buffer that holds its share alone.
  std::byte* own(const SegmentMap& map, const WirePiece& piece, int use) {
    const bool of_all = piece.owner == WirePiece::kEveryMember;
    return place(map, piece.begins[of_all ? member_ : 0] - borders_[member_], piece.elements, use);
  }

  void add(NcclCall::Kind kind, const std::byte* src, std::byte* dst, std::int64_t elements, int peer = 0) {
    result_.calls.push_back({kind, src, dst, elements, peer});
  }

  void all_reduce(const WirePiece& piece) {
    std::byte* const to = place(output_, piece.begins, piece.elements, in_place_ ? reads | writes : writes);
    const std::byte* const from = in_place_ ? to : place(input_, piece.begins, piece.elements, reads);
    add(NcclCall::Kind::all_reduce, from, to, piece.elements);
  }

  void all_gather(const WirePiece& piece, std::span<const int> peers) {
    const bool of_all = piece.owner == WirePiece::kEveryMember, mine = of_all || piece.owner == member_;
    std::byte* const whole = place(output_, piece.begins, piece.elements, in_place_ && mine ? reads | writes : writes);
    const std::byte* from = whole;
    if (mine && in_place_ && of_all) from = whole + member_ * piece.elements * width_;
    if (mine && !in_place_) from = own(input_, piece, reads);
    if (of_all) return add(NcclCall::Kind::all_gather, from, whole, piece.elements);
    add(NcclCall::Kind::broadcast, from, whole, piece.elements, peers[piece.owner]);
  }

  void reduce_scatter(const WirePiece& piece, std::span<const int> peers) {
    const bool of_all = piece.owner == WirePiece::kEveryMember, mine = of_all || piece.owner == member_;
    const bool stays = in_place_ && mine;
    std::byte* const whole = place(input_, piece.begins, piece.elements, stays ? reads | writes : reads);
    std::byte* const contribution = of_all ? whole + member_ * piece.elements * width_ : whole;
    std::byte* to = nullptr;
    if (mine) to = in_place_ ? contribution : own(output_, piece, call_.accumulate ? reads | writes : writes);
    if (mine && call_.accumulate) result_.sums.push_back({contribution, contribution, to, piece.elements * width_});
    if (of_all) return add(NcclCall::Kind::reduce_scatter, whole, to, piece.elements);
    add(NcclCall::Kind::reduce, whole, to, piece.elements, peers[piece.owner]);
  }

  void message(const WirePiece& piece, std::span<const int> peers) {
    if (member_ == call_.spec.root) {
      const std::byte* const from = place(input_, piece.begins, piece.elements, reads);
      add(NcclCall::Kind::send, from, nullptr, piece.elements, peers[1 - member_]);
    } else {
      std::byte* const to = place(output_, piece.begins, piece.elements, writes);
      add(NcclCall::Kind::receive, nullptr, to, piece.elements, peers[call_.spec.root]);
    }
  }

  void exchange_blocks(const WireForm& form, std::span<const int> peers) {
    std::int64_t sent = 0, received = 0;
    for (std::int64_t other = 0; other < call_.spec.ranks; ++other) {
      const std::int64_t out = block_elements(call_, member_, other), in = block_elements(call_, other, member_);
      const auto each = [&](std::int64_t elements, const auto& body) {
        if (!form.empty()) {
          for (const WirePiece& piece : form) body(piece.begins.front(), piece.elements);
        } else if (elements > 0) {
          body(std::int64_t{0}, elements);
        }
      };
      each(out, [&](std::int64_t begin, std::int64_t elements) {
        const std::byte* from = place(input_, sent + begin, elements, in_place_ ? reads | aside : reads);
        add(NcclCall::Kind::send, from, nullptr, elements, peers[other]);
      });
      each(in, [&](std::int64_t begin, std::int64_t elements) {
        std::byte* to = place(output_, received + begin, elements, writes);
        add(NcclCall::Kind::receive, nullptr, to, elements, peers[other]);
      });
      sent += out;
      received += in;
    }
  }

  const PreparedCall& call_;
  std::int64_t member_;
  bool in_place_;
  std::int64_t width_;
  std::vector<std::int64_t> borders_;
  SegmentMap input_, output_;
  std::byte* scratch_;
  std::vector<Segment> places_;
  WireCalls result_;
};

// Of all members together where each has blocks of its own.
std::int64_t calls_of(const PreparedCall& call, const WireForm& form) {
  const bool has_blocks = call.spec.kind == Collective::all_to_all;
  return std::ssize(form) * (has_blocks ? call.spec.ranks * call.spec.ranks : 1);
}

bool is_worth_its_calls(const PreparedCall& call, const WireForm& form, std::int64_t least_bytes) {
  const std::int64_t calls = calls_of(call, form), fewest = std::max<std::int64_t>(1, calls_of(call, plain_form(call)));
  if (calls <= fewest) return true;
  const std::int64_t elements = std::accumulate(call.sizes.begin(), call.sizes.end(), std::int64_t{0});
  return std::ssize(form) <= kMostCalls && elements * size_of(call.type).value >= calls * least_bytes;
}

}  // namespace

WireForm plain_form(const PreparedCall& call) {
  if (call.spec.kind == Collective::all_to_all) return {};
  const std::vector<std::int64_t> borders = share_borders(call);
  WirePiece row{.owner = WirePiece::kEveryMember, .elements = borders[1], .begins = {}};
  WireForm form;
  bool even = is_shared_out(call);
  for (std::int64_t share = 0; share + 1 < std::ssize(borders); ++share) {
    const std::int64_t elements = borders[share + 1] - borders[share];
    even = even && elements == row.elements;
    row.begins.push_back(borders[share]);
    if (elements > 0) form.push_back({.owner = share, .elements = elements, .begins = {borders[share]}});
  }
  return even ? WireForm{row} : form;
}

WireForm fitting_form(const PreparedCall& call, std::int64_t member, Segments input, Segments output,
                      std::int64_t least_bytes) {
  WireForm form;
  if (is_shared_out(call)) {
    const bool whole_is_output = call.spec.kind == Collective::all_gather || same_memory(input, output);
    form = form_of_shares(call, whole_is_output ? output : input);
  } else if (call.spec.kind == Collective::all_to_all) {
    form = form_of_blocks(call, member, input, output);
  } else {
    std::set<std::int64_t> cuts;
    const std::int64_t elements = share_borders(call).back(), width = size_of(call.type).value;
    for (const SegmentMap& map : {map_of(input), map_of(output)}) {
      if (map.bytes() > 0) add_cuts(map, 0, elements, width, cuts);  // an end of a message has one buffer
    }
    form = pieces_between(cuts);
  }
  return is_worth_its_calls(call, form, least_bytes) ? form : plain_form(call);
}

std::uint64_t hash_of(const WireForm& form) {
  std::uint64_t hash = form.size();
  const auto mix = [&](std::int64_t value) { hash = mix_bits(hash ^ static_cast<std::uint64_t>(value)); };
  for (const WirePiece& piece : form) {
    mix(piece.owner);
    mix(piece.elements);
    for (const std::int64_t begin : piece.begins) mix(begin);
  }
  return hash;
}

WireCalls bind_calls(const PreparedCall& call, std::int64_t member, const WireForm& form, std::span<const int> peers,
                     Segments input, Segments output, std::byte* scratch) {
  return Binder(call, member, input, output, scratch).bind(form, peers);
}

}  // namespace weft
