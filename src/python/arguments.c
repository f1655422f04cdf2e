/* Source files for the commands in Python: the same rules and the same code as for those in C. */
#include "python/arguments.h"
#include "tool/source.h"

void release_arguments(Arguments *arguments) {
  PyMem_Free(arguments->words);
  Py_XDECREF(arguments->owner);
  *arguments = (Arguments){0};
}

bool read_arguments(PyObject *list, Arguments *arguments) {
  *arguments = (Arguments){0};
  if (!PyList_Check(list) || PyList_Size(list) > INT_MAX - 1) {
    PyErr_SetString(PyExc_TypeError, "expected a list of strings");
    return false;
  }
  arguments->count = (int)PyList_Size(list);
  arguments->owner = PyList_New(0);
  arguments->words = PyMem_Calloc((size_t)arguments->count + 1, sizeof *arguments->words);
  if (!arguments->words) PyErr_NoMemory();
  bool good = arguments->owner && arguments->words;
  for (int i = 0; good && i < arguments->count; i++) {
    PyObject *bytes = NULL;
    good = PyUnicode_FSConverter(PyList_GetItem(list, i), &bytes) && PyList_Append(arguments->owner, bytes) == 0;
    if (good) arguments->words[i] = PyBytes_AsString(bytes);
    Py_XDECREF(bytes); /* the list keeps it */
  }
  if (!good) release_arguments(arguments);
  return good;
}

typedef struct SourceRequest {
  Context context;
  Sources sources;
  Arguments names;
  const Source **found; /* NULL where a file cannot be read, or may not be */
} SourceRequest;

static void find_sources(void *argument) {
  SourceRequest *request = argument;
  Context *context = &request->context;
  size_t count = (size_t)request->names.count;
  Str *names = arena_new_array(&context->arena, count, Str);
  request->found = arena_new_array(&context->arena, count, const Source *);
  for (size_t i = 0; i < count; i++) names[i] = str_intern(context, request->names.words[i]);
  sources_match(context, &request->sources, names, count);
  for (size_t i = 0; i < count; i++) request->found[i] = sources_open(context, &request->sources, names[i]);
}

static PyObject *lines_of(const Source *source) {
  PyObject *lines = PyList_New((Py_ssize_t)source->lines.count);
  for (size_t i = 0; lines && i < source->lines.count; i++) {
    const SourceLine *line = &source->lines.items[i];
    PyObject *text = PyUnicode_DecodeUTF8(line->text, (Py_ssize_t)line->length, "replace");
    if (text) PyList_SetItem(lines, (Py_ssize_t)i, text);
    else Py_CLEAR(lines);
  }
  return lines;
}

static PyObject *found_sources(const SourceRequest *request, PyObject *names) {
  PyObject *found = PyDict_New();
  for (Py_ssize_t i = 0; found && i < request->names.count; i++) {
    if (!request->found[i]) continue;
    PyObject *lines = lines_of(request->found[i]);
    if (!lines || PyDict_SetItem(found, PyList_GetItem(names, i), lines) != 0) Py_CLEAR(found);
    Py_XDECREF(lines);
  }
  return found;
}

static bool set_paths(const Arguments *from, const char **to, size_t *count) {
  if (from->count > MAX_SOURCE_FILES) {
    PyErr_Format(PyExc_ValueError, "at most %d source files and folders can be passed", MAX_SOURCE_FILES);
    return false;
  }
  for (int i = 0; i < from->count; i++) to[(*count)++] = from->words[i];
  return true;
}

PyObject *core_sources(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *names, *given, *roots, *result = NULL;
  if (!PyArg_ParseTuple(arguments, "OOO", &names, &given, &roots)) return NULL;
  SourceRequest request = {0};
  Arguments files = {0}, folders = {0};
  context_init(&request.context);
  if (read_arguments(names, &request.names) && read_arguments(given, &files) && read_arguments(roots, &folders) &&
      set_paths(&files, request.sources.given, &request.sources.given_count) &&
      set_paths(&folders, request.sources.roots, &request.sources.root_count)) {
    if (context_protect(&request.context, find_sources, &request)) result = found_sources(&request, names);
    else PyErr_SetString(PyExc_OSError, request.context.message);
  }
  release_arguments(&request.names);
  release_arguments(&files);
  release_arguments(&folders);
  context_release(&request.context);
  return result;
}
