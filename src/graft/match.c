/* Matching by names and by structure. Sweeps forwards (from inputs and constants) and backwards (from outputs) until
 * nothing new is found; each looks at every node once, and their number is bounded. */
#include "graft/match.h"

#include <string.h>

#include "base/bytes.h"

enum {
  MOST_SWEEPS = 6,
  MOST_CANDIDATES = 16, /* that are looked at for one node */
  MOST_PREFIXES = 4,
  MOST_PARTS = 8,   /* of a name that may be a prefix */
  FEW_WEIGHTS = 4,  /* too few to tell models apart */
  MOST_STEPS = 4,   /* from a weight to the node that reads it */
  MOST_READERS = 8, /* of a node's weights */
  MOST_INPUTS = 64, /* of a node that are searched for a value */
};

/* ---- types ---- */

static bool same_shape(Type a, Type b) {
  if (a.dtype == DTYPE_NONE || b.dtype == DTYPE_NONE || type_is_unranked(a) || type_is_unranked(b)) return true;
  if (a.rank != b.rank) return false;
  for (uint32_t i = 0; i < a.rank; i++) {
    bool constant = dim_is_constant(a.dims[i]) && dim_is_constant(b.dims[i]);
    if (constant && a.dims[i].constant != b.dims[i].constant) return false;
  }
  return true;
}

static bool can_be_same(const Match *match, Index processed, Index original) {
  const SideValue *b = side_value(match->processed, processed), *a = side_value(match->original, original);
  return same_shape(a->value->type, b->value->type);
}

/* ---- names ---- */

static Index through_prefixes(const Match *match, Str name, Index (*find)(const Side *, Str)) {
  Index found = find(match->original, name);
  for (size_t i = 0; !found && i < match->prefixes.count; i++) {
    Str prefix = match->prefixes.items[i];
    size_t length = str_length(prefix);
    if (strncmp(name, prefix, length) != 0) continue;
    found = find(match->original, str_intern(match->context, name + length));
  }
  return found;
}

Index match_value_named(const Match *match, Str name) { return through_prefixes(match, name, side_value_named); }
Index match_node_named(const Match *match, Str name) { return through_prefixes(match, name, side_node_named); }

static bool ends_part(char c) { return strchr("/_.:-", c) != NULL && c; }

typedef struct Vote {
  Str prefix;
  size_t count;
} Vote;

/* The shortest part of a name that leaves a name of the original's. */
static Str prefix_of(const Match *match, Str name) {
  int parts = 0;
  for (const char *c = name; *c && parts < MOST_PARTS; c++) {
    if (!ends_part(*c)) continue;
    parts++;
    Str rest = c[1] ? str_intern(match->context, c + 1) : NULL;
    if (!rest || !map_get_pointer(&match->original->value_names, rest)) continue;
    return str_intern_sized(match->context, name, (size_t)(c + 1 - name));
  }
  return NULL;
}

/* A prefix counts when a tenth of the names that are unknown as they stand have it. */
static void find_prefixes(Match *match) {
  Map votes = {0};
  ARRAY(Vote *) all = {0};
  size_t unknown = 0;
  for (Index i = 1; i < match->processed->values.count; i++) {
    Str name = side_value(match->processed, i)->value->name;
    if (!name || !*name || map_get_pointer(&match->original->value_names, name)) continue;
    unknown++;
    Str prefix = prefix_of(match, name);
    if (!prefix) continue;
    void **slot = map_slot_pointer(match->context, &votes, prefix);
    if (!*slot) {
      Vote *vote = arena_new(&match->context->arena, Vote);
      vote->prefix = prefix;
      *slot = vote;
      array_push(match->context, &all, vote);
    }
    ((Vote *)*slot)->count++;
  }
  for (size_t i = 0; i < all.count && match->prefixes.count < MOST_PREFIXES; i++) {
    if (all.items[i]->count >= 2 && all.items[i]->count * 10 >= unknown) {
      array_push(match->context, &match->prefixes, all.items[i]->prefix);
    }
  }
}

/* ---- the original's nodes by what they compute ---- */

static uint64_t same_of(const Match *match, Index original) { return side_value(match->original, original)->same; }

