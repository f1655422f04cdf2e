/* Packing text. */
#include "provenance/pack.h"

#include "base/bytes.h"

static const char dictionary_1[] =
#include "provenance/pack_dictionary.inc"
    ;
static const char dictionary_2[] =
#include "provenance/pack_dictionary_2.inc"
    ;

/* What a version is made of. */
typedef struct Form {
  const char *dictionary;
  size_t length;
  unsigned fewest_slots; /* a power of two, by context */
  bool has_headings;     /* a section begins with "WORD NUMBER"; else it ends with an empty row */
} Form;

static const Form forms[] = {
    {dictionary_1, sizeof dictionary_1 - 1, 16, true},
    {dictionary_2, sizeof dictionary_2 - 1, 15, false},
};

/* ---- numbers of a row ---- */

/* What stood in a column of a section: rows often count on, or repeat. */
typedef struct Column {
  uint32_t last, greatest;
} Column;

/* A number that may come, as its digits; it holds while the digits that came are its own. */
typedef struct Guess {
  char digits[12];
  bool holds;
} Guess;

enum { COLUMNS = 4096, MOST_FIELDS = 7, LARGEST_COUNTED = 100000 };

/* Where the next byte stands. */
typedef struct Place {
  uint32_t section;   /* the word of the heading "WORD NUMBER" above, or how many empty rows are above */
  uint32_t field;     /* how many numbers of the row are complete */
  unsigned char mark; /* what stood before the number */
  bool in_number;
  uint32_t number;       /* so far */
  uint32_t digit;        /* which one of the number comes next */
  Guess next, again;     /* one more than the column's greatest, and its last */
  size_t row, row_above; /* where they begin */
  uint32_t word, word_before;
} Place;

/* ---- the model ---- */

enum {
  LETTER,       /* the letter before */
  THREE,        /* three letters */
  FOUR,         /* four */
  TWO_WORDS,    /* this word so far and the one before */
  SECTION_WORD, /* this word so far, by section */
  COUNTED,      /* the number that would count on, by column */
  REPEATED,     /* that, and the number that would repeat */
  ABOVE,        /* the letter above, by column */
  CONTEXTS,
  REPETITION = CONTEXTS, /* what followed the last time that the letters before stood here */
  INPUTS
};

enum {
  ONE = 4096,       /* as a probability */
  STRETCHED = 2047, /* most, of ln(p / (1 - p)) in parts of 1/256 */
  HALF = 1 << 15,   /* as a slot's */
  COUNT_LIMIT = 8,  /* outcomes that a slot counts */
  MOST_SLOTS = 19,  /* a power of two, by context */
  REPEAT_LETTERS = 5,
  LONGEST_REPEAT = 31,
  LEARNING = 28,
  FIRST_WEIGHT = (1 << 16) * 28 / 100,
};

/* How likely a 1 was behind a context: an offset from one half, so that all zeros know nothing. */
typedef struct Slot {
  int16_t offset;
  uint16_t count;
} Slot;

typedef struct Weights {
  int32_t of[INPUTS];
} Weights;

/* What a set of weights makes of the inputs. */
typedef struct Opinion {
  Weights *weights;
  int32_t sum; /* stretched */
} Opinion;

typedef struct PackModel {
  const Form *form;
  const char *text; /* the dictionary, then the text as far as it is known */
  size_t at;
  int16_t stretched[ONE];
  Slot *slots[CONTEXTS];
  uint32_t slot_mask;
  Weights by_bits[2 * 256], by_letter[256]; /* two opinions: by the bits of the byte so far, by the letter before */
  Place place;
  Column columns[COLUMNS];
  uint32_t hashes[CONTEXTS];
  /* the repetition */
  uint32_t *seen; /* by hash of some letters: where their end was last, plus 1 */
  unsigned repeat_bits;
  size_t repeat_at;
  uint32_t repeat_length;                      /* 0: there is none */
  int16_t repeat_trust[LONGEST_REPEAT + 1][2]; /* by length and the bit it says */
  /* the bit that is being coded */
  Slot *chosen[CONTEXTS];
  Slot *next[CONTEXTS];  /* of the bit after it, once it is known */
  int16_t *chosen_trust; /* NULL: nothing repeats, or it was wrong about this byte */
  int32_t inputs[INPUTS];
  Opinion opinions[2];
  int32_t probability;
} PackModel;

