// One training iteration as operations with data dependencies, one graph per rank class.
//
// An operation that repeats over micro-batches is stored once; its instances are numbered by micro-batch. Values are
// immutable. A read names its value and an iteration distance: 0, or 1 for what the previous iteration wrote
// (updated parameters -> next forward). Dependencies are not stored; they follow from reads and writes:
//   per micro-batch -> per micro-batch   same micro-batch
//   per micro-batch -> once a step       every micro-batch (an accumulated gradient)
//   once a step     -> per micro-batch   each of them
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/wire_format.hpp"
#include "cluster/cluster.hpp"
#include "collective/carried_program.hpp"
#include "collective/mover.hpp"
#include "graph/layout.hpp"
#include "graph/operand.hpp"
#include "graph/operation.hpp"
#include "graph/rank_classes.hpp"
#include "graph/sharding.hpp"
#include "model/transformer.hpp"

namespace weft {

enum class ValueKind : std::uint8_t { parameter, gradient, optimizer_state, activation, activation_grad, scalar };
std::string_view name_of(ValueKind kind);

// A tensor on each rank of a class. `shape` is the local shape.
struct Value {
  std::string name;  // "layer 3 qkv.weight", "layer 3 ffn_in.out"
  ClassId rank_class;
  ValueKind kind = ValueKind::activation;
  ElementType dtype = ElementType::bf16;
  std::vector<std::int64_t> shape;
  Sharding sharding = {};  // how it is a part of a whole
  bool per_micro_batch = true;
  bool accumulated = false;  // a sum over micro-batches or over the turns of a layer group: several instances write it
  double bytes_per_element = 0;  // 0: as the format says; optimizer state has 12, masks 1
  std::int32_t scale_block = 0;  // elements that share an fp32 scale, which lies beside them; 0: no scales
  friend bool operator==(const Value&, const Value&) = default;

  std::int64_t elements() const;
  Bytes bytes() const;
  // The wire format of the value unless a transfer states another.
  WireFormat format() const { return {dtype, scale_block}; }
};

struct Read {
  Operand operand;
  ValueId value;
  std::int32_t distance = 0;
  friend bool operator==(const Read&, const Read&) = default;
};

struct Write {
  Operand operand;
  ValueId value;
  friend bool operator==(const Write&, const Write&) = default;
};

// What a transfer carries. `bytes` is the whole buffer as collective_traffic() takes it: wire_bytes() of its elements.
struct Communication {
  Collective collective = Collective::all_reduce;
  // How it is carried out, chosen when the plan is made (graph/transfer_program.hpp).
  Algorithm algorithm = Algorithm::ring;
  std::int32_t parts = 1;   // pieces that a message is cut into for pipelining through the ranks
  std::int32_t inner = 0;   // hierarchical: members of an inner group; 0: no such groups
  ProgramRef program = {};  // carried: what carries it out
  Mover mover = {};         // of a library's collective on GPUs, chosen when the plan is made
  GroupKind group = GroupKind::dp;
  Scope scope = Scope::whole;      // a leg of a substituted transfer may work in levels of its group
  LevelSizes levels = kOwnLevels;  // and in others than the group's own
  WireFormat format = {};
  Bytes bytes{};
  // Operations of several classes that are one transfer share this number; -1: all members are of one class.
  std::int32_t transfer = -1;
  bool sends = true;  // send_recv: this end sends
  friend bool operator==(const Communication&, const Communication&) = default;
};

// A part of an operation of the graph that a rewrite started from (graph/operation_part.hpp says what it touches).
struct Origin {
  OpId operation;
  std::int32_t axis = 0;
  std::int64_t begin = 0, end = 1;  // of `of` equal pieces along the axis
  std::int64_t of = 1;
  friend bool operator==(const Origin&, const Origin&) = default;
};

struct Operation {
  ClassId rank_class;
  std::int32_t chunk = 0;   // model chunk of the pipeline rank; 0..vpp-1
  std::int32_t layer = -1;  // of the whole model; -1: none
  Phase phase = Phase::forward;
  Role role = Role::update;
  Role subject = Role::update;  // whose parameters it serves (grad_reduce of qkv); otherwise equal to role
  std::int32_t part = 0;
  // Where micro-batches pass layers in groups (Layout::layer_group), which of a group it is of; where sequences are cut
  // (Layout::slice_tokens), which slice. -1: of all of them.
  std::int32_t turn = -1;
  // For a leg of a substituted transfer: the rule, and which of its legs it is.
  Substitution rule = Substitution::none;
  std::int32_t leg = 0;
  bool per_micro_batch = true;
  OpKey key;
  std::optional<Communication> communication;
  std::vector<Read> reads;
  std::vector<Write> writes;
  std::vector<Origin> origins;  // empty: the operation itself, whole
  std::string task_name = {};   // of a user's task; empty: roles say what it is
  friend bool operator==(const Operation&, const Operation&) = default;