/* What a value is, in the numbers of the original's: 0 when it is not known. */
static uint64_t meaning(const Match *match, const Side *side, Index value) {
  if (side == match->original) return same_of(match, value);
  Index twin = side_value(side, value)->twin;
  return twin ? same_of(match, twin) : 0;
}

/* 0: an input is unknown. */
static uint64_t alike_key(const Match *match, const Side *side, const SideNode *node) {
  uint64_t hash = hash_mix(str_hash(node->node->op_type), str_hash(node->node->domain));
  hash = hash_mix(hash, node->attributes);
  for (uint32_t i = 0; i < node->node->input_count; i++) {
    uint64_t input = node->inputs[i] ? meaning(match, side, node->inputs[i]) : UINT64_MAX;
    if (!input) return 0;
    hash = hash_mix(hash, input);
  }
  return hash | 1;
}

/* The same for the operator and its inputs alone that are not constant, in any order; 0: there are none. */
static uint64_t loose_key(const Match *match, const Side *side, const SideNode *node) {
  uint64_t sum = 0;
  size_t count = 0;
  for (uint32_t i = 0; i < node->node->input_count; i++) {
    if (!node->inputs[i] || side_value(side, node->inputs[i])->is_constant) continue;
    uint64_t input = meaning(match, side, node->inputs[i]);
    if (!input) return 0;
    sum += hash_mix(input, 1);
    count++;
  }
  return count ? hash_mix(hash_mix(str_hash(node->node->op_type), count), sum) | 1 : 0;
}

/* Values that are computed in the same way count as the first of them. */
static void unite(Match *match, Index index) {
  Side *side = match->original;
  const SideNode *node = side_node(side, index);
  if (node_is(node->node, OP_Identity) && node->node->input_count == 1 && node->inputs[0] && node->outputs[0]) {
    side_value(side, node->outputs[0])->same = (Index)same_of(match, node->inputs[0]);
  }
  uint64_t key = alike_key(match, side, node);
  if (node->bodies || !node->node->input_count || !key) return;
  void **slot = map_slot(match->context, &match->alike, key, 0);
  if (!*slot) *slot = (void *)(uintptr_t)index;
  const SideNode *first = side_node(side, (Index)(uintptr_t)*slot);
  for (uint32_t i = 0; i < node->node->output_count && i < first->node->output_count; i++) {
    if (!node->outputs[i] || !first->outputs[i] || node == first) continue;
    side_value(side, node->outputs[i])->same = (Index)same_of(match, first->outputs[i]);
  }
}

static void push_front(Match *match, Map *map, uint64_t key, Index index, Index *next) {
  if (!key) return;
  void **slot = map_slot(match->context, map, key, 0);
  *next = (Index)(uintptr_t)*slot;
  *slot = (void *)(uintptr_t)index;
}

/* Marks constants whose contents no other one has. */
static void mark_alone(Match *match) {
  Side *side = match->original;
  for (Index i = 1; i < side->values.count; i++) {
    SideValue *value = side_value(side, i);
    value->alone = value->same == i;
    if (value->same != i) side_value(side, value->same)->alone = false;
  }
}

static void index_constants(Match *match) {
  Side *side = match->original;
  for (Index i = 1; i < side->values.count; i++) {
    SideValue *value = side_value(side, i);
    if (value->content) {
      void **slot = map_slot(match->context, &match->contents, value->content, 0);
      if (!*slot) *slot = (void *)(uintptr_t)i;
      value->same = (Index)(uintptr_t)*slot;
    }
    if (!value->likeness) continue;
    void **slot = map_slot(match->context, &match->likenesses, value->likeness, 0);
    uintptr_t before = (uintptr_t)*slot;
    bool other = before == AMBIGUOUS || (before && same_of(match, (Index)before) != value->same);
    *slot = (void *)(uintptr_t)(other ? AMBIGUOUS : i);
  }
}

