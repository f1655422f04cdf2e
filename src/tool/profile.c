/* Times of nodes, from JSON. */
#include <string.h>

#include "base/bytes.h"
#include "base/json.h"
#include "tool/page/page.h"

typedef struct Reader {
  Job *job;
  Profile *profile;
  Json json;
} Reader;

static void add_time(Reader *reader, Str name, double microseconds) {
  Context *context = &reader->job->context;
  void **slot = map_slot_pointer(context, &reader->profile->times, name);
  if (!*slot) {
    *slot = arena_new(&context->arena, double);
    reader->profile->count++;
  }
  *(double *)*slot += microseconds;
}

/* {"node": microseconds, …} */
static void read_names(Reader *reader) {
  if (json_take(&reader->json, '}')) return;
  do {
    Str name = json_string(&reader->json);
    json_expect(&reader->json, ':', "':'");
    add_time(reader, name, json_number(&reader->json));
  } while (json_take(&reader->json, ','));
  json_expect(&reader->json, '}', "',' or '}'");
}

/* What jax2onnx profile --json writes has the names at its key "nodes", and more beside it. */
static bool take_document(Reader *reader) {
  bool found = false;
  if (json_take(&reader->json, '}')) return false;
  do {
    Str key = json_string(&reader->json);
    json_expect(&reader->json, ':', "':'");
    bool is_nodes = strcmp(key, "nodes") == 0 && json_next(&reader->json) == '{';
    if (is_nodes) {
      reader->json.at++;
      read_names(reader);
      found = true;
    } else {
      json_pass(&reader->json);
    }
  } while (json_take(&reader->json, ','));
  json_expect(&reader->json, '}', "',' or '}'");
  return found;
}

static void read_object(Reader *reader) {
  const char *start = reader->json.at;
  if (take_document(reader)) return;
  reader->json.at = start;
  read_names(reader);
}

/* An event {"name": "Sin_0_kernel_time", "dur": 12, …}; other events are not about a node's time. */
static void read_event(Reader *reader) {
  static const char ending[] = "_kernel_time";
  Str name = NULL;
  double duration = 0;
  json_expect(&reader->json, '{', "'{'");
  if (json_take(&reader->json, '}')) return;
  do {
    Str key = json_string(&reader->json);
    json_expect(&reader->json, ':', "':'");
    if (str_is(key, "name")) name = json_string(&reader->json);
    else if (str_is(key, "dur")) duration = json_number(&reader->json);
    else json_pass(&reader->json);
  } while (json_take(&reader->json, ','));
  json_expect(&reader->json, '}', "',' or '}'");
  size_t length = name ? str_length(name) : 0, tail = sizeof ending - 1;
  if (length <= tail || !same_bytes(name + length - tail, ending, tail)) return;
  add_time(reader, str_intern_sized(&reader->job->context, name, length - tail), duration);
}

static void read_events(Reader *reader) {
  if (json_take(&reader->json, ']')) return;
  do read_event(reader);
  while (json_take(&reader->json, ','));
  json_expect(&reader->json, ']', "',' or ']'");
}

const Profile *profile_read(Job *job, const char *path) {
  Context *context = &job->context;
  MappedFile *file = &job->files[MAX_FILES - 1];
  file_map(context, path, file);
  Reader reader = {.job = job, .profile = arena_new(&context->arena, Profile)};
  json_init(&reader.json, context, file->data, file->size, path, "a profile");
  if (json_take(&reader.json, '{')) read_object(&reader);
  else if (json_take(&reader.json, '[')) read_events(&reader);
  else json_fail(&reader.json, "an object of node names and times, or a list of events");
  if (json_next(&reader.json) || reader.json.at < reader.json.end) json_fail(&reader.json, "the end");
  return reader.profile;
}
