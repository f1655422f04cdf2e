/* What every command must keep to, checked on one input. */
#ifndef J2O_FUZZ_COMMAND_HARNESS_H
#define J2O_FUZZ_COMMAND_HARNESS_H

#include <stddef.h>
#include <stdint.h>

extern const size_t command_count, text_command_count;

/* One command on a model and a second file: the other model, a source, a profile. Does not return when a promise is
 * broken. */
void check_command(size_t command, const uint8_t *model, size_t size, const uint8_t *other, size_t other_size);
/* One command on the text of a program, a record or a graph. */
void check_text_command(size_t command, const uint8_t *text, size_t size);
/* Two models that compute different things: diff --weights must say so. */
void check_difference(const uint8_t *model, size_t size, const uint8_t *other, size_t other_size);

#endif