/* 4096 / (1 + e^(-x / 256)), between points that are exact. */
static int32_t squash(int32_t x) {
  static const int16_t points[] = {1,    2,    3,    6,    10,   16,   27,   45,   73,   120,  194,
                                   310,  488,  747,  1101, 1546, 2047, 2549, 2994, 3348, 3607, 3785,
                                   3901, 3975, 4022, 4050, 4068, 4079, 4085, 4089, 4092, 4093, 4094};
  if (x > STRETCHED) return ONE - 1;
  if (x < -STRETCHED) return 1;
  int32_t part = x & 127, at = (x >> 7) + 16;
  return (points[at] * (128 - part) + points[at + 1] * part + 64) >> 7;
}

static void fill_stretched(PackModel *model) {
  int32_t next = 0;
  for (int32_t x = -STRETCHED; x <= STRETCHED; x++) {
    int32_t most = squash(x);
    for (; next <= most; next++) model->stretched[next] = (int16_t)x;
  }
  for (; next < ONE; next++) model->stretched[next] = STRETCHED;
}

static PackModel *model_new(Context *context, const Form *form, const char *text, size_t size) {
  PackModel *model = arena_new(&context->arena, PackModel);
  unsigned bits = form->fewest_slots;
  model->form = form;
  while (bits < MOST_SLOTS && (size_t)1 << bits < size * 8) bits++;
  model->text = text;
  model->slot_mask = (1u << bits) - 1;
  for (size_t i = 0; i < CONTEXTS; i++) model->slots[i] = arena_new_array(&context->arena, (size_t)1 << bits, Slot);
  for (size_t i = 0; i < INPUTS; i++) {
    for (size_t k = 0; k < 2 * 256; k++) model->by_bits[k].of[i] = FIRST_WEIGHT;
    for (size_t k = 0; k < 256; k++) model->by_letter[k].of[i] = FIRST_WEIGHT;
  }
  model->repeat_bits = form->has_headings ? 16 : bits - 1;
  model->seen = arena_new_array(&context->arena, (size_t)1 << model->repeat_bits, uint32_t);
  fill_stretched(model);
  return model;
}

static unsigned char letter_before(const PackModel *model, size_t count) {
  return count <= model->at ? (unsigned char)model->text[model->at - count] : 0;
}

/* ---- where the next byte stands ---- */

static void set_guess(Guess *guess, uint32_t number) {
  char digits[sizeof guess->digits];
  size_t count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  for (size_t i = 0; i < count; i++) guess->digits[i] = digits[count - 1 - i];
  guess->digits[count] = '\0';
  guess->holds = true;
}

/* The digit that it says comes next, 1 when it says that the number ends, 0 when it was wrong. */
static unsigned char guessed(const Guess *guess, uint32_t digit) {
  if (!guess->holds) return 0;
  return guess->digits[digit] ? (unsigned char)guess->digits[digit] : 1;
}

static uint32_t column_key(const Place *place) {
  uint32_t field = place->field < MOST_FIELDS ? place->field : MOST_FIELDS;
  return (place->section * (MOST_FIELDS + 1) + field) * 128 + place->mark;
}

static Column *column_of(PackModel *model) { return &model->columns[(column_key(&model->place) * 0x9E3779B1u) >> 20]; }

/* Is the row that has ended a heading, a word of small letters and a number? */
static bool ends_heading(const PackModel *model, uint32_t *word) {
  const char *at = model->text + model->place.row, *end = model->text + model->at, *start = at;
  *word = 0;
  for (; at < end && *at >= 'a' && *at <= 'z'; at++) *word = *word * 31 + (unsigned char)*at;
  if (at == start || at == end || *at++ != ' ' || at == end) return false;
  while (at < end && *at >= '0' && *at <= '9') at++;
  return at == end;
}

