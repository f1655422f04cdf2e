/* Changing models. */
#include "mutate.h"

#include <stdlib.h>
#include <string.h>

uint64_t random_next(Random *random) {
  uint64_t z = random->state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

size_t random_below(Random *random, size_t limit) { return limit ? (size_t)(random_next(random) % limit) : 0; }

/* ---- fields ---- */

enum { MOST_DEPTH = 12, MOST_FIELDS = 4096 };

typedef struct Spot {
  size_t start, data, end; /* of the field, of its payload, behind it */
  uint32_t path;           /* numbers of the messages around and of the field, a byte each */
  unsigned kind;
  int parent; /* index of the field that holds it, or -1 */
} Spot;

typedef struct Spots {
  Spot items[MOST_FIELDS];
  int count;
} Spots;

static bool read_varint(const Bytes *bytes, size_t *at, size_t end, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
    uint8_t byte = bytes->data[(*at)++];
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* False when the bytes are no message. */
static bool next_spot(const Bytes *bytes, size_t *at, size_t end, Spot *spot) {
  uint64_t key, size = 0;
  spot->start = *at;
  if (!read_varint(bytes, at, end, &key) || key < 8 || key >> 3 > 0xFF) return false;
  spot->kind = (unsigned)(key & 7);
  spot->data = *at;
  if (spot->kind == 0 && !read_varint(bytes, at, end, &size)) return false;
  if (spot->kind == 2) {
    if (!read_varint(bytes, at, end, &size)) return false;
    spot->data = *at;
  } else if (spot->kind == 1 || spot->kind == 5) {
    size = spot->kind == 1 ? 8 : 4;
  } else if (spot->kind != 0) {
    return false;
  }
  if (spot->kind != 0) {
    if (size > end - *at) return false;
    *at += (size_t)size;
  }
  spot->end = *at;
  spot->path = (spot->path << 8) | (uint32_t)(key >> 3);
  return true;
}

static bool is_message(const Bytes *bytes, size_t at, size_t end) {
  Spot spot = {0};
  if (at == end) return false;
  while (at < end) {
    if (!next_spot(bytes, &at, end, &spot)) return false;
  }
  return true;
}

static void collect(const Bytes *bytes, size_t at, size_t end, uint32_t path, int parent, int depth, Spots *spots) {
  while (at < end && spots->count < MOST_FIELDS) {
    Spot spot = {.path = path, .parent = parent};
    if (!next_spot(bytes, &at, end, &spot)) return;
    int index = spots->count;
    spots->items[spots->count++] = spot;
    if (spot.kind == 2 && depth < MOST_DEPTH && is_message(bytes, spot.data, spot.end)) {
      collect(bytes, spot.data, spot.end, spot.path, index, depth + 1, spots);
    }
  }
}

static void find_spots(const Bytes *bytes, Spots *spots) {
  spots->count = 0;
  collect(bytes, 0, bytes->size, 0, -1, 0, spots);
}

/* ---- replacing ---- */

static size_t put_varint(uint8_t *to, uint64_t value) {
  size_t size = 0;
  for (; value > 0x7F; value >>= 7) to[size++] = (uint8_t)(value | 0x80);
  to[size++] = (uint8_t)value;
  return size;
}

static Bytes joined(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, const uint8_t *c, size_t c_size) {
  Bytes whole = {malloc(a_size + b_size + c_size + 1), a_size + b_size + c_size};
  if (!whole.data) abort();
  if (a_size) memcpy(whole.data, a, a_size);
  if (b_size) memcpy(whole.data + a_size, b, b_size);
  if (c_size) memcpy(whole.data + a_size + b_size, c, c_size);
  return whole;
}

/* Puts bytes in the place of a range of a message and corrects the lengths of the messages around. */
static void replace(Bytes *bytes, const Spots *spots, int parent, size_t start, size_t end, const uint8_t *by,
                    size_t size) {
  Bytes piece = joined(by, size, NULL, 0, NULL, 0);
  for (; parent >= 0; parent = spots->items[parent].parent) {
    const Spot *around = &spots->items[parent];
    Bytes inside = joined(bytes->data + around->data, start - around->data, piece.data, piece.size, bytes->data + end,
                          around->end - end);
    uint8_t head[20];
    size_t at = around->start;
    uint64_t key;
    read_varint(bytes, &at, around->end, &key);
    size_t length = put_varint(head, key);
    length += put_varint(head + length, inside.size);
    free(piece.data);
    piece = joined(head, length, inside.data, inside.size, NULL, 0);
    free(inside.data);
    start = around->start;
    end = around->end;
  }
  Bytes whole = joined(bytes->data, start, piece.data, piece.size, bytes->data + end, bytes->size - end);
  free(piece.data);
  if (whole.size > LARGEST_MUTANT) {
    free(whole.data);
    return;
  }
  free(bytes->data);
  *bytes = whole;
}

/* Gives a field of bytes another payload. */
static void set_payload(Bytes *bytes, const Spots *spots, const Spot *spot, const uint8_t *by, size_t size) {
  uint8_t head[20];
  size_t at = spot->start;
  uint64_t key;
  read_varint(bytes, &at, spot->end, &key);
  size_t length = put_varint(head, key);
  length += put_varint(head + length, size);
  Bytes field = joined(head, length, by, size, NULL, 0);
  replace(bytes, spots, spot->parent, spot->start, spot->end, field.data, field.size);
  free(field.data);
}

/* ---- mutations ---- */

#define TOKEN(text) {text, sizeof text - 1}

static const struct Token {
  const char *text;
  size_t size;
} tokens[] = {
    TOKEN("\x1b[31mred\x1b]0;title\x07"),
    TOKEN("\xE2\x80\xAE\xE2\x81\xA6"),
    TOKEN("\xC2\x9B"
          "31m"),
    TOKEN("\x7F\r\b"),
    TOKEN("\xFF\xC0\x80\xED\xA0\x80"),
    TOKEN("a\0b"),
    TOKEN("\n  at nowhere:1\n"),
    TOKEN("../../etc/passwd.py"),
    TOKEN("/etc/passwd"),
    TOKEN("pkg.jax2onnx.callsite"),
    TOKEN("pkg.jax2onnx.jax_traceback"),
    TOKEN("j2o"),
    TOKEN("pkg.jax2onnx.provenance"),
    TOKEN("/a/b.py:3 (f)\n\n/c.py:99999999999 (g)"),
    TOKEN("99999999999999999999"),
    TOKEN("location"),
    TOKEN("</script><b>"),
    TOKEN(""),
    TOKEN("0"),
    TOKEN("f:3"),
    TOKEN("y"),
    TOKEN("x"),
};

static void insert_token(Random *random, Bytes *model, const Spots *spots, const Spot *spot) {
  const struct Token *token = &tokens[random_below(random, sizeof tokens / sizeof *tokens)];
  size_t size = spot->end - spot->data, at = random_below(random, size + 1);
  size_t keep = random_below(random, 3) ? at : size; /* behind the token: everything, or nothing */
  Bytes text = joined(model->data + spot->data, at, (const uint8_t *)token->text, token->size,
                      model->data + spot->data + keep, size - keep);
  set_payload(model, spots, spot, text.data, text.size);
  free(text.data);
}

static void change_number(Random *random, Bytes *model, const Spots *spots, const Spot *spot) {
  static const uint64_t numbers[] = {0, 1, 2, 7, 8, 127, 255, 1u << 16, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
  uint8_t value[10];
  size_t size = put_varint(value, numbers[random_below(random, sizeof numbers / sizeof *numbers)]);
  replace(model, spots, spot->parent, spot->data, spot->end, value, size);
}

/* The field with nothing in it: what costs most for its bytes. */
static Bytes emptied(const Bytes *model, const Spot *spot) {
  uint8_t head[20];
  size_t at = spot->start;
  uint64_t key;
  read_varint(model, &at, spot->end, &key);
  size_t size = put_varint(head, key);
  head[size++] = 0;
  return joined(head, size, NULL, 0, NULL, 0);
}

/* The field again and again: what one costs little, thousands may cost much. */
static void repeat(Random *random, Bytes *model, const Spots *spots, const Spot *spot) {
  bool is_empty = spot->kind == 2 && random_below(random, 4) == 0;
  Bytes unit =
      is_empty ? emptied(model, spot) : joined(model->data + spot->start, spot->end - spot->start, NULL, 0, NULL, 0);
  size_t size = unit.size, most = (LARGEST_MUTANT - 1024) / (size ? size : 1);
  bool is_few = !is_empty && random_below(random, 4);
  size_t count = is_few ? 1 + random_below(random, 3) : 1 + random_below(random, most ? most : 1);
  if (model->size + count * size > LARGEST_MUTANT) count = 0;
  Bytes copies = {malloc(count * size + 1), count * size};
  if (!copies.data) abort();
  for (size_t i = 0; i < count; i++) memcpy(copies.data + i * size, unit.data, size);
  free(unit.data);
  replace(model, spots, spot->parent, spot->end, spot->end, copies.data, copies.size);
  free(copies.data);
}

static void flip(Random *random, Bytes *model) {
  if (model->size) model->data[random_below(random, model->size)] ^= (uint8_t)(1u << random_below(random, 8));
}

static void graft_field(Random *random, Bytes *model, const Spots *spots, const Spot *spot, const Bytes *donor) {
  static Spots others;
  find_spots(donor, &others);
  if (!others.count) return;
  const Spot *other = &others.items[random_below(random, (size_t)others.count)];
  replace(model, spots, spot->parent, spot->end, spot->end, donor->data + other->start, other->end - other->start);
}

void mutate(Random *random, Bytes *model, const Bytes *donor) {
  static Spots spots;
  find_spots(model, &spots);
  size_t choice = random_below(random, 16);
  if (!spots.count || choice == 0) {
    flip(random, model);
    return;
  }
  const Spot *spot = &spots.items[random_below(random, (size_t)spots.count)];
  if (choice == 1 && model->size > 4) model->size -= random_below(random, model->size / 2);
  else if (choice <= 3) replace(model, &spots, spot->parent, spot->start, spot->end, NULL, 0);
  else if (choice <= 6) repeat(random, model, &spots, spot);
  else if (choice <= 8) graft_field(random, model, &spots, spot, donor);
  else if (spot->kind == 0) change_number(random, model, &spots, spot);
  else if (spot->kind == 2) insert_token(random, model, &spots, spot);
  else flip(random, model);
}

/* ---- what a model computes ---- */

#define PATH2(a, b) ((uint32_t)(a) << 8 | (b))
#define PATH3(a, b, c) (PATH2(a, b) << 8 | (c))
#define PATH4(a, b, c, d) (PATH3(a, b, c) << 8 | (d))

/* Leaves of a well-formed model whose bytes mean something: any other bytes mean something else. */
static bool is_meaning(uint32_t path) {
  switch (path) {
    case PATH3(7, 1, 4):    /* graph.node.op_type */
    case PATH3(7, 1, 7):    /* graph.node.domain */
    case PATH4(7, 1, 5, 1): /* graph.node.attribute.name */
    case PATH4(7, 1, 5, 2): /* .f */
    case PATH4(7, 1, 5, 3): /* .i */
    case PATH4(7, 1, 5, 4): /* .s */
    case PATH4(7, 1, 5, 7): /* .floats */
    case PATH4(7, 1, 5, 8): /* .ints */
    case PATH4(7, 1, 5, 9): /* .strings */
    case PATH3(7, 5, 4):    /* graph.initializer.float_data */
    case PATH3(7, 5, 5):    /* .int32_data */
    case PATH3(7, 5, 6):    /* .string_data */
    case PATH3(7, 5, 7):    /* .int64_data */
    case PATH3(7, 5, 9):    /* .raw_data */
    case PATH3(7, 5, 10):   /* .double_data */
    case PATH3(7, 5, 11):   /* .uint64_data */
    case PATH3(7, 11, 1):   /* graph.input.name */
    case PATH3(7, 12, 1):   /* graph.output.name */
    case PATH2(8, 2): /* opset_import.version */ return true;
    default: return false;
  }
}

bool change_meaning(Random *random, Bytes *model) {
  static Spots spots;
  find_spots(model, &spots);
  int chosen[MOST_FIELDS], count = 0;
  for (int i = 0; i < spots.count; i++) {
    const Spot *spot = &spots.items[i];
    if (spot->kind != 3 && is_meaning(spot->path) && spot->end > spot->data) chosen[count++] = i;
  }
  if (!count) return false;
  const Spot *spot = &spots.items[chosen[random_below(random, (size_t)count)]];
  if (spot->kind == 0) {
    uint8_t value[10];
    uint64_t old;
    size_t at = spot->data;
    read_varint(model, &at, spot->end, &old);
    size_t size = put_varint(value, old ^ 1);
    replace(model, &spots, spot->parent, spot->data, spot->end, value, size);
    return true;
  }
  /* The low bit of a letter or of a byte: what was a varint stays one of the same length, and of a packed one only the
   * first byte surely counts, since a number may be wider than the element. */
  bool is_packed = spot->path == PATH3(7, 5, 5) || spot->path == PATH3(7, 5, 11);
  size_t offset = is_packed ? 0 : random_below(random, spot->end - spot->data);
  model->data[spot->data + offset] ^= 1;
  return true;
}
