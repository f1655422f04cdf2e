/* Records: writing and reading. */
#include "record.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/scanner.h"
#include "base/spelling.h"
#include "onnx/facts/schema.h"
#include "onnx/file/model_text.h"

enum { RECORD_VERSION = 1 };

/* ---- options ---- */

static const char *const metadata_names[] = {
    [METADATA_OFF] = "off", [METADATA_MINIMAL] = "minimal", [METADATA_FULL] = "full", [METADATA_COMPACT] = "compact"};
static const char *const normalization_names[] = {
    [NORMALIZATION_DECOMPOSED] = "decomposed", [NORMALIZATION_AUTO] = "auto", [NORMALIZATION_NATIVE] = "native"};

typedef enum OptionKind { OPTION_OPSET, OPTION_TARGET, OPTION_SIZE, OPTION_FLAG, OPTION_CHOICE } OptionKind;

typedef struct OptionRow {
  const char *name;
  OptionKind kind;
  size_t place; /* in Record */
  const char *const *choices;
  size_t choice_count;
} OptionRow;

#define CHOICES(names) names, sizeof names / sizeof *names

static const OptionRow rows[] = {
    {"opset", OPTION_OPSET, offsetof(Record, options.lower.opset)},
    {"target", OPTION_TARGET, offsetof(Record, options.lower.target)},
    {"metadata", OPTION_CHOICE, offsetof(Record, write.metadata), CHOICES(metadata_names)},
    {"normalization", OPTION_CHOICE, offsetof(Record, options.passes.normalization), CHOICES(normalization_names)},
    {"sequential_bits", OPTION_FLAG, offsetof(Record, options.lower.sequential_bits)},
    {"drop_checks", OPTION_FLAG, offsetof(Record, options.lower.drop_checks)},
    {"drop_nan_guards", OPTION_FLAG, offsetof(Record, options.lower.drop_nan_guards)},
    {"round_products", OPTION_FLAG, offsetof(Record, options.lower.round_products)},
    {"unroll_scans", OPTION_FLAG, offsetof(Record, options.lower.unroll_scans)},
    {"external_threshold", OPTION_SIZE, offsetof(Record, write.external_threshold)},
    {"data_alignment", OPTION_SIZE, offsetof(Record, write.data_alignment)},
    {"largest_data_file", OPTION_SIZE, offsetof(Record, write.largest_data_file)},
    {"single_file", OPTION_FLAG, offsetof(Record, write.single_file)},
    {"ledger", OPTION_FLAG, offsetof(Record, options.keep_ledger)},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

static Record record_default(void) {
  Record record = {0};
  record.options.lower.opset = DEFAULT_OPSET;
  record.options.passes.normalization = NORMALIZATION_AUTO;
  record.write.data_alignment = MAPPED_ALIGNMENT;
  return record;
}

/* The default is the first, and NULL. */
static int64_t target_index(const Target *target) {
  int64_t index = 0;
  while (target && target_at((size_t)index) != target) index++;
  return index;
}

static int64_t option_value(const Record *record, const OptionRow *row) {
  const void *place = (const char *)record + row->place;
  switch (row->kind) {
    case OPTION_OPSET: return *(const int64_t *)place;
    case OPTION_TARGET: return target_index(*(const Target *const *)place);
    case OPTION_SIZE: return (int64_t)*(const size_t *)place;
    case OPTION_FLAG: return *(const bool *)place;
    case OPTION_CHOICE: return *(const int *)place;
  }
  return 0;
}

static void set_option(Record *record, const OptionRow *row, int64_t value) {
  void *place = (char *)record + row->place;
  switch (row->kind) {
    case OPTION_OPSET: *(int64_t *)place = value; break;
    case OPTION_TARGET: *(const Target **)place = target_at((size_t)value); break;
    case OPTION_SIZE: *(size_t *)place = (size_t)value; break;
    case OPTION_FLAG: *(bool *)place = value != 0; break;
    case OPTION_CHOICE: *(int *)place = (int)value; break;
  }
}

/* ---- writing ---- */

static void print_option(Builder *out, const Record *record, const OptionRow *row) {
  const Record otherwise = record_default();
  int64_t value = option_value(record, row);
  if (value == option_value(&otherwise, row)) return;
  builder_format(out, "%s ", row->name);
  if (row->kind == OPTION_FLAG) builder_add(out, value ? "True" : "False");
  else if (row->kind == OPTION_CHOICE) builder_add(out, row->choices[value]);
  else if (row->kind == OPTION_TARGET) builder_format(out, "\"%s\"", target_at((size_t)value)->name);
  else if (row->kind == OPTION_OPSET && value == OPSET_AUTO) builder_add(out, "auto");
  else builder_format(out, "%" PRId64, value);
  builder_add(out, "\n");
}

static void print_flags(Builder *out, const char *name, const bool *flags, uint32_t count) {
  size_t printed = 0;
  for (uint32_t i = 0; flags && i < count; i++) {
    if (flags[i]) builder_format(out, "%s%u", printed++ ? ", " : arena_format(&out->context->arena, "%s ", name), i);
  }
  if (printed) builder_add(out, "\n");
}

static void print_options(Builder *out, const Record *record) {
  const PassOptions *passes = &record->options.passes;
  const Jaxpr *main = record->program->main;
  for (size_t i = 0; i < ROW_COUNT; i++) print_option(out, record, &rows[i]);
  for (size_t i = 0; i < passes->disabled_count; i++) {
    builder_add(out, i ? ", " : "disabled ");
    spell_text(out, SPELL_PROGRAM, passes->disabled[i], strlen(passes->disabled[i]));
  }
  if (passes->disabled_count) builder_add(out, "\n");
  print_flags(out, "input_nchw", record->options.lower.input_nchw, main->input_count);
  print_flags(out, "output_nchw", record->options.lower.output_nchw, main->output_count);
}

static void print_texts(Builder *out, const char *word, const Str *texts, size_t count) {
  builder_add(out, word);
  for (size_t i = 0; i < count; i++) {
    builder_add(out, " ");
    spell_text(out, SPELL_PROGRAM, texts[i], str_length(texts[i]));
  }
  builder_add(out, "\n");
}

/* What the model says about its source files and parts, which no equation holds: "source PATH DIGEST [TEXT]" and
 * "module PATH CLASS [CLASS AND THOSE ABOVE…]". */
static void print_provenance(Builder *out, Provenance *provenance) {
  for (size_t i = 0; i < provenance->source_count; i++) {
    const SourceFile *source = &provenance->sources[i];
    Str path = written_file(provenance, source->path); /* as the frames below name it */
    print_texts(out, "source", (const Str[]){path, source->digest, source->text}, source->text ? 3 : 2);
  }
  for (size_t i = 0; i < provenance->module_count; i++) {
    const Module *module = provenance->modules[i];
    Str *texts = arena_new_array(&out->context->arena, module->class_count + 2, Str);
    texts[0] = module->path;
    texts[1] = module->class_name;
    for (size_t k = 0; k < module->class_count; k++) texts[k + 2] = module->classes[k];
    print_texts(out, "module", texts, module->class_count + 2);
  }
}

typedef struct CustomSearch {
  Context *context;
  Map visited;
} CustomSearch;

static void refuse_custom(CustomSearch *search, const Jaxpr *jaxpr);

static void refuse_custom_in(CustomSearch *search, const Param *param) {
  if (param->kind == PARAM_JAXPR) refuse_custom(search, param->jaxpr);
  if (param->kind != PARAM_LIST && param->kind != PARAM_RECORD) return;
  for (size_t i = 0; i < param->list.count; i++) refuse_custom_in(search, &param->list.items[i]);
}

/* A plugin of the user's is Python. */
static void refuse_custom(CustomSearch *search, const Jaxpr *jaxpr) {
  void **slot = map_slot_pointer(search->context, &search->visited, jaxpr);
  if (*slot) return;
  *slot = search;
  for (size_t i = 0; i < jaxpr->equation_count; i++) {
    const Equation *equation = jaxpr->equations[i];
    if (equation->source) {
      fail(search->context, ERROR_VALUE, "the export cannot be recorded: '%s' is lowered by a custom plugin",
           equation->primitive);
    }
    for (uint32_t p = 0; p < equation->param_count; p++) refuse_custom_in(search, &equation->params[p]);
  }
}

void record_write(const Record *record, const char *path, bool shapes_only) {
  Context *context = record->program->context;
  refuse_custom(&(CustomSearch){.context = context}, record->program->main);
  Builder out;
  DataPlan plan;
  builder_init(&out, context);
  data_plan_init(&plan, context, NULL);
  builder_format(&out, "record %d\n", RECORD_VERSION);
  print_options(&out, record);
  print_provenance(&out, record->program->provenance);
  program_print_to(&out, record->program, &plan, shapes_only);
  size_t count;
  const Segment *segments = data_segments(&plan, &count);
  if (count)
    segments_write_file(context, segments, count, arena_format(&context->arena, "%s.data", path),
                        &(OutputOptions){.skip_sync = true});
  segments_write_file(context, &(Segment){.data = builder_text(&out), .size = out.length}, 1, path,
                      &(OutputOptions){.skip_sync = true});
}

/* ---- reading ---- */

static int64_t read_choice(Scanner *scan, const OptionRow *row) {
  scan_space(scan);
  const char *start = scan->at;
  Str word = scan_word(scan, "a word");
  for (size_t i = 0; i < row->choice_count; i++) {
    if (strcmp(row->choices[i], word) == 0) return (int64_t)i;
  }
  scan_fail(scan, start, arena_format(&scan->context->arena, "'%s' cannot be %s", row->name, word));
}

static int64_t read_target(Scanner *scan) {
  scan_space(scan);
  const char *start = scan->at;
  const Target *target = target_named(scan_quoted(scan, "a target in quotes"));
  if (!target) scan_fail(scan, start, "there is no such target");
  return target_index(target);
}

static int64_t read_flag(Scanner *scan) {
  if (scan_accept_word(scan, "True")) return 1;
  if (!scan_accept_word(scan, "False")) scan_fail_expected(scan, "True or False");
  return 0;
}

static void read_option(Scanner *scan, Record *record, const OptionRow *row) {
  scan_space(scan);
  const char *start = scan->at;
  int64_t value = row->kind == OPTION_CHOICE                                    ? read_choice(scan, row)
                  : row->kind == OPTION_FLAG                                    ? read_flag(scan)
                  : row->kind == OPTION_TARGET                                  ? read_target(scan)
                  : row->kind == OPTION_OPSET && scan_accept_word(scan, "auto") ? OPSET_AUTO
                                                                                : scan_integer(scan);
  if (value < 0) scan_fail(scan, start, "a number below 0");
  set_option(record, row, value);
}

typedef ARRAY(int64_t) Indices;

static Indices read_indices(Scanner *scan) {
  Indices list = {0};
  do array_push(scan->context, &list, scan_integer(scan));
  while (scan_accept(scan, ','));
  return list;
}

static const bool *flags_of(Scanner *scan, const Indices *indices, uint32_t count, const char *where) {
  if (!indices->count) return NULL;
  bool *flags = arena_new_array(&scan->context->arena, count, bool);
  for (size_t i = 0; i < indices->count; i++) {
    if (indices->items[i] < 0 || indices->items[i] >= count) scan_fail(scan, where, "no such input or output");
    flags[indices->items[i]] = true;
  }
  return flags;
}

static void read_disabled(Scanner *scan, PassOptions *passes) {
  ARRAY(const char *) names = {0};
  do array_push(scan->context, &names, scan_quoted(scan, "a pass in quotes"));
  while (scan_accept(scan, ','));
  passes->disabled = names.items;
  passes->disabled_count = names.count;
}

typedef ARRAY(Str) Texts;

static Texts read_texts(Scanner *scan, size_t least) {
  Texts texts = {0};
  while (texts.count < least || scan_sees(scan, '"')) {
    array_push(scan->context, &texts, scan_quoted(scan, "a text in quotes"));
  }
  return texts;
}

typedef struct ReadProvenance {
  ARRAY(SourceFile) sources;
  ARRAY(const Module *) modules;
} ReadProvenance;

static void read_source(Scanner *scan, ReadProvenance *read) {
  Texts texts = read_texts(scan, 2);
  SourceFile source = {texts.items[0], texts.items[1], texts.count > 2 ? texts.items[2] : NULL};
  array_push(scan->context, &read->sources, source);
}

static void read_module(Scanner *scan, ReadProvenance *read) {
  Texts texts = read_texts(scan, 2);
  Module *module = arena_new(&scan->context->arena, Module);
  *module = (Module){texts.items[0], texts.items[1], texts.items + 2, texts.count - 2};
  array_push(scan->context, &read->modules, module);
}

Record record_read(Context *context, const char *text, size_t length, ProgramData *data) {
  Scanner scan;
  scanner_init(&scan, context, text, length, ESCAPES_OF_C);
  Record record = record_default();
  Indices nchw[2] = {{0}, {0}};
  ReadProvenance read = {0};
  bool is_record = scan_accept_word(&scan, "record");
  const char *start = scan.at;
  if (is_record && scan_integer(&scan) != RECORD_VERSION) scan_fail(&scan, start, "unknown version");
  while (is_record) {
    scan_space(&scan);
    start = scan.at;
    if (scan_word_length(&scan) == 7 && memcmp(scan.at, "program", 7) == 0) break;
    Str name = scan_word(&scan, "an option or a program");
    const OptionRow *row = rows;
    while (row < rows + ROW_COUNT && strcmp(row->name, name) != 0) row++;
    if (row < rows + ROW_COUNT) read_option(&scan, &record, row);
    else if (strcmp(name, "disabled") == 0) read_disabled(&scan, &record.options.passes);
    else if (strcmp(name, "source") == 0) read_source(&scan, &read);
    else if (strcmp(name, "module") == 0) read_module(&scan, &read);
    else if (strcmp(name, "input_nchw") == 0) nchw[0] = read_indices(&scan);
    else if (strcmp(name, "output_nchw") == 0) nchw[1] = read_indices(&scan);
    else scan_fail(&scan, start, "unknown option");
  }
  Provenance *provenance = provenance_new(context);
  provenance->sources = read.sources.items;
  provenance->source_count = read.sources.count;
  provenance->modules = read.modules.items;
  provenance->module_count = read.modules.count;
  record.program = program_parse_rest(&scan, provenance, data);
  program_require_sound(record.program);
  const Jaxpr *main = record.program->main;
  record.options.lower.input_nchw = flags_of(&scan, &nchw[0], main->input_count, text);
  record.options.lower.output_nchw = flags_of(&scan, &nchw[1], main->output_count, text);
  return record;
}

bool looks_like_record(const void *bytes, size_t size) {
  Context none = {0};
  Scanner scan;
  scanner_init(&scan, &none, bytes, size, ESCAPES_OF_C);
  return scan_accept_word(&scan, "record") || scan_accept_word(&scan, "program");
}

static void complete(Context *context, Str *names, uint32_t count, const char *base) {
  for (uint32_t i = 0; i < count; i++) {
    if (!names[i]) names[i] = str_intern(context, arena_format(&context->arena, "%s_%u", base, i));
  }
}

void record_complete_names(Record *record) {
  Program *program = record->program;
  if (!program->name) program->name = str_intern(program->context, "jax_model");
  complete(program->context, program->input_names, program->main->input_count, "in");
  complete(program->context, program->output_names, program->main->output_count, "out");
}