static void index_original(Match *match) {
  Side *side = match->original;
  index_constants(match);
  mark_alone(match);
  for (Index i = 1; i < side->nodes.count; i++) {
    if (!side_node(side, i)->in_place) unite(match, i);
  }
  match->alike = (Map){0};
  for (Index i = (Index)side->nodes.count; --i;) {
    SideNode *node = side_node(side, i);
    if (node->in_place) continue;
    push_front(match, &match->alike, alike_key(match, side, node), i, &node->next_alike);
    push_front(match, &match->loose, loose_key(match, side, node), i, &node->next_loose);
  }
}

/* ---- pairs ---- */

static void set_twin(Match *match, Index processed, Index original) {
  SideValue *b = side_value(match->processed, processed), *a = side_value(match->original, original);
  if (b->twin) return;
  b->twin = original;
  if (!a->twin) a->twin = processed;
  match->changed = true;
}

static void pair_values(Match *match, Index processed, Index original);

static void pair_body(Match *match, const SideBody *b, const SideBody *a) {
  if (b->input_count == a->input_count) {
    for (uint32_t i = 0; i < b->input_count; i++) {
      if (can_be_same(match, b->inputs[i], a->inputs[i])) set_twin(match, b->inputs[i], a->inputs[i]);
    }
  }
  if (b->output_count != a->output_count) return;
  for (uint32_t i = 0; i < b->output_count; i++) pair_values(match, b->outputs[i], a->outputs[i]);
}

static bool reads_value(const SideNode *node, Index value) {
  for (uint32_t i = 0; i < node->node->input_count && i < MOST_INPUTS; i++) {
    if (node->inputs[i] == value) return true;
  }
  return false;
}

/* What a node of the original gives is what its twin gives. But where a tool took the next node away, and gave its name
 * to the value before it, readers of that value read what the next node gave. */
static Index output_twin(const Match *match, Index processed, Index original) {
  if (!match->trust_values) return original;
  Index named = match_value_named(match, side_value(match->processed, processed)->value->name);
  Index maker = named ? side_value(match->original, named)->producer : NONE;
  if (!maker || named == original || !reads_value(side_node(match->original, maker), original)) return original;
  if (side_value_named(match->processed, side_value(match->original, original)->value->name)) return original;
  return can_be_same(match, processed, named) ? named : original;
}

static void pair_nodes(Match *match, Index processed, Index original, Found found) {
  SideNode *b = side_node(match->processed, processed), *a = side_node(match->original, original);
  b->twin = original;
  b->found = found;
  if (!a->twin) a->twin = processed;
  match->changed = true;
  for (uint32_t i = 0; i < b->node->output_count && i < a->node->output_count; i++) {
    if (b->outputs[i] && a->outputs[i])
      set_twin(match, b->outputs[i], output_twin(match, b->outputs[i], a->outputs[i]));
  }
  for (const SideBody *inner = b->bodies; inner; inner = inner->next) {
    const SideBody *other = a->bodies;
    while (other && other->name != inner->name) other = other->next;
    if (other) pair_body(match, inner, other);
  }
}

static bool same_operator(const SideNode *b, const SideNode *a) {
  return b->node->op_type == a->node->op_type && b->node->domain == a->node->domain;
}

/* A value's place is known: so are, as far as they agree, the nodes that make it. */
static void pair_values(Match *match, Index processed, Index original) {
  while (processed && original) {
    SideValue *b = side_value(match->processed, processed);
    if ((!b->twin && !can_be_same(match, processed, original)) ||
        (b->twin && same_of(match, b->twin) != same_of(match, original)))
      return;
    set_twin(match, processed, original);
    Index maker = b->producer, original_maker = side_value(match->original, original)->producer;
    if (!maker || !original_maker || side_node(match->processed, maker)->twin) return;
    const SideNode *one = side_node(match->processed, maker), *two = side_node(match->original, original_maker);
    if (same_operator(one, two)) {
      bool same_place = b->value->output_index == side_value(match->original, original)->value->output_index;
      if (!two->twin && same_place) pair_nodes(match, maker, original_maker, FOUND_STRUCTURE);
      return;
    }
    if (!is_carrier(one)) return;
    processed = one->inputs[0]; /* of another type or precision, but the same value */
    if (processed && side_value(match->processed, processed)->twin) return;
  }
}

/* ---- forwards ---- */