static void end_row(PackModel *model) {
  Place *place = &model->place;
  uint32_t word = place->section + 1;
  bool is_new = model->form->has_headings ? ends_heading(model, &word) : model->at == place->row;
  if (is_new) {
    place->section = word;
    fill_bytes(model->columns, 0, sizeof model->columns);
  }
  place->row_above = place->row;
  place->row = model->at + 1;
  place->field = place->word = place->word_before = 0;
  place->mark = ' ';
}

static void end_number(PackModel *model) {
  Column *column = column_of(model);
  Place *place = &model->place;
  column->last = place->number;
  if (place->number > column->greatest && place->number < LARGEST_COUNTED) column->greatest = place->number;
  place->in_number = false;
  place->field++;
}

static void take_digit(Place *place, char digit) {
  if (!place->in_number) place->number = place->digit = 0;
  place->in_number = true;
  place->number = place->number * 10 + (uint32_t)(digit - '0');
  place->next.holds = guessed(&place->next, place->digit) == (unsigned char)digit;
  place->again.holds = guessed(&place->again, place->digit) == (unsigned char)digit;
  /* Beyond the digits of any guess it matters no more which one comes. */
  if (place->digit < sizeof place->next.digits - 2) place->digit++;
}

static bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void take_place(PackModel *model, char c) {
  Place *place = &model->place;
  if (c >= '0' && c <= '9') {
    take_digit(place, c);
  } else {
    if (place->in_number) end_number(model);
    place->mark = (unsigned char)c;
  }
  if (is_word_letter(c)) {
    place->word = place->word * 0x2F0B4C47u + (unsigned char)c + 1;
  } else {
    place->word_before = place->word;
    place->word = (unsigned char)c;
  }
  if (c == '\n') end_row(model);
}

static void take_repetition(PackModel *model, char c) {
  bool goes_on = model->repeat_length && model->text[model->repeat_at] == c;
  model->repeat_at++;
  if (!goes_on) model->repeat_length = 0;
  else if (model->repeat_length < LONGEST_REPEAT) model->repeat_length++;
  size_t end = model->at + 1; /* of what is known now */
  if (end < REPEAT_LETTERS) return;
  uint32_t hash = 0;
  for (size_t i = 1; i <= REPEAT_LETTERS; i++) hash = hash * 0x2F0B4C47u + (unsigned char)model->text[end - i] + 1;
  uint32_t *seen = &model->seen[(hash * 0x9E3779B1u) >> (32 - model->repeat_bits)];
  if (!model->repeat_length && *seen) {
    size_t before = *seen - 1;
    uint32_t length = 0;
    while (length < LONGEST_REPEAT && length < before &&
           model->text[before - 1 - length] == model->text[end - 1 - length]) {
      length++;
    }
    model->repeat_at = before;
    model->repeat_length = length;
  }
  *seen = (uint32_t)end + 1;
}

/* The byte at the end of what was known is this one, and is there. */
static void take_byte(PackModel *model, char c) {
  take_repetition(model, c);
  take_place(model, c);
  model->at++;
}

/* ---- predicting ---- */

static uint32_t mixed(uint32_t a, uint32_t b, uint32_t c) {
  return a * 0x9E3779B1u + b * 0x85EBCA6Bu + c * 0xC2B2AE35u;
}

static void begin_byte(PackModel *model) {
  Place *place = &model->place;
  if (!place->in_number) {
    const Column *column = column_of(model);
    set_guess(&place->next, column->greatest + 1);
    set_guess(&place->again, column->last);
    place->digit = 0;
  }
  uint32_t before = letter_before(model, 1), key = column_key(place);
  uint32_t three = before | (uint32_t)letter_before(model, 2) << 8 | (uint32_t)letter_before(model, 3) << 16;
  uint32_t next = guessed(&place->next, place->digit), again = guessed(&place->again, place->digit);
  size_t above = place->row_above + (model->at - place->row);
  uint32_t above_letter = above < place->row ? (unsigned char)model->text[above] : '\n';
  model->hashes[LETTER] = before;
  model->hashes[THREE] = mixed(three, 0, 1);
  model->hashes[FOUR] = mixed(three, letter_before(model, 4), 2);
  model->hashes[TWO_WORDS] = mixed(place->word, place->word_before, 3);
  model->hashes[SECTION_WORD] = mixed(place->word, place->section, 4);
  model->hashes[COUNTED] = mixed(key, next, place->digit);
  model->hashes[REPEATED] = mixed(key, again, next);
  model->hashes[ABOVE] = mixed(key, above_letter, before);
}

