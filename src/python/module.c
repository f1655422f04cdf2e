/* The extension module jax2onnx._core: one conversion per call, nothing kept between calls. */
#include <stdlib.h>
#include <time.h>

#include "base/bytes.h"
#include "base/platform.h"
#include "base/spelling.h"
#include "convert.h"
#include "j2o.h"
#include "onnx/facts/schema.h"
#include "onnx/facts/schema_fields.h"
#include "onnx/file/check_ledger.h"
#include "python/arguments.h"
#include "python/custom.h"
#include "python/import.h"
#include "python/options.h"
#include "python/running.h"
#include "record.h"
#include "tool/tool.h"
#include "types/moved.h"

typedef struct Conversion {
  Context context;
  Importer *importer;
  ImportRequest request;
  ConvertOptions options;
  WriteOptions write;
  UnsupportedList problems, notices;
  Program *program;
  const char *path;   /* NULL: the model is returned as bytes */
  const char *record; /* file that receives everything the conversion was given, or NULL */
  bool record_shapes_only;
  const char *model_name;
  PyObject *input_names, *output_names, *input_nchw, *output_nchw, *root, *entry_frames, *disabled_passes;
  PyObject *path_rules;
  bool relative_paths;
  int64_t metadata, normalization, external_threshold; /* as they were given */
  PyObject *progress; /* None, or called with the bytes of tensors that are written and that will be */
  WriteProgress written_so_far;
  int64_t data_alignment, largest_data_file; /* as they were given */
  bool told_end;
  PyObject *on_opset; /* called with the opset and what asked for it; or None */
  const char *target; /* its name, or NULL */
  int64_t opset;
  const char *opset_reason;
  PyThreadState *state; /* while the interpreter lock is released; NULL while it is held */
  int64_t asked;        /* when the user was last asked whether to stop, in nanoseconds */
  CustomCalls custom;
  const Segment *segments;
  Pieces pieces;
  size_t segment_count;
  uint64_t size;
  PyObject *result;
  MappedFile written; /* while it is checked */
} Conversion;

static Context *prepare_names(Conversion *c, PyObject *list, Str **names, uint32_t count) {
  Context *context = &c->context;
  if (!PyList_Check(list) || PyList_Size(list) != (Py_ssize_t)count) {
    fail(context, ERROR_VALUE, "expected %u name%s but got %zd", count, count == 1 ? "" : "s", PyObject_Length(list));
  }
  *names = arena_new_array(&context->arena, count, Str);
  for (uint32_t i = 0; i < count; i++) {
    const char *text = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, (Py_ssize_t)i), NULL);
    if (!text) fail_text(context, ERROR_PYTHON, "");
    (*names)[i] = str_intern(context, text);
  }
  return context;
}

static const bool *prepare_flags(Conversion *c, PyObject *list, uint32_t count) {
  if (list == Py_None) return NULL;
  bool *flags = arena_new_array(&c->context.arena, count, bool);
  for (Py_ssize_t i = 0; i < PyList_Size(list) && i < (Py_ssize_t)count; i++) {
    flags[i] = PyObject_IsTrue(PyList_GetItem(list, i)) > 0;
  }
  return flags;
}

static void import_frames(Conversion *c, Provenance *provenance) {
  size_t count = (size_t)PyList_Size(c->entry_frames);
  Frame **frames = arena_new_array(&c->context.arena, count, Frame *);
  for (size_t i = 0; i < count; i++) {
    frames[i] = importer_frame(c->importer, provenance, PyList_GetItem(c->entry_frames, (Py_ssize_t)i));
  }
  program_set_frames(c->program, importer_frame(c->importer, provenance, c->root), frames, count);
}

/* Pairs of what a path begins with and what is written instead. */
static void import_path_rules(Conversion *c, Provenance *provenance) {
  size_t count = (size_t)PyList_Size(c->path_rules);
  PathRule *rules = arena_new_array(&c->context.arena, count, PathRule);
  for (size_t i = 0; i < count; i++) {
    PyObject *pair = PyList_GetItem(c->path_rules, (Py_ssize_t)i);
    if (!PyArg_ParseTuple(pair, "ss", &rules[i].from, &rules[i].to)) fail_text(&c->context, ERROR_PYTHON, "");
  }
  provenance->paths = (Paths){.rules = rules, .rule_count = count, .relative = c->relative_paths};
}