static bool named_alike(const Match *match, const SideNode *b, const SideNode *a) {
  if (match->trust_values && b->node->output_count && b->outputs[0] && a->outputs[0]) {
    Str name = side_value(match->processed, b->outputs[0])->value->name;
    if (match_value_named(match, name) == a->outputs[0]) return true;
  }
  return match->trust_nodes && *b->node->name &&
         side_node(match->original, match_node_named(match, b->node->name)) == a;
}

/* Does the processed model have the node's value elsewhere, by its name? */
static bool is_elsewhere(const Match *match, const SideNode *b, const SideNode *a) {
  if (!match->trust_values || !a->node->output_count || !a->outputs[0]) return false;
  Index there = side_value_named(match->processed, side_value(match->original, a->outputs[0])->value->name);
  return there && b->node->output_count && there != b->outputs[0];
}

static bool outputs_can_be_same(const Match *match, const SideNode *b, const SideNode *a) {
  for (uint32_t i = 0; i < b->node->output_count && i < a->node->output_count; i++) {
    if (!b->outputs[i] || !a->outputs[i]) continue;
    Index twin = side_value(match->processed, b->outputs[i])->twin;
    Index here = output_twin(match, b->outputs[i], a->outputs[i]);
    if (twin && same_of(match, twin) != same_of(match, here)) return false;
    if (!can_be_same(match, b->outputs[i], a->outputs[i])) return false;
  }
  return true;
}

static bool same_texts(const MetadataList *a, const MetadataList *b) {
  if (a->count != b->count) return false;
  for (size_t i = 0; i < a->count; i++) {
    if (a->items[i].key != b->items[i].key || a->items[i].value != b->items[i].value) return false;
  }
  return true;
}

/* Of nodes that compute the very same: the one of its name, else the first that is free, else the first. */
static Index best_alike(const Match *match, const SideNode *node, Index first) {
  Index free = NONE, candidate = first;
  for (int i = 0; candidate && i < MOST_CANDIDATES;
       i++, candidate = side_node(match->original, candidate)->next_alike) {
    const SideNode *other = side_node(match->original, candidate);
    if (!same_operator(node, other) || !outputs_can_be_same(match, node, other)) continue;
    if (named_alike(match, node, other)) return candidate;
    if (!free || (side_node(match->original, free)->twin && !other->twin)) free = candidate;
  }
  return free;
}

static int likeness_score(const Match *match, const SideNode *node, const SideNode *other) {
  int score = 1 + 4 * (node->attributes == other->attributes) + 16 * named_alike(match, node, other);
  for (uint32_t i = 0; i < node->node->input_count && i < other->node->input_count; i++) {
    if (!node->inputs[i] || !other->inputs[i]) continue;
    uint64_t one = meaning(match, match->processed, node->inputs[i]);
    if (one && one == same_of(match, other->inputs[i])) score += 2;
  }
  return score;
}

/* Of nodes with the same data: the one that is most like it, when there is one. */
static Index best_loose(const Match *match, const SideNode *node, Index first) {
  Index best = NONE, candidate = first;
  int best_score = 0;
  bool tie = false;
  for (int i = 0; candidate; i++, candidate = side_node(match->original, candidate)->next_loose) {
    if (i == MOST_CANDIDATES) return NONE;
    const SideNode *other = side_node(match->original, candidate);
    if (other->twin || !same_operator(node, other) || !outputs_can_be_same(match, node, other)) continue;
    if (is_elsewhere(match, node, other)) continue;
    int score = likeness_score(match, node, other);
    if (score < best_score) continue;
    bool same = best && same_texts(&other->node->metadata, &side_node(match->original, best)->node->metadata);
    if (score == best_score && same) continue;
    tie = score == best_score;
    best = candidate;
    best_score = score;
  }
  return tie ? NONE : best;
}