static Slot *slot_of(const PackModel *model, size_t context, uint32_t bits_before) {
  uint32_t hash = model->hashes[context] + bits_before * 0x9E3779B1u;
  hash = (hash ^ hash >> 15) * 0x2C1B3C6Du;
  return &model->slots[context][(hash ^ hash >> 13) & model->slot_mask];
}

static int32_t stretch_offset(const PackModel *model, int32_t offset) { return model->stretched[(offset + HALF) >> 4]; }

/* bits_before: those of this byte, after a 1. */
static void ask_repetition(PackModel *model, uint32_t bits_before, int bit) {
  model->chosen_trust = NULL;
  model->inputs[REPETITION] = 0;
  if (!model->repeat_length) return;
  uint32_t said = 256u | (unsigned char)model->text[model->repeat_at];
  if (said >> (bit + 1) != bits_before) return;
  model->chosen_trust = &model->repeat_trust[model->repeat_length][said >> bit & 1];
  model->inputs[REPETITION] = stretch_offset(model, *model->chosen_trust);
}

static Opinion opinion(const PackModel *model, Weights *weights) {
  int64_t sum = 0;
  for (size_t i = 0; i < INPUTS; i++) sum += (int64_t)weights->of[i] * model->inputs[i];
  sum /= 1 << 16;
  return (Opinion){weights, (int32_t)(sum > STRETCHED ? STRETCHED : sum < -STRETCHED ? -STRETCHED : sum)};
}

/* Most slots are far from the processor: where the bits to come are known, they are asked for one bit ahead. */
static void choose_slots(PackModel *model, uint32_t bits_before) {
  for (size_t i = 0; i < CONTEXTS; i++) {
    model->next[i] = slot_of(model, i, bits_before);
    __builtin_prefetch(model->next[i], 1);
  }
}

static void predict(PackModel *model, uint32_t bits_before, int bit) {
  for (size_t i = 0; i < CONTEXTS; i++) {
    const Slot *slot = model->chosen[i] = model->next[i];
    model->inputs[i] = slot->count ? stretch_offset(model, slot->offset) : 0;
  }
  ask_repetition(model, bits_before, bit);
  Opinion *opinions = model->opinions;
  opinions[0] = opinion(model, &model->by_bits[(model->repeat_length ? 256 : 0) + bits_before]);
  opinions[1] = opinion(model, &model->by_letter[letter_before(model, 1)]);
  model->probability = squash((opinions[0].sum + opinions[1].sum) / 2);
}

/* A division by a power of two that is not known to the compiler would be one; rounded towards zero, as that is. */
static int32_t shifted(int32_t number, int by) { return number < 0 ? -(-number >> by) : number >> by; }

static int32_t moved_towards(int32_t offset, bool bit, int rate) {
  int32_t moved = offset + shifted((bit ? HALF - 1 : -HALF) - offset, rate);
  return moved < 16 - HALF ? 16 - HALF : moved > HALF - 16 ? HALF - 16 : moved;
}

static void learn(PackModel *model, bool bit) {
  static const uint8_t rates[COUNT_LIMIT + 1] = {1, 1, 2, 2, 3, 3, 3, 4, 4};
  for (size_t k = 0; k < 2; k++) {
    int32_t error = ((bit ? ONE : 0) - squash(model->opinions[k].sum)) * LEARNING;
    int32_t *weights = model->opinions[k].weights->of;
    for (size_t i = 0; i < INPUTS; i++) weights[i] += model->inputs[i] * error / (1 << 14);
  }
  for (size_t i = 0; i < CONTEXTS; i++) {
    Slot *slot = model->chosen[i];
    slot->offset = (int16_t)moved_towards(slot->offset, bit, rates[slot->count]);
    if (slot->count < COUNT_LIMIT) slot->count++;
  }
  if (model->chosen_trust) *model->chosen_trust = (int16_t)moved_towards(*model->chosen_trust, bit, 5);
}