static void import_passes(Conversion *c) {
  size_t count = (size_t)PyList_Size(c->disabled_passes);
  const char **names = arena_new_array(&c->context.arena, count, const char *);
  for (size_t i = 0; i < count; i++) {
    names[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(c->disabled_passes, (Py_ssize_t)i), NULL);
    if (!names[i]) fail_text(&c->context, ERROR_PYTHON, "");
  }
  c->options.passes.disabled = names;
  c->options.passes.disabled_count = count;
}

static void import_custom_plugins(Conversion *c) {
  size_t count = (size_t)PyTuple_Size(c->request.custom);
  Str *names = arena_new_array(&c->context.arena, count, Str);
  for (size_t i = 0; i < count; i++) {
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(c->request.custom, (Py_ssize_t)i), NULL);
    if (!name) fail_text(&c->context, ERROR_PYTHON, "");
    names[i] = str_intern(&c->context, name);
  }
  c->custom.importer = c->importer;
  c->custom.state = &c->state;
  c->options.lower.custom = (CustomPlugins){names, count, lower_in_python, &c->custom};
}

/* False with an exception set: whoever watches wants to stop. */
static bool tell_progress(Conversion *c) {
  if (c->progress == Py_None || !c->written_so_far.total) return true;
  PyObject *answer = PyObject_CallFunction(c->progress, "KK", (unsigned long long)c->written_so_far.written,
                                           (unsigned long long)c->written_so_far.total);
  Py_XDECREF(answer);
  return answer != NULL;
}

/* Runs Python's signal handlers, which is how it learns of Ctrl-C, some times a second. While the lock is held it does
 * so by itself, where it can. */
static bool is_interrupted(void *data) {
  enum { PERIOD = 50 * 1000 * 1000 };
  Conversion *c = data;
  if (!c->state) return false;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t time = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  bool ends = c->written_so_far.total && c->written_so_far.written == c->written_so_far.total && !c->told_end;
  if (time - c->asked < PERIOD && !ends) return false;
  c->told_end = c->told_end || ends;
  c->asked = time;
  PyEval_RestoreThread(c->state);
  bool raised = PyErr_CheckSignals() != 0 || !tell_progress(c);
  c->state = PyEval_SaveThread();
  return raised;
}

/* With the interpreter lock: everything Python knows is read here. */
static void import_stage(void *argument) {
  Conversion *c = argument;
  Context *context = &c->context;
  Provenance *provenance = provenance_new(context);
  c->importer = importer_new(context, &c->request);
  importer_watch(c->importer, &c->state);
  c->program = importer_run(c->importer, provenance);
  c->program->name = str_intern(context, c->model_name);
  const Jaxpr *main = c->program->main;
  prepare_names(c, c->input_names, &c->program->input_names, main->input_count);
  prepare_names(c, c->output_names, &c->program->output_names, main->output_count);
  c->options.lower.input_nchw = prepare_flags(c, c->input_nchw, main->input_count);
  c->options.lower.output_nchw = prepare_flags(c, c->output_nchw, main->output_count);
  import_frames(c, provenance);
  import_path_rules(c, provenance);
  importer_read_sources(c->importer, provenance);
  import_passes(c);
  import_custom_plugins(c);
}

/* The opset, and what asked for it: "Gelu (model.py:12 in forward)". */
static void note_opset(Conversion *c, const Model *model) {
  const Node *node = model->opset_asked_by;
  const Site *site = node && node->origin ? node->origin->sites[0] : NULL;
  const Frame *frame = site ? site_user_frame(model->provenance, site) : NULL;
  c->opset = model->opset;
  if (!node) return;
  c->opset_reason = node->op_type;
  if (!frame) return;
  c->opset_reason =
      arena_format(&c->context.arena, "%s (%s:%d in %s)", node->op_type, frame->file, frame->line, frame->function);
}