static Index by_name(const Match *match, const SideNode *node) {
  if (!node->node->output_count) return NONE;
  Index output = node->outputs[0], found = NONE;
  if (output && match->trust_values) {
    Index value = match_value_named(match, side_value(match->processed, output)->value->name);
    if (value) found = side_value(match->original, value)->producer;
    if (value && !found) return NONE;
  }
  if (!found && match->trust_nodes && *node->node->name) {
    found = match_node_named(match, node->node->name);
    if (found && is_elsewhere(match, node, side_node(match->original, found))) return NONE;
  }
  if (!found) return NONE;
  const SideNode *other = side_node(match->original, found);
  return same_operator(node, other) && outputs_can_be_same(match, node, other) ? found : NONE;
}

static Index by_structure(const Match *match, const SideNode *node) {
  uint64_t key = node->node->input_count || node->bodies ? alike_key(match, match->processed, node) : 0;
  Index found = key ? best_alike(match, node, (Index)(uintptr_t)map_get(&match->alike, key, 0)) : NONE;
  if (found) return found;
  key = loose_key(match, match->processed, node);
  return key ? best_loose(match, node, (Index)(uintptr_t)map_get(&match->loose, key, 0)) : NONE;
}

/* ---- by a weight that only one node reads ---- */

static bool is_distinctive(const Tensor *tensor) {
  size_t width = tensor ? dtype_bits(tensor->dtype) / 8 : 0;
  if (!width || !tensor->data || tensor->size < 4 * width) return false;
  return !same_bytes(tensor->data, (const char *)tensor->data + tensor->size - width, width);
}

/* The only node that reads a constant, also by way of nodes that only rearrange constants. */
static Index only_reader(const Side *side, Index value) {
  for (int step = 0; step < MOST_STEPS && value; step++) {
    if (side_value(side, value)->use_count != 1) return NONE;
    Index reader = side->uses[side_value(side, value)->first_use];
    const SideNode *node = side_node(side, reader);
    Index output = node->node->output_count ? node->outputs[0] : NONE;
    if (!output || !side_value(side, output)->is_constant) return reader;
    value = output;
  }
  return NONE;
}

typedef struct Readers {
  Index nodes[MOST_READERS]; /* of the original */
  size_t count;
} Readers;

/* The nodes of the original that alone read what this one alone reads. */
static Readers weight_readers(const Match *match, Index index) {
  Readers readers = {0};
  const SideNode *node = side_node(match->processed, index);
  for (uint32_t i = 0; i < node->node->input_count && readers.count < MOST_READERS; i++) {
    Index input = node->inputs[i];
    if (!input || !is_distinctive(side_value(match->processed, input)->tensor)) continue;
    Index twin = side_value(match->processed, input)->twin;
    if (!twin || only_reader(match->processed, input) != index || !side_value(match->original, twin)->alone) continue;
    Index reader = only_reader(match->original, twin);
    if (reader) readers.nodes[readers.count++] = reader;
  }
  return readers;
}

static Index by_weights(const Match *match, Index index) {
  const SideNode *node = side_node(match->processed, index);
  Readers readers = weight_readers(match, index);
  for (size_t i = 1; i < readers.count; i++) {
    if (readers.nodes[i] != readers.nodes[0]) return NONE;
  }
  if (!readers.count) return NONE;
  const SideNode *other = side_node(match->original, readers.nodes[0]);
  bool same = same_operator(node, other) && !other->twin && outputs_can_be_same(match, node, other);
  return same && !is_elsewhere(match, node, other) ? readers.nodes[0] : NONE;
}

/* Nodes of the original that stand one behind the other and read the weights of this one became this one: it gives what
 * the last of them gave, unless it does more. */
static void output_of_weights(Match *match, Index index) {
  const SideNode *node = side_node(match->processed, index);
  if (!node->node->output_count || !node->outputs[0] || strncmp(node->node->op_type, "Fused", 5) == 0) return;
  if (side_value(match->processed, node->outputs[0])->twin || node_attribute(node->node, "activation")) return;
  Readers readers = weight_readers(match, index);
  Index last = NONE;
  for (size_t i = 0; i < readers.count; i++) last = readers.nodes[i] > last ? readers.nodes[i] : last;
  if (readers.count < 2) return;
  const SideNode *end = side_node(match->original, last);
  for (size_t i = 0; i < readers.count; i++) {
    const SideNode *part = side_node(match->original, readers.nodes[i]);
    if (part != end && !(part->node->output_count && part->outputs[0] && reads_value(end, part->outputs[0]))) return;
  }
  bool free = end->node->output_count && end->outputs[0] && !side_value(match->original, end->outputs[0])->twin;
  if (free && can_be_same(match, node->outputs[0], end->outputs[0])) set_twin(match, node->outputs[0], end->outputs[0]);
}

