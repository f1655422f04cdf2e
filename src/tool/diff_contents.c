/* The contents of tensors, compared. Tensors of equal contents are one class, found by a hash and proved by the bytes,
 * so that a tensor is read at most twice however many nodes use it. */
#include <string.h>

#include "base/bytes.h"
#include "onnx/file/elements.h"
#include "tool/diff.h"

enum { PIECE = 1 << 16 };

typedef struct Content Content;
struct Content {
  const Tensor *tensor;
  const Side *side;
  const Content *class;
  const char *trouble; /* why it could not be read; NULL: it could */
  Content *next;       /* of the same hash */
};

static void open_elements(const Diff *diff, const Content *content, Elements *elements) {
  elements_open(elements, &diff->job->context, content->side->model, content->tensor, content->side->folder);
}

static uint64_t hash_content(const Diff *diff, Content *content) {
  Elements elements;
  uint64_t hash = 0;
  open_elements(diff, content, &elements);
  for (size_t got; (got = elements_next(&elements, diff->pieces[0], PIECE));) {
    hash = hash_mix(hash, hash_name(diff->job->context.secret, (const char *)diff->pieces[0], got));
  }
  content->trouble = elements.trouble;
  elements_close(&elements);
  return hash;
}

static bool same_elements(const Diff *diff, const Content *a, const Content *b) {
  Elements one, two;
  size_t got, other;
  bool same;
  open_elements(diff, a, &one);
  open_elements(diff, b, &two);
  do {
    got = elements_next(&one, diff->pieces[0], PIECE);
    other = elements_next(&two, diff->pieces[1], PIECE);
    same = got == other && same_bytes(diff->pieces[0], diff->pieces[1], got);
  } while (same && got == PIECE);
  same = same && !one.trouble && !two.trouble;
  elements_close(&one);
  elements_close(&two);
  return same;
}

static void classify(Diff *diff, Content *content) {
  uint64_t hash = hash_content(diff, content);
  content->class = content;
  if (content->trouble) return;
  void **slot = map_slot(&diff->job->context, &diff->by_hash, hash, content->tensor->size);
  for (const Content *known = *slot; known; known = known->next) {
    if (!same_elements(diff, known, content)) continue;
    content->class = known->class;
    return;
  }
  content->next = *slot;
  *slot = content;
}

static const Content *content_of(Diff *diff, const Side *side, const Tensor *tensor) {
  Context *context = &diff->job->context;
  const Content *known = map_get_pointer(&diff->contents, tensor);
  if (known) return known;
  for (int i = 0; i < 2 && !diff->pieces[i]; i++) diff->pieces[i] = arena_alloc(&context->arena, PIECE);
  Content *content = arena_new(&context->arena, Content);
  *content = (Content){.tensor = tensor, .side = side};
  classify(diff, content);
  *map_slot_pointer(context, &diff->contents, tensor) = content;
  return content;
}

static void leave_out(Diff *diff, const Side *side, const Tensor *tensor, const char *reason) {
  void **slot = map_slot_pointer(&diff->job->context, &diff->told, tensor);
  if (*slot) return;
  *slot = (void *)(uintptr_t)tensor;
  NotCompared item = {.path = side->path, .name = tensor->name, .reason = reason};
  if (reason) array_push(&diff->job->context, &diff->not_compared, item);
  else diff->skipped++;
}

bool diff_same_contents(Diff *diff, const Tensor *a, const Tensor *b) {
  if (!diff->job->weights && a->size > COMPARED_BYTES) {
    leave_out(diff, &diff->a, a, NULL);
    return true;
  }
  const Content *one = content_of(diff, &diff->a, a), *two = content_of(diff, &diff->b, b);
  if (one->trouble) leave_out(diff, &diff->a, a, one->trouble);
  if (two->trouble) leave_out(diff, &diff->b, b, two->trouble);
  return one->trouble || two->trouble || one->class == two->class;
}