static bool say_opset(const Conversion *c) {
  if (c->on_opset == Py_None) return true;
  PyObject *done = PyObject_CallFunction(c->on_opset, "Lz", (long long)c->opset, c->opset_reason);
  Py_XDECREF(done);
  return done != NULL;
}

/* The graph is made, and nothing is written yet. */
static void tell_writing(Conversion *c) {
  if (c->progress == Py_None) return;
  PyEval_RestoreThread(c->state);
  PyObject *answer = PyObject_CallFunction(c->progress, "KK", 0ULL, 0ULL);
  Py_XDECREF(answer);
  c->state = PyEval_SaveThread();
  if (!answer) fail_text(&c->context, ERROR_PYTHON, "");
}

/* Without it: C only. */
static void convert_stage(void *argument) {
  Conversion *c = argument;
  if (c->record) {
    record_write(&(Record){c->program, c->options, c->write}, c->record, c->record_shapes_only);
  }
  Model *model = convert(c->program, &c->options, &c->problems, &c->notices);
  note_opset(c, model);
  tell_writing(c);
  if (c->path) model_write_file(model, &c->write, c->path);
  else c->segments = model_encode(model, &c->write, &c->segment_count, &c->size);
  for (size_t i = 0; i < c->segment_count; i++) { /* where running out of memory is an error, not the end */
    if (c->segments[i].moved) pieces_reserve(&c->pieces, c->segments[i].moved);
  }
}

static PyObject *exception_class(PyObject *module, ErrorKind kind) {
  switch (kind) {
    case ERROR_MEMORY: return PyExc_MemoryError;
    case ERROR_VALUE:
    case ERROR_FORMAT: return PyExc_ValueError;
    case ERROR_IO: return PyExc_OSError;
    case ERROR_UNSUPPORTED: {
      PyObject *unsupported = PyObject_GetAttrString(module, "UnsupportedError");
      Py_XDECREF(unsupported); /* the module keeps it */
      return unsupported;
    }
    default: return PyExc_RuntimeError;
  }
}

/* UnsupportedError(message, [(primitive, reason, file, line, function), …]) */
static void raise_unsupported(PyObject *class, Conversion *c) {
  PyObject *items = PyList_New(0);
  for (size_t i = 0; items && i < c->problems.count; i++) {
    const Unsupported *problem = &c->problems.items[i];
    const Frame *frame = problem->site ? site_user_frame(c->program->provenance, problem->site) : NULL;
    PyObject *item = Py_BuildValue("(sssis)", problem->primitive, problem->reason, frame ? frame->file : "",
                                   frame ? frame->line : 0, frame ? frame->function : "");
    if (!item || PyList_Append(items, item) != 0) Py_CLEAR(items);
    Py_XDECREF(item);
  }
  if (!items) return;
  PyObject *arguments = Py_BuildValue("(sN)", c->context.message, items);
  if (arguments) PyErr_SetObject(class, arguments);
  Py_XDECREF(arguments);
}

/* A path in the message may hold any bytes: they come back as Python has them in paths. */
static void set_error(PyObject *class, const char *message) {
  PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "surrogateescape");
  if (text) PyErr_SetObject(class, text);
  Py_XDECREF(text);
}

static void raise_error(PyObject *module, Conversion *c) {
  if (c->context.error == ERROR_PYTHON || c->context.error == ERROR_INTERRUPTED) return;
  PyObject *class = exception_class(module, c->context.error);
  if (!class) return;
  if (c->context.error == ERROR_UNSUPPORTED) raise_unsupported(class, c);
  else set_error(class, c->context.message);
}

/* One warning for each thing left out, at the user's line. False when warnings are errors. */
static bool warn(Conversion *c) {
  for (size_t i = 0; i < c->notices.count; i++) {
    const Unsupported *item = &c->notices.items[i];
    const Frame *frame = item->site ? site_user_frame(c->program->provenance, item->site) : NULL;
    Arena *arena = &c->context.arena;
    const char *text = item->reason;
    if (frame) text = arena_format(arena, "%s (%s:%d in %s)", text, frame->file, frame->line, frame->function);
    const char *file = frame ? frame->file : "<unknown>";
    if (PyErr_WarnExplicit(PyExc_UserWarning, text, file, frame ? frame->line : 0, NULL, NULL) != 0) return false;
  }
  return true;
}