/* ---- digits ---- */

/* What is left of all numbers of DIGITS digits. Digits on which the least and the greatest agree are written. */
#define TOP 6095689385410816ull /* PACK_BASE to the power of DIGITS - 1 */
enum { DIGITS = 9 };

typedef struct Coder {
  uint64_t least, greatest;
  uint64_t value;       /* of reading: the number */
  Builder *out;         /* of writing */
  const char *at, *end; /* of reading; behind the end there are zeros */
  size_t beyond;        /* how many of them were taken */
  bool damaged;
} Coder;

static uint64_t split(const Coder *coder, int32_t probability) {
  return coder->least + (coder->greatest - coder->least) / ONE * (uint64_t)probability;
}

static void put_digit(Coder *coder, uint64_t digit) {
  char c = (char)(PACK_FIRST + (int)digit);
  builder_add_sized(coder->out, &c, 1);
}

static uint64_t take_character(Coder *coder) {
  if (coder->at == coder->end) {
    coder->beyond++;
    return 0;
  }
  unsigned char c = (unsigned char)*coder->at++;
  bool known = c >= PACK_FIRST && c < PACK_FIRST + PACK_BASE;
  coder->damaged = coder->damaged || !known;
  return known ? (uint64_t)(c - PACK_FIRST) : 0;
}

static void keep_half(Coder *coder, uint64_t middle, bool bit) {
  if (bit) coder->greatest = middle;
  else coder->least = middle + 1;
  while (coder->least / TOP == coder->greatest / TOP) {
    if (coder->out) put_digit(coder, coder->least / TOP);
    else coder->value = coder->value % TOP * PACK_BASE + take_character(coder);
    coder->least = coder->least % TOP * PACK_BASE;
    coder->greatest = coder->greatest % TOP * PACK_BASE + PACK_BASE - 1;
  }
}

/* As few digits as tell a number between the least and the greatest from all others. */
static void put_end(Coder *coder) {
  uint64_t step = TOP;
  if (!coder->least) return; /* zeros: no digits at all */
  while ((coder->least + step - 1) / step * step > coder->greatest) step /= PACK_BASE;
  for (uint64_t rest = (coder->least + step - 1) / step * step; rest; rest = rest % TOP * PACK_BASE) {
    put_digit(coder, rest / TOP);
  }
}

/* ---- texts ---- */

static bool code_bit(PackModel *model, Coder *coder, bool bit) {
  uint64_t middle = split(coder, model->probability);
  if (!coder->out) bit = coder->value <= middle;
  keep_half(coder, middle, bit);
  return bit;
}

/* coder: NULL for what is only learnt. The byte that it is. */
static char code_byte(PackModel *model, Coder *coder, unsigned char byte) {
  uint32_t bits = 1;
  bool is_known = !coder || coder->out;
  begin_byte(model);
  choose_slots(model, bits);
  for (int i = 7; i >= 0; i--) {
    bool bit = byte >> i & 1;
    predict(model, bits, i);
    if (is_known && i) choose_slots(model, bits << 1 | bit);
    if (coder) bit = code_bit(model, coder, bit);
    learn(model, bit);
    bits = bits << 1 | bit;
    if (!is_known && i) choose_slots(model, bits);
  }
  return (char)(bits & 255);
}

static PackModel *trained_model(Context *context, const Form *form, char *text, size_t size) {
  copy_bytes(text, form->dictionary, form->length);
  PackModel *model = model_new(context, form, text, size);
  for (size_t i = 0; i < form->length; i++) {
    code_byte(model, NULL, (unsigned char)text[i]);
    take_byte(model, text[i]);
  }
  if (!form->has_headings) model->place.section = 0; /* the dictionary ends with a whole row */
  return model;
}

