/* Memory may run out at every allocation: each failure unwinds to the protected call and leaves nothing behind. */
#ifndef J2O_TESTS_C_UNWINDING_H
#define J2O_TESTS_C_UNWINDING_H

#include "test.h"

enum { MOST_ALLOCATIONS = 20000 };

/* Does the work anew, with the allocation of this number failing; true when it came to its end before that. */
typedef bool Attempt(int64_t fail_at, void *given);

/* One attempt, in a context that is made for it and released. */
static inline bool attempt_in(Context *context, int64_t fail_at, void (*work)(void *), void *argument) {
  context_init(context);
  context->arena.fail_after = fail_at;
  bool completed = context_protect(context, work, argument);
  CHECK(completed || context->error == ERROR_MEMORY);
  context_release(context);
  return completed;
}

static inline void check_unwinds(Attempt *attempt, void *given) {
  bool completed = false;
  for (int64_t fail_at = 1; !completed && fail_at < MOST_ALLOCATIONS; fail_at++) completed = attempt(fail_at, given);
  CHECK(completed);
}

#endif