static void copy_piece(const void *bytes, size_t size, void *data) {
  char **to = data;
  copy_bytes(*to, bytes, size);
  *to += size;
}

static void copy_stage(void *argument) {
  Conversion *c = argument;
  char *to = PyBytes_AsString(c->result);
  for (size_t i = 0; i < c->segment_count; i++) {
    const Segment *segment = &c->segments[i];
    segment_each_piece(segment, &c->pieces, copy_piece, &to);
  }
}

/* False with an error in the context or an exception set. */
static bool collect_bytes(Conversion *c) {
  if (c->size > PY_SSIZE_T_MAX) PyErr_NoMemory();
  else c->result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)c->size);
  if (c->result && context_protect(&c->context, copy_stage, c)) return true;
  Py_CLEAR(c->result);
  return false;
}

static bool take_result(Conversion *c) {
  if (!c->path) return collect_bytes(c);
  c->result = Py_NewRef(Py_None);
  return true;
}

/* What was written is read back: from the file, or from the bytes that the caller gets. */
static void check_stage(void *argument) {
  Conversion *c = argument;
  if (!c->path) {
    check_ledger(&c->context, c->program->provenance, PyBytes_AsString(c->result), (size_t)PyBytes_Size(c->result));
    return;
  }
  file_map(&c->context, c->path, &c->written);
  check_ledger(&c->context, c->program->provenance, c->written.data, c->written.size);
}

static bool check_result(Conversion *c) {
  if (!c->result || !c->options.passes.check || !c->options.keep_ledger) return true;
  bool done = context_protect(&c->context, check_stage, c);
  if (c->written.data) file_unmap(&c->written);
  return done;
}

static PyObject *run_conversion(PyObject *module, Conversion *c) {
  context_init(&c->context);
  c->context.interrupted = is_interrupted;
  c->context.interrupted_data = c;
  bool done = context_protect(&c->context, import_stage, c);
  if (done) {
    c->state = PyEval_SaveThread();
    done = context_protect(&c->context, convert_stage, c);
    PyEval_RestoreThread(c->state);
    c->state = NULL;
  }
  if (!done) raise_error(module, c);
  else if (warn(c) && say_opset(c) && !take_result(c) && !PyErr_Occurred()) raise_error(module, c);
  if (!check_result(c)) {
    raise_error(module, c);
    Py_CLEAR(c->result);
  }
  if (c->importer) importer_release(c->importer);
  context_release(&c->context);
  return c->result;
}

#define ROW(name, kind, field) {name, KEYWORD_##kind, offsetof(Conversion, field)}
static const KeywordRow keyword_rows[] = {
    ROW("jaxpr", OBJECT, request.jaxpr),
    ROW("types", DICT, request.types),
    ROW("name_parameters", OBJECT, request.name_parameters),
    ROW("name_modules", OBJECT, request.name_modules),
    ROW("read_sources", OBJECT, request.read_sources),
    ROW("jax_folders", TUPLE, request.jax_folders),
    ROW("library_folders", TUPLE, request.library_folders),
    ROW("model_name", TEXT, model_name),
    ROW("opset", NUMBER, options.lower.opset),
    ROW("target", TEXT, target),
    ROW("input_names", LIST, input_names),
    ROW("output_names", LIST, output_names),
    ROW("input_nchw", OBJECT, input_nchw),
    ROW("output_nchw", OBJECT, output_nchw),
    ROW("metadata", NUMBER, metadata),
    ROW("path", PATH, path),
    ROW("calls", PATH, options.calls),
    ROW("record", PATH, record),
    ROW("record_shapes_only", FLAG, record_shapes_only),
    ROW("external_threshold", NUMBER, external_threshold),
    ROW("single_file", FLAG, write.single_file),
    ROW("skip_sync", FLAG, write.output.skip_sync),
    ROW("fixed_data_name", FLAG, write.output.fixed_names),
    ROW("root", TUPLE, root),
    ROW("entry_frames", LIST, entry_frames),
    ROW("disabled_passes", LIST, disabled_passes),
    ROW("check_passes", FLAG, options.passes.check),
    ROW("dump_passes", PATH, options.passes.dump_folder),
    ROW("normalization", NUMBER, normalization),
    ROW("sequential_bits", FLAG, options.lower.sequential_bits),
    ROW("drop_checks", FLAG, options.lower.drop_checks),
    ROW("drop_nan_guards", FLAG, options.lower.drop_nan_guards),
    ROW("round_products", FLAG, options.lower.round_products),
    ROW("unroll_scans", FLAG, options.lower.unroll_scans),
    ROW("lowered", OBJECT, request.lowered),
    ROW("expand", OBJECT, request.expand),
    ROW("custom", TUPLE, request.custom),
    ROW("lower_custom", OBJECT, custom.lower),
    ROW("path_rules", LIST, path_rules),
    ROW("relative_paths", FLAG, relative_paths),
    ROW("weights", OBJECT, request.weights),
    ROW("data_alignment", NUMBER, data_alignment),
    ROW("largest_data_file", NUMBER, largest_data_file),
    ROW("progress", OBJECT, progress),
    ROW("on_opset", OBJECT, on_opset),
};