void pack_text(Context *context, PackVersion version, Builder *out, const char *text, size_t length) {
  const Form *form = &forms[version - 1];
  size_t size = form->length + length;
  char *all = arena_alloc(&context->arena, size + 1);
  PackModel *model = trained_model(context, form, all, size);
  copy_bytes(all + form->length, text, length);
  Coder coder = {.greatest = TOP * PACK_BASE - 1, .out = out};
  for (size_t i = 0; i < length; i++) {
    code_byte(model, &coder, (unsigned char)text[i]);
    take_byte(model, text[i]);
  }
  put_end(&coder);
}

bool unpack_text(Context *context, PackVersion version, const char *packed, size_t size, char *text, size_t length) {
  const Form *form = &forms[version - 1];
  size_t whole = form->length + length;
  char *all = arena_alloc(&context->arena, whole + 1);
  PackModel *model = trained_model(context, form, all, whole);
  Coder coder = {.greatest = TOP * PACK_BASE - 1, .at = packed, .end = packed + size};
  for (int i = 0; i < DIGITS; i++) coder.value = coder.value * PACK_BASE + take_character(&coder);
  for (size_t i = 0; i < length && !coder.damaged && coder.beyond <= DIGITS; i++) {
    char c = code_byte(model, &coder, 0);
    all[form->length + i] = c;
    take_byte(model, c);
  }
  if (coder.damaged || coder.beyond > DIGITS || coder.at != coder.end) return false;
  copy_bytes(text, all + form->length, length);
  return true;
}

void pack_number(Builder *out, uint64_t number) {
  if (number >= PACK_BASE) pack_number(out, number / PACK_BASE);
  char digit = (char)(PACK_FIRST + (int)(number % PACK_BASE));
  builder_add_sized(out, &digit, 1);
}

uint64_t unpack_number(const char *text, size_t length) {
  enum { MOST_DIGITS = 5 };
  uint64_t number = 0;
  if (!length || length > MOST_DIGITS || text[0] == PACK_FIRST) return 0;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c < PACK_FIRST || c >= PACK_FIRST + PACK_BASE) return 0;
    number = number * PACK_BASE + (uint64_t)(c - PACK_FIRST);
  }
  return number;
}

/* The last digit is the remainder of the whole number, and so on. */
void pack_digest(Builder *out, const unsigned char digest[DIGEST_BYTES]) {
  unsigned char rest[DIGEST_BYTES];
  char digits[DIGEST_DIGITS];
  copy_bytes(rest, digest, sizeof rest);
  for (size_t i = DIGEST_DIGITS; i--;) {
    unsigned remainder = 0;
    for (size_t k = 0; k < DIGEST_BYTES; k++) {
      unsigned part = remainder << 8 | rest[k];
      rest[k] = (unsigned char)(part / PACK_BASE);
      remainder = part % PACK_BASE;
    }
    digits[i] = (char)(PACK_FIRST + (int)remainder);
  }
  builder_add_sized(out, digits, sizeof digits);
}

bool unpack_digest(const char *digits, unsigned char digest[DIGEST_BYTES]) {
  fill_bytes(digest, 0, DIGEST_BYTES);
  for (size_t i = 0; i < DIGEST_DIGITS; i++) {
    unsigned char c = (unsigned char)digits[i];
    if (c < PACK_FIRST || c >= PACK_FIRST + PACK_BASE) return false;
    unsigned carry = c - (unsigned)PACK_FIRST;
    for (size_t k = DIGEST_BYTES; k--;) {
      unsigned part = digest[k] * (unsigned)PACK_BASE + carry;
      digest[k] = (unsigned char)part;
      carry = part >> 8;
    }
    if (carry) return false;
  }
  return true;
}

bool pack_is_moderate(size_t length, size_t size) {
  enum { ALWAYS = 256 << 10, PER_CHARACTER = 64 };
  return length <= ALWAYS || (length - ALWAYS) / PER_CHARACTER <= size;
}