  bool is_transfer() const { return communication.has_value(); }
};

// Returns the value that an operation reads or writes under a name, for a merged operation the first. There must be
// one.
ValueId read_of(const Operation& operation, Operand operand);
ValueId write_of(const Operation& operation, Operand operand);
// The same, and no valid id where it has none.
ValueId find_read(const Operation& operation, Operand operand);
ValueId find_write(const Operation& operation, Operand operand);
bool writes_value(const Operation& operation, ValueId value);

// What a transfer reads and what it makes of it. Both lists have the same names in the same order, which the verifier
// checks; those of a merged transfer are in the order of its origins. Empty for a message, which has one end here.
struct Carried {
  ValueId read, written;
};
std::vector<Carried> carried_by(const Operation& transfer);
// Whether it is a transfer of one value.
bool carries_one_value(const Operation& operation);

// "layer 3 qkv forward"; with its class where several classes are in sight.
std::string describe(const Operation& operation);

// The slots of a rank's tokens on their way to experts: `capacity` for each of `experts`, of which balanced loads fill
// rows * top_k.
struct RoutedSlots {
  std::int64_t experts = 0;  // 0: a model without experts
  std::int64_t top_k = 1;
  std::int64_t capacity = 0;                // slots of an expert for the tokens of one rank
  bool balanced = false;                    // there are as many slots as balanced loads fill, whatever gates choose
  bool in_token_order = false;              // tokens get slots in their order, so that parts can follow each other
  bool uneven = false;                      // uncut operations carry only the filled slots
  bool forwarded = false;                   // Layout::ep_forwarding
  std::int64_t groups = 1, group_topk = 1;  // Experts::router_groups, router_group_topk
  std::int64_t slots() const { return experts * capacity; }
  friend bool operator==(const RoutedSlots&, const RoutedSlots&) = default;
};
RoutedSlots routed_slots(const Transformer& model, const Layout& layout);
// Returns whether a gate gives slots to tokens in their order, so that later tokens go on where earlier ones ended.
bool gives_slots_in_token_order(const Experts& experts);
// Returns the fraction of the token copies for experts that remains when each of `domains` equal domains of experts
// gets a token once. Choices are assumed random among the experts of the groups that a token may use, and these groups
// are assumed to lie in as many domains as possible.
double distinct_share(const RoutedSlots& routed, std::int64_t domains);

// How the tokens of a micro-batch lie in the rows of a rank's activations, sequence by sequence; cutting by rows relies
// on it.
struct TokenRows {
  std::int64_t shards = 1;     // sequence parallelism: ranks that hold an equal part of every sequence; 1 without it
  std::int64_t rows = 0;       // of a shard; 0: nothing is cut by rows
  std::int64_t sequences = 0;  // of a micro-batch; 0: context-parallel ranks hold parts of them
  RoutedSlots routed = {};
  std::vector<std::int64_t> slice_rows = {};  // of a shard, by slice; empty: sequences pass whole

  // What the operations of a turn have. A slice has slots of its own. Its gate goes on where that of the slice before
  // it ended, so that it fills no more slots of an expert than the micro-batch may, nor more than it has rows.
  std::int64_t rows_of(std::int32_t turn) const { return slice_rows.empty() ? rows : slice_rows.at(turn); }
  std::int64_t capacity_of(std::int32_t turn) const;
  std::int64_t slots_of(std::int32_t turn) const { return routed.experts * capacity_of(turn); }
  friend bool operator==(const TokenRows&, const TokenRows&) = default;
};
TokenRows token_rows(const Layout& layout);

struct StepGraph {
  std::int64_t micro_batches = 1;  // that pass it one after the other; of layer groups, as many as there are groups
  TokenRows tokens = {};
  IdVector<ClassId, RankClass> classes;
  std::vector<LinkClass> links;
  IdVector<OpId, Operation> operations;  // in an order that respects distance-0 dependencies within a class
  IdVector<ValueId, Value> values;

  const Operation& op(OpId id) const { return operations[id]; }
  const Value& value(ValueId id) const { return values[id]; }
};

// The operations that write each value, by value.
std::vector<std::vector<OpId>> writers_of(const StepGraph& graph);

StepGraph build_step_graph(const Transformer& model, const Cluster& cluster, const Layout& layout);
// With the classes that find_rank_classes gave for this cluster and layout (RankClassCache keeps them).
StepGraph build_step_graph(const Transformer& model, const Cluster& cluster, const Layout& layout,
                           const RankClasses& classes);

}  // namespace weft