static PyObject *core_convert(PyObject *module, PyObject *arguments, PyObject *keywords) {
  Conversion c = {0};
  if (PyTuple_Size(arguments) > 0) return PyErr_Format(PyExc_TypeError, "options must be passed by name");
  if (!read_options(keywords, keyword_rows, sizeof keyword_rows / sizeof *keyword_rows, &c)) return NULL;
  c.request.spans = c.options.keep_ledger = c.metadata == METADATA_FULL || c.metadata == METADATA_COMPACT;
  if (c.target && !(c.options.lower.target = target_named(c.target))) {
    return PyErr_Format(PyExc_ValueError, "there is no target '%s'", c.target);
  }
  c.options.passes.normalization = (NormalizationMode)c.normalization;
  c.write.metadata = c.options.metadata = (MetadataLevel)c.metadata;
  c.write.external_threshold = c.external_threshold > 0 ? (size_t)c.external_threshold : 0;
  c.write.data_alignment = c.data_alignment > 0 ? (size_t)c.data_alignment : 0;
  c.write.largest_data_file = c.largest_data_file > 0 ? (size_t)c.largest_data_file : 0;
  c.write.progress = &c.written_so_far;
  c.options.output = c.write.output;
  return run_conversion(module, &c);
}

typedef struct ToolThread {
  PyThreadState *state;
  int64_t asked;
} ToolThread;

/* As is_interrupted, for a command. */
static bool tool_is_interrupted(void *data) {
  enum { PERIOD = 50 * 1000 * 1000 };
  ToolThread *thread = data;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t time = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  if (time - thread->asked < PERIOD) return false;
  thread->asked = time;
  PyEval_RestoreThread(thread->state);
  bool raised = PyErr_CheckSignals() != 0;
  thread->state = PyEval_SaveThread();
  return raised;
}

/* Without the interpreter lock; a Python exception may be set when it returns. */
static int run_tool(Arguments *arguments, FILE *out, FILE *err) {
  ToolThread thread = {.state = PyEval_SaveThread()};
  int code = j2o_tool_main(arguments->count, arguments->words, out, err, &(Interruption){tool_is_interrupted, &thread});
  fflush(out);
  fflush(err);
  PyEval_RestoreThread(thread.state);
  return code;
}

/* tool(arguments) -> exit code: the j2o program inside this process. */
static PyObject *core_tool(PyObject *module, PyObject *list) {
  (void)module;
  Arguments arguments;
  if (!read_arguments(list, &arguments)) return NULL;
  int code = run_tool(&arguments, stdout, stderr);
  release_arguments(&arguments);
  return PyErr_Occurred() ? NULL : PyLong_FromLong(code);
}