/* ---- by being the only one of its kind that reads a value ---- */

/* The only node without a twin that reads the value with this operator; `count` of them are there. */
static Index lone_reader(const Side *side, Index value, const SideNode *like, size_t *count) {
  Index found = NONE;
  const SideValue *read = side_value(side, value);
  for (Index i = 0; i < read->use_count && i < MOST_CANDIDATES; i++) {
    Index reader = side->uses[read->first_use + i];
    if (reader == found || side_node(side, reader)->twin || !same_operator(side_node(side, reader), like)) continue;
    found = reader;
    ++*count;
  }
  if (read->use_count > MOST_CANDIDATES) *count += MOST_CANDIDATES;
  return found;
}

static Index by_reading(const Match *match, const SideNode *node) {
  for (uint32_t i = 0; i < node->node->input_count && i < MOST_INPUTS; i++) {
    if (!node->inputs[i] || side_value(match->processed, node->inputs[i])->is_constant) continue;
    Index twin = side_value(match->processed, node->inputs[i])->twin;
    if (!twin) continue;
    size_t here = 0, there = 0;
    lone_reader(match->processed, node->inputs[i], node, &here);
    Index found = lone_reader(match->original, twin, node, &there);
    if (here != 1 || there != 1) continue;
    const SideNode *other = side_node(match->original, found);
    bool same = node->attributes == other->attributes && node->node->input_count == other->node->input_count;
    if (same && outputs_can_be_same(match, node, other) && !is_elsewhere(match, node, other)) return found;
  }
  return NONE;
}

/* Its values may be the original's where the node is not: a fused kernel gives what the last of its parts gave. */
static void name_outputs(Match *match, const SideNode *node) {
  for (uint32_t i = 0; match->trust_values && i < node->node->output_count; i++) {
    if (!node->outputs[i] || side_value(match->processed, node->outputs[i])->twin) continue;
    Index value = match_value_named(match, side_value(match->processed, node->outputs[i])->value->name);
    if (value && can_be_same(match, node->outputs[i], value)) set_twin(match, node->outputs[i], value);
  }
}

static void carry(Match *match, const SideNode *node) {
  if (!is_carrier(node) || !node->inputs[0] || !node->outputs[0]) return;
  Index twin = side_value(match->processed, node->inputs[0])->twin;
  if (twin) set_twin(match, node->outputs[0], twin);
}

static void forwards(Match *match, bool structure_only, bool last_resort) {
  Side *side = match->processed;
  for (Index i = 1; i < side->nodes.count; i++) {
    SideNode *node = side_node(side, i);
    if (node->in_place || node->twin) continue;
    Index named = structure_only ? NONE : by_name(match, node);
    Index found = by_structure(match, node);
    if (named && found != named) {
      bool equal =
          found && alike_key(match, side, node) == alike_key(match, match->original, side_node(match->original, found));
      if (!equal) found = named;
    }
    if (!found && !structure_only) found = by_weights(match, i);
    if (!found && last_resort) found = by_reading(match, node);
    if (found) {
      pair_nodes(match, i, found, found == named ? FOUND_NAME : FOUND_STRUCTURE);
    } else if (!structure_only) {
      name_outputs(match, node);
      output_of_weights(match, i);
      carry(match, node);
    }
  }
}

/* ---- backwards ---- */

static bool reads(const Match *match, const SideNode *b, uint64_t same) {
  for (uint32_t i = 0; i < b->node->input_count && i < MOST_INPUTS; i++) {
    if (b->inputs[i] && meaning(match, match->processed, b->inputs[i]) == same) return true;
  }
  return false;
}

