/* JSON, read from front to back. A reader of the whole language would be more than is needed: values that are not asked
 * for are passed over, but they must be well formed. */
#ifndef J2O_BASE_JSON_H
#define J2O_BASE_JSON_H

#include "base/builder.h"
#include "base/context.h"

typedef struct Json {
  Context *context;
  const char *path, *kind; /* errors say: PATH: not KIND: … expected at byte … */
  const char *start, *at, *end;
  Builder text; /* of the string read last */
} Json;

void json_init(Json *json, Context *context, const void *bytes, size_t size, const char *path, const char *kind);
_Noreturn void json_fail(Json *json, const char *wanted);

char json_next(Json *json); /* the first character that is no space; NUL at the end */
bool json_take(Json *json, char letter);
void json_expect(Json *json, char letter, const char *wanted);
Str json_string(Json *json);
double json_number(Json *json);
uint64_t json_natural(Json *json); /* a whole number that is not negative */
void json_pass(Json *json);        /* over a value */

#endif