/* tool_output(arguments) -> (exit code, output, errors): the same, with what it prints as bytes. */
static PyObject *core_tool_output(PyObject *module, PyObject *list) {
  (void)module;
  Arguments arguments;
  if (!read_arguments(list, &arguments)) return NULL;
  char *texts[2] = {NULL, NULL};
  size_t sizes[2] = {0, 0};
  FILE *out = open_memstream(&texts[0], &sizes[0]);
  FILE *err = open_memstream(&texts[1], &sizes[1]);
  PyObject *result = NULL;
  if (out && err) {
    int code = run_tool(&arguments, out, err);
    if (!PyErr_Occurred())
      result = Py_BuildValue("iy#y#", code, texts[0], (Py_ssize_t)sizes[0], texts[1], (Py_ssize_t)sizes[1]);
  } else {
    PyErr_NoMemory();
  }
  if (out) fclose(out);
  if (err) fclose(err);
  free(texts[0]);
  free(texts[1]);
  release_arguments(&arguments);
  return result;
}

/* The bytes of a text; those of a path that is not UTF-8 as they are on the disk. */
static PyObject *text_bytes(PyObject *text) {
  PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
  if (bytes || !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return bytes;
  PyErr_Clear();
  return PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
}

/* shown(text, keep_lines=False) -> the text as a terminal may be shown it: nothing in it is obeyed. */
static PyObject *core_shown(PyObject *module, PyObject *arguments, PyObject *keywords) {
  (void)module;
  static char *names[] = {"text", "keep_lines", NULL};
  PyObject *text;
  int keep_lines = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "U|p", names, &text, &keep_lines)) return NULL;
  PyObject *bytes = text_bytes(text);
  if (!bytes) return NULL;
  const char *at = PyBytes_AsString(bytes);
  size_t left = (size_t)PyBytes_Size(bytes), length = 0;
  char *whole = PyMem_Malloc(left * (SPELLED_STEP - 1) + 1);
  if (!whole) {
    Py_DECREF(bytes);
    return PyErr_NoMemory();
  }
  for (char spelled[SPELLED_STEP]; left;) {
    bool is_end = keep_lines && *at == '\n';
    size_t step = spell_step(at, left, spelled), size = is_end ? 1 : strlen(spelled);
    copy_bytes(whole + length, is_end ? "\n" : spelled, size);
    length += size;
    at += step;
    left -= step;
  }
  PyObject *result = PyUnicode_DecodeUTF8(whole, (Py_ssize_t)length, NULL);
  PyMem_Free(whole);
  Py_DECREF(bytes);
  return result;
}

typedef struct FileJob {
  Context context;
  const char *path;
  Py_buffer content;
  int skip_sync;
} FileJob;

static void write_stage(void *argument) {
  FileJob *job = argument;
  OutputOptions options = {.skip_sync = job->skip_sync};
  output_bytes(&job->context, job->path, job->content.buf, (size_t)job->content.len, &options);
}

/* write_file(path, content, skip_sync): bytes to a file that appears whole or not at all. */
static PyObject *core_write_file(PyObject *module, PyObject *arguments) {
  FileJob job = {0};
  if (!PyArg_ParseTuple(arguments, "yy*p", &job.path, &job.content, &job.skip_sync)) return NULL;
  context_init(&job.context);
  bool done;
  Py_BEGIN_ALLOW_THREADS;
  done = context_protect(&job.context, write_stage, &job);
  Py_END_ALLOW_THREADS;
  if (!done) set_error(exception_class(module, job.context.error), job.context.message);
  context_release(&job.context);
  PyBuffer_Release(&job.content);
  return done ? Py_NewRef(Py_None) : NULL;
}

/* passes() -> {name: what it does}, in the order they run. */
static PyObject *core_passes(PyObject *module, PyObject *nothing) {
  (void)module, (void)nothing;
  PyObject *dict = PyDict_New();
  for (const Pass *pass = all_passes; dict && pass->name; pass++) {
    if (pass->phase == PHASE_EXPAND) continue; /* cannot be disabled */
    PyObject *summary = PyUnicode_FromString(pass->summary);
    if (!summary || PyDict_SetItemString(dict, pass->name, summary) != 0) Py_CLEAR(dict);
    Py_XDECREF(summary);
  }
  return dict;
}

static const char *plugin_kind(const Plugin *plugin) {
  static const char *const passing[] = {"lower_identity", "lower_tie", "lower_collective", "lower_axis_index"};
  if (plugin->flags & REFUSED) return "refused";
  if (plugin->flags & DROPPED) return "dropped";
  for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
    if (strcmp(plugin->function, passing[i]) == 0) return "passed through";
  }
  return "lowered";
}