static void pair_inputs(Match *match, Index index) {
  const SideNode *b = side_node(match->processed, index), *a = side_node(match->original, b->twin);
  uint32_t count = b->node->input_count < a->node->input_count ? b->node->input_count : a->node->input_count;
  for (uint32_t i = 0; i < count; i++) {
    if (!b->inputs[i] || !a->inputs[i]) continue;
    const SideValue *value = side_value(match->processed, b->inputs[i]),
                    *other = side_value(match->original, a->inputs[i]);
    if (value->twin || other->twin || (other->is_constant && !value->is_constant)) continue;
    if (!reads(match, b, other->same)) pair_values(match, b->inputs[i], a->inputs[i]);
  }
}

static void backwards(Match *match) {
  for (Index i = (Index)match->processed->nodes.count; --i;) {
    if (side_node(match->processed, i)->twin) pair_inputs(match, i);
  }
}

/* ---- where to begin ---- */

/* Inputs or outputs of the models: by name, else in their order. */
static void pair_interface(Match *match, const Index *b, uint32_t b_count, const Index *a, uint32_t a_count,
                           bool inputs) {
  size_t named = 0;
  for (uint32_t i = 0; i < b_count; i++) {
    Index twin = match_value_named(match, side_value(match->processed, b[i])->value->name);
    const SideValue *value = side_value(match->original, twin);
    if (!twin || !(inputs ? value->is_input : value->is_output)) continue;
    named++;
    if (!inputs) pair_values(match, b[i], twin);
    else if (can_be_same(match, b[i], twin)) set_twin(match, b[i], twin);
  }
  for (uint32_t i = 0; !named && b_count == a_count && i < b_count; i++) {
    if (side_value(match->original, a[i])->twin) continue; /* the processed model has it, and goes on from there */
    if (!inputs) pair_values(match, b[i], a[i]);
    else if (can_be_same(match, b[i], a[i])) set_twin(match, b[i], a[i]);
  }
}

static void pair_constants(Match *match, bool by_names) {
  Side *side = match->processed;
  for (Index i = 1; i < side->values.count; i++) {
    SideValue *value = side_value(side, i);
    if (value->twin || (!value->tensor && !value->content)) continue;
    Index found = value->content ? (Index)(uintptr_t)map_get(&match->contents, value->content, 0) : NONE;
    if (by_names && !found && match->trust_values) {
      found = match_value_named(match, value->value->name);
      if (found && !can_be_same(match, i, found)) found = NONE;
    }
    if (by_names && !found && value->likeness) {
      uintptr_t like = (uintptr_t)map_get(&match->likenesses, value->likeness, 0);
      if (like != AMBIGUOUS) found = (Index)like;
    }
    if (found) set_twin(match, i, found);
  }
}

static void pair_functions(Match *match) {
  Map known = {0};
  for (size_t i = 0; i < match->original->functions.count; i++) {
    SideBody *body = match->original->functions.items[i];
    *map_slot_pointer(match->context, &known, body->name) = body;
  }
  for (size_t i = 0; i < match->processed->functions.count; i++) {
    const SideBody *body = match->processed->functions.items[i], *twin = map_get_pointer(&known, body->name);
    if (twin) pair_body(match, body, twin);
  }
}

/* Weights of one name and type are the same ones, or these are two models. */
static bool weights_agree(const Match *match) {
  size_t counts[2] = {0}; /* against it, for it */
  for (Index i = 1; i < match->processed->values.count; i++) {
    const SideValue *value = side_value(match->processed, i);
    if (!is_distinctive(value->tensor)) continue;
    const SideValue *named = side_value(match->original, match_value_named(match, value->value->name));
    bool comparable = named->tensor && named->content && named->tensor->dtype == value->tensor->dtype;
    if (comparable) counts[named->content == value->content]++;
  }
  return counts[1] >= counts[0];
}