static void add_plugin(const Plugin *plugin, void *data) {
  PyObject **dict = data;
  if (!*dict) return;
  const char *reason = plugin->reason ? plugin->reason : "";
  PyObject *pair = Py_BuildValue("(ss)", plugin_kind(plugin), reason);
  if (!pair || PyDict_SetItemString(*dict, plugin->primitive, pair) != 0) Py_CLEAR(*dict);
  Py_XDECREF(pair);
}

/* plugins() -> {primitive: (kind, reason)} */
static PyObject *core_plugins(PyObject *module, PyObject *nothing) {
  (void)module, (void)nothing;
  PyObject *dict = PyDict_New();
  each_plugin(add_plugin, &dict);
  return dict;
}

/* operator_version(operator, opset) -> the version in force; 0 when ONNX has none. */
static PyObject *core_operator_version(PyObject *module, PyObject *arguments) {
  (void)module;
  const char *op;
  long long opset;
  if (!PyArg_ParseTuple(arguments, "sL", &op, &opset)) return NULL;
  return PyLong_FromLongLong(schema_version(op_from_name(op, ""), opset));
}

static PyMethodDef methods[] = {
    {"checkpoint", core_checkpoint, METH_O,
     "The tensors in safetensors and their positions: of a file, an index, or a folder with one of either."},
    {"convert", (PyCFunction)(void (*)(void))core_convert, METH_VARARGS | METH_KEYWORDS,
     "Converts a jaxpr to an ONNX model: writes it to path, or returns it as bytes when path is None."},
    {"passes", core_passes, METH_NOARGS, "What each pass over the graph does, by name, in the order they run."},
    {"operator_version", core_operator_version, METH_VARARGS,
     "The version of an ONNX operator in force at an opset; 0 when there is none."},
    {"plugins", core_plugins, METH_NOARGS,
     "How each primitive is handled: lowered, passed through, dropped or refused, with the reason for the last two."},
    {"shown", (PyCFunction)(void (*)(void))core_shown, METH_VARARGS | METH_KEYWORDS,
     "The text with control characters escaped, so that it can be printed on a terminal."},
    {"sources", core_sources, METH_VARARGS,
     "The lines of these source files, if they were passed, or are in the working directory or a source root."},
    {"tool", core_tool, METH_O, "Runs the j2o program with these arguments; returns its exit code."},
    {"tool_output", core_tool_output, METH_O,
     "Runs the j2o program with these arguments; returns its exit code, output and errors."},
    {"write_file", core_write_file, METH_VARARGS, "Writes bytes to a file that appears whole or not at all."},
    {NULL, NULL, 0, NULL},
};

/* TARGETS: their names, the default first. */
static int add_targets(PyObject *module) {
  Py_ssize_t count = 0;
  while (target_at((size_t)count)) count++;
  PyObject *names = PyTuple_New(count);
  for (Py_ssize_t i = 0; names && i < count; i++) {
    PyObject *name = PyUnicode_FromString(target_at((size_t)i)->name);
    if (!name || PyTuple_SetItem(names, i, name) != 0) Py_CLEAR(names);
  }
  int failed = names ? PyModule_AddObjectRef(module, "TARGETS", names) : -1;
  Py_XDECREF(names);
  return failed;
}

static int module_exec(PyObject *module) {
  PyObject *error = PyErr_NewExceptionWithDoc(
      "jax2onnx._core.UnsupportedError",
      "A primitive cannot be exported. items lists (primitive, reason, file, line, function).",
      PyExc_NotImplementedError, NULL);
  if (!error || PyModule_AddObjectRef(module, "UnsupportedError", error) != 0) {
    Py_XDECREF(error);
    return -1;
  }
  Py_DECREF(error);
  if (add_recorder_type(module) != 0) return -1;
  if (PyModule_AddIntConstant(module, "NEWEST_OPSET", SCHEMA_NEWEST_OPSET) != 0) return -1;
  if (add_targets(module) != 0) return -1;
  return PyModule_AddStringConstant(module, "VERSION", j2o_version());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The C core of jax2onnx.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