/* Names mean the same in both models when they say of nodes what their structure says. */
static void judge_names(Match *match) {
  size_t values[2] = {0}, nodes[2] = {0}, operators[2] = {0}; /* against it, for it */
  const Side *side = match->processed;
  for (Index i = 1; i < side->nodes.count; i++) {
    const SideNode *node = side_node(side, i);
    if (node->in_place || !node->node->output_count || !node->outputs[0]) continue;
    Index value = match_value_named(match, side_value(side, node->outputs[0])->value->name);
    Index named = *node->node->name ? match_node_named(match, node->node->name) : NONE;
    Index maker = value ? side_value(match->original, value)->producer : NONE;
    if (maker) operators[same_operator(node, side_node(match->original, maker))]++;
    if (!node->twin) continue;
    const SideNode *twin = side_node(match->original, node->twin);
    if (value) values[same_of(match, value) == same_of(match, twin->outputs[0])]++;
    if (named)
      nodes[named == node->twin ||
            same_texts(&side_node(match->original, named)->node->metadata, &twin->node->metadata)]++;
  }
  match->trust_values = values[1] >= 9 * values[0] && operators[1] >= operators[0] && weights_agree(match);
  match->trust_nodes = nodes[1] >= 9 * nodes[0] && weights_agree(match);
}

static void settle_names(Match *match) {
  Side *side = match->processed;
  for (Index i = 1; i < side->nodes.count; i++) {
    SideNode *node = side_node(side, i);
    if (node->found == FOUND_STRUCTURE && named_alike(match, node, side_node(match->original, node->twin))) {
      node->found = FOUND_NAME;
    }
  }
}

static void forget(Side *side) {
  for (Index i = 1; i < side->values.count; i++) side_value(side, i)->twin = NONE;
  for (Index i = 1; i < side->nodes.count; i++) {
    side_node(side, i)->twin = NONE;
    side_node(side, i)->found = FOUND_NOT;
  }
}

static void pair_inputs_of_models(Match *match) {
  const SideBody *a = &match->original->main, *b = &match->processed->main;
  pair_interface(match, b->inputs, b->input_count, a->inputs, a->input_count, true);
}

Match *match_models(Model *original, Model *processed) {
  Context *context = original->context;
  Match *match = arena_new(&context->arena, Match);
  match->context = context;
  match->original = side_new(original, processed);
  match->processed = side_new(processed, original);
  index_original(match);
  find_prefixes(match);
  pair_inputs_of_models(match);
  pair_constants(match, false);
  forwards(match, true, false);
  judge_names(match);
  forget(match->original);
  forget(match->processed);
  pair_inputs_of_models(match);
  pair_constants(match, true);
  pair_functions(match);
  for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
    match->changed = false;
    forwards(match, false, sweep > 0);
    const SideBody *a = &match->original->main, *b = &match->processed->main;
    if (!sweep) pair_interface(match, b->outputs, b->output_count, a->outputs, a->output_count, false);
    backwards(match);
    if (sweep && !match->changed) break;
  }
  settle_names(match);
  match->descents = arena_new_array(&context->arena, match->processed->nodes.count, Descent);
  match_regions(match);
  return match;
}

/* ---- are they related? ---- */

Relation match_relation(const Match *match) {
  Relation relation = {0};
  const Side *side = match->processed;
  for (Index i = 1; i < side->nodes.count; i++) {
    const SideNode *node = side_node(side, i);
    if (node->in_place || is_constant_node(node) || is_carrier(node)) continue;
    if (!node->node->output_count || !node->outputs[0] || side_value(side, node->outputs[0])->is_constant) continue;
    relation.nodes++;
    if (node->twin || side_value(side, node->outputs[0])->twin) relation.known++;
  }
  return relation;
}

/* Without names to go by, one of several weights at least must be known. */
static bool has_foreign_weights(const Match *match) {
  size_t weights = 0;
  for (Index i = 1; !match->trust_values && i < match->processed->values.count; i++) {
    const SideValue *value = side_value(match->processed, i);
    if (!is_distinctive(value->tensor) || !dtype_is_float(value->tensor->dtype)) continue;
    bool same = value->content && map_get(&match->contents, value->content, 0);
    bool like = value->likeness && map_get(&match->likenesses, value->likeness, 0);
    if (same || like) return false;
    weights++;
  }
  return weights >= FEW_WEIGHTS;
}

bool match_is_related(const Match *match) {
  Relation relation = match_relation(match);
  if (has_foreign_weights(match)) return false;
  return relation.known * 5 >= relation.nodes;
}
